"""The graph of fused ops, which a split divides into stages. Pure data.

Ops are in topological order. Throughout the package an op is identified by its index, a tensor by
its name. Constants (weights) are not tensors here: they never cross a cut, because each stage has
its own copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from autosplit.errors import GraphError, SplitError, nearest
from autosplit.lazy import cached_property

if TYPE_CHECKING:
    import networkx

__all__ = ["Folded", "FusedGraph", "Op", "State", "Tensor"]


@dataclass(frozen=True)
class Tensor:
    """A value that an op or the caller produces, and that ops or the caller read.

    ``producer`` is the index of the op that makes it, None for a model input; ``consumers`` are the
    indices of the ops that read it, each once, ascending. ``bytes`` is its dense size.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    producer: int | None
    consumers: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """A fused op: one kernel call, one composite of an external backend, or one opaque op.

    ``sources`` names the source nodes whose result the op computes, ``parts`` those it computes
    only in part (a node may take several kernels); ``inputs`` and ``outputs`` are tensor names.
    ``weight_bytes`` is the size of the constants it reads; ``flops`` an estimate of its arithmetic,
    0 where unknown. ``opaque`` is the reason why TVM cannot compute the op; empty if it can.
    """

    name: str
    kernel: str
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weight_bytes: int = 0
    flops: float = 0.0
    parts: tuple[str, ...] = ()
    opaque: str = ""


@dataclass(frozen=True)
class Folded:
    """A source node that left no op, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class State:
    """A tensor that one item leaves for the next item of its stream.

    The model output ``output``, whose tensor is ``tensor``, becomes the model input ``input`` of
    the next step.
    """

    input: str
    output: str
    tensor: str


@dataclass(frozen=True)
class FusedGraph:
    """Fused ops in topological order, their tensors, and the model's inputs and outputs by name.

    ``modules`` maps each PyTorch module to the ops that compute at least a part of it.

    Raises:
        GraphError: A name is unknown or used twice, or an op reads a tensor that is made later.
    """

    name: str
    ops: tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    folded: tuple[Folded, ...] = field(default=())
    states: tuple[State, ...] = ()
    modules: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Op name to op index."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the ops."""
        return tuple(op.name for op in self.ops)

    @cached_property
    def predecessors(self) -> tuple[int, ...]:
        """For each op the bitset of the ops whose results it reads."""
        rows = []
        for op in self.ops:
            producers = (self.tensors[t].producer for t in op.inputs)
            rows.append(bitset(p for p in producers if p is not None))
        return tuple(rows)

    @cached_property
    def successors(self) -> tuple[int, ...]:
        """For each op the bitset of the ops that read its results."""
        rows = []
        for op in self.ops:
            consumers = (self.tensors[t].consumers for t in op.outputs)
            rows.append(bitset(chain.from_iterable(consumers)))
        return tuple(rows)

    @cached_property
    def ops_of_states(self) -> tuple[tuple[int, ...], ...]:
        """For each state the ops that have to share a stage: its readers and the op that renews it.

        Ops on paths between them join them when they are contracted.
        """
        groups = []
        for state in self.states:
            writer = self.tensors[state.tensor].producer
            readers = self.tensors[state.input].consumers
            groups.append(tuple(sorted({*readers, *([] if writer is None else [writer])})))
        return tuple(groups)

    def to_networkx(self) -> networkx.DiGraph:
        """The graph as a new ``networkx.DiGraph``, to analyse or draw it.

        Nodes are op names in topological order, with the attributes ``index``, ``kernel``,
        ``sources``, ``flops`` and ``weight_bytes``. An edge leads from the op that makes some
        tensors to an op that reads them, with ``tensors`` (names, in the order of the producer's
        outputs) and ``bytes`` (their sum). Model inputs and outputs are not nodes; the attributes
        ``inputs`` and ``outputs`` of the graph have their names.
        """
        import networkx

        graph = networkx.DiGraph(name=self.name, inputs=self.inputs, outputs=self.outputs)
        for i, op in enumerate(self.ops):
            graph.add_node(
                op.name,
                index=i,
                kernel=op.kernel,
                sources=op.sources,
                flops=op.flops,
                weight_bytes=op.weight_bytes,
            )
        # An op may read several tensors of another: one edge has them all.
        sent: dict[tuple[str, str], list[str]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.outputs):
                for reader in self.tensors[name].consumers:
                    sent.setdefault((op.name, self.ops[reader].name), []).append(name)
        for edge, names in sent.items():
            size = sum(self.tensors[name].bytes for name in names)
            graph.add_edge(*edge, tensors=tuple(names), bytes=size)
        return graph


def build(
    name: str,
    ops: Iterable[Op],
    shapes: Mapping[str, tuple[tuple[int, ...], str, int]],
    inputs: Iterable[str],
    outputs: Iterable[str],
    folded: Iterable[Folded] = (),
) -> FusedGraph:
    """Build a FusedGraph from its ops, which determine the producers and consumers of tensors.

    ``shapes`` has (shape, dtype, bytes) of every tensor by name.

    Raises:
        GraphError: As FusedGraph, and for a tensor that two ops make.
    """
    ops = tuple(ops)
    producer: dict[str, int] = {}
    consumers: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        for t in op.outputs:
            if producer.setdefault(t, i) != i:
                first = ops[producer[t]].name
                raise GraphError(
                    f"tensor '{t}' is made by both '{first}' and '{op.name}'; rename one"
                )
        # An op that reads a tensor twice is one consumer.
        for t in dict.fromkeys(op.inputs):
            consumers.setdefault(t, []).append(i)
    tensors = {
        t: Tensor(t, shape, dtype, size, producer.get(t), tuple(consumers.get(t, ())))
        for t, (shape, dtype, size) in shapes.items()
    }
    return FusedGraph(name, ops, tensors, tuple(inputs), tuple(outputs), tuple(folded))


def bitset(indices: Iterable[int]) -> int:
    """The bitset of some op indices."""
    bits = 0
    for i in indices:
        bits |= 1 << i
    return bits


def _check(graph: FusedGraph) -> None:
    op_names: set[str] = set()
    available = set(graph.inputs)
    for op in graph.ops:
        if op.name in op_names:
            raise GraphError(f"op '{op.name}' appears twice; op names must be unique")
        op_names.add(op.name)
        for t in op.inputs:
            if t not in available:
                raise GraphError(
                    f"op '{op.name}' reads tensor '{t}' that no earlier op makes; order the ops"
                )
        available.update(op.outputs)
    for t in (*available, *graph.outputs):
        if t not in graph.tensors:
            raise GraphError(f"tensor '{t}' has no shape; list it among the tensors")
    for t in graph.outputs:
        if t not in available:
            raise GraphError(f"no op makes output '{t}' and it is not an input")


def op_title(op: Op) -> str:
    """The display name of an op: its last source node and its short name, relu7 (op20)."""
    return shown_name(op.name, op.sources)


def shown_name(name: str, sources: Sequence[str]) -> str:
    """``op_title`` of an op with this name and these source nodes."""
    short, _, rest = name.partition("_")
    if not (sources and rest and short[:2] == "op" and short[2:].isdigit()):
        return name
    return f"{sources[-1]} ({short})"


def ops_named(graph: FusedGraph, name: str) -> tuple[int, ...]:
    """The ops that a name of an op, a source node, a tensor or a module stands for.

    Raises SplitError where there are none.
    """
    if name in graph.index:
        return (graph.index[name],)
    ops = tuple(i for i, op in enumerate(graph.ops) if name in op.sources)
    # A tensor's name comes last: a node and its output often have the same one.
    ops = ops or tuple(i for i, op in enumerate(graph.ops) if name in op.outputs)
    # op5 is short for op5_fused_conv2d_add_relu.
    if not ops and name[:2] == "op" and name[2:].isdigit():
        ops = tuple(i for i, op in enumerate(graph.ops) if op.name.startswith(f"{name}_"))
    ops = ops or graph.modules.get(name, ())
    if ops:
        return ops
    for folded in graph.folded:
        if folded.name == name:
            raise SplitError(
                f"node '{name}' has no fused op ({folded.reason}); name the node before or after it"
            )
    known = [*graph.index, *graph.modules]
    for op in graph.ops:
        known += [*op.sources, *op.outputs]
    raise SplitError(
        f"unknown op or source node '{name}'; `autosplit inspect` lists them{nearest(name, known)}"
    )
