"""The graph of fused ops: what a split is made of.

Pure data. Ops stand in a topological order and are named by their index everywhere inside the package; tensors are named.
Constants (weights) are no tensors here: they never cross a cut, each stage holds its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from autosplit.errors import GraphError


@dataclass(frozen=True)
class Tensor:
    """A value that an op or the caller makes and ops or the caller read.

    ``producer`` is the index of the op that makes it, None for a model input; ``consumers`` are the indices of the ops
    that read it, each once, ascending. ``bytes`` is its dense size.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    producer: int | None
    consumers: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """A fused op: one kernel call, or one composite that an external backend runs.

    ``sources`` are the names of the source nodes whose result it makes, ``parts`` of those it makes only a part of (a node
    may take several kernels); ``inputs`` and ``outputs`` are tensor names. ``weight_bytes`` is the size of the constants it
    reads; ``flops`` an estimate of its arithmetic, 0 where unknown.
    """

    name: str
    kernel: str
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weight_bytes: int = 0
    flops: float = 0.0
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Folded:
    """A source node that left no op, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class FusedGraph:
    """Fused ops in topological order, the tensors between them, and the model's inputs and outputs by tensor name.

    Raises GraphError where a name is unknown or used twice, or an op reads what is only made later.
    """

    name: str
    ops: tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    folded: tuple[Folded, ...] = field(default=())

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Op name to op index."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def predecessors(self) -> tuple[int, ...]:
        """For each op the bitset of the ops whose results it reads."""
        return tuple(
            _bits(p for t in op.inputs if (p := self.tensors[t].producer) is not None)
            for op in self.ops
        )

    @cached_property
    def successors(self) -> tuple[int, ...]:
        """For each op the bitset of the ops that read its results."""
        return tuple(
            _bits(c for t in op.outputs for c in self.tensors[t].consumers) for op in self.ops
        )


def build(
    name: str,
    ops: Iterable[Op],
    shapes: Mapping[str, tuple[tuple[int, ...], str, int]],
    inputs: Iterable[str],
    outputs: Iterable[str],
    folded: Iterable[Folded] = (),
) -> FusedGraph:
    """A FusedGraph from its ops; producers and consumers follow from them.

    ``shapes`` gives (shape, dtype, bytes) of every tensor by name. Raises GraphError as FusedGraph does.
    """
    ops = tuple(ops)
    producer: dict[str, int] = {}
    consumers: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        for t in op.outputs:
            if producer.setdefault(t, i) != i:
                raise GraphError(
                    f"tensor '{t}' is made by both '{ops[producer[t]].name}' and '{op.name}'; rename one"
                )
        for t in dict.fromkeys(op.inputs):
            consumers.setdefault(t, []).append(i)
    tensors = {
        t: Tensor(t, shape, dtype, size, producer.get(t), tuple(consumers.get(t, ())))
        for t, (shape, dtype, size) in shapes.items()
    }
    return FusedGraph(name, ops, tensors, tuple(inputs), tuple(outputs), tuple(folded))


def _bits(indices: Iterable[int]) -> int:
    bits = 0
    for i in indices:
        bits |= 1 << i
    return bits


def _check(graph: FusedGraph) -> None:
    seen: set[str] = set()
    made = set(graph.inputs)
    for op in graph.ops:
        if op.name in seen:
            raise GraphError(f"op '{op.name}' appears twice; op names must be unique")
        seen.add(op.name)
        for t in op.inputs:
            if t not in made:
                raise GraphError(
                    f"op '{op.name}' reads tensor '{t}' that no earlier op makes; order the ops"
                )
        made.update(op.outputs)
    for t in (*made, *graph.outputs):
        if t not in graph.tensors:
            raise GraphError(f"tensor '{t}' has no shape; list it among the tensors")
    for t in graph.outputs:
        if t not in made:
            raise GraphError(f"output '{t}' is made by no op and is no input")
