"""Which tensor goes from where to where, for a given split. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosplit.graph import FusedGraph


@dataclass(frozen=True)
class Port:
    """A tensor where it enters or leaves something."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class StagePorts:
    """What a stage reads and makes; an input is named by its tensor, and so is an output."""

    ops: tuple[int, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True)
class Connection:
    """One tensor and everybody who reads it.

    ``source`` is (stage, output index), or the name of a model input. ``stages`` are the stages that read it, each once,
    under the input name ``tensor``; ``outputs`` the model outputs it is.
    """

    tensor: str
    bytes: int
    source: tuple[int, int] | str
    stages: tuple[int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Wiring:
    """A pipeline without its programs: ports of the model and of the stages, and the connections between them."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    stages: tuple[StagePorts, ...]
    connections: tuple[Connection, ...]


def wire(
    graph: FusedGraph, stages: Sequence[Sequence[int]], outputs: Iterable[tuple[str, str]]
) -> Wiring:
    """The wiring of a legal split; ``outputs`` pairs each model output with the tensor that holds it."""
    outputs = tuple(outputs)
    ports = tuple(_ports(graph, ops, {t for _, t in outputs}) for ops in stages)
    return Wiring(
        inputs=tuple(_port(graph, name) for name in graph.inputs),
        outputs=tuple(_port(graph, tensor, name) for name, tensor in outputs),
        stages=ports,
        connections=tuple(_connections(graph, ports, outputs)),
    )


def part(graph: FusedGraph, ops: Sequence[int], outputs: Iterable[tuple[str, str]]) -> Wiring:
    """The wiring of a convex set of ops run by itself: it reads what is made outside, and hands out what is read there.

    ``outputs`` as for ``wire``. A set whose results nobody reads hands all of them out.
    """
    ports = _ports(graph, ops, {t for _, t in outputs})
    if not ports.outputs:
        made = tuple(_port(graph, t) for i in ops for t in graph.ops[i].outputs)
        ports = StagePorts(ports.ops, ports.inputs, made)
    size = {name: tensor.bytes for name, tensor in graph.tensors.items()}
    read = (Connection(p.name, size[p.name], p.name, (0,), ()) for p in ports.inputs)
    made_by = (
        Connection(p.name, size[p.name], (0, j), (), (p.name,)) for j, p in enumerate(ports.outputs)
    )
    return Wiring(ports.inputs, ports.outputs, (ports,), (*read, *made_by))


def _ports(graph: FusedGraph, ops: Sequence[int], results: set[str]) -> StagePorts:
    inside = set(ops)
    reads = dict.fromkeys(
        t for i in ops for t in graph.ops[i].inputs if graph.tensors[t].producer not in inside
    )
    makes = [
        t
        for i in ops
        for t in graph.ops[i].outputs
        if t in results or not inside.issuperset(graph.tensors[t].consumers)
    ]
    return StagePorts(
        tuple(ops), tuple(_port(graph, t) for t in reads), tuple(_port(graph, t) for t in makes)
    )


def _port(graph: FusedGraph, tensor: str, name: str | None = None) -> Port:
    return Port(name or tensor, graph.tensors[tensor].shape, graph.tensors[tensor].dtype)


def _connections(
    graph: FusedGraph, ports: Sequence[StagePorts], outputs: Sequence[tuple[str, str]]
) -> Iterable[Connection]:
    made: dict[str, tuple[int, int] | str] = {name: name for name in graph.inputs}
    made |= {p.name: (s, j) for s, stage in enumerate(ports) for j, p in enumerate(stage.outputs)}
    for tensor, source in made.items():
        readers = tuple(
            s for s, stage in enumerate(ports) if any(p.name == tensor for p in stage.inputs)
        )
        leaves = tuple(name for name, t in outputs if t == tensor)
        if readers or leaves:
            yield Connection(tensor, graph.tensors[tensor].bytes, source, readers, leaves)
