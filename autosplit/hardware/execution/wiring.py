"""Which tensor goes from where to where in a split. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeInt

from autosplit.errors import SplitError
from autosplit.graph import FusedGraph, State

# The types of this machine: another byte order would be read as other numbers.
DtypeName = Annotated[
    str, Field(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16|float8_[a-z0-9]+)$")
]


@dataclass(frozen=True)
class Port:
    """A tensor where it enters or leaves a stage or the model.

    ``range`` has the least and the largest legal value of an input of the model, where it is known.
    """

    name: str
    shape: tuple[NonNegativeInt, ...]
    dtype: DtypeName
    range: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StageState:
    """A tensor that one item leaves for the next item of its stream, by the stage's ports."""

    input: str
    output: str
    shape: tuple[NonNegativeInt, ...]
    dtype: DtypeName


@dataclass(frozen=True)
class StagePorts:
    """The ops of a stage, its inputs and its outputs, each named by its tensor, and its states."""

    ops: tuple[int, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StageState, ...] = field(default=(), repr=False)  # no part of the code's key

    @property
    def state_places(self) -> tuple[tuple[int, int], ...]:
        """The positions of each state among the inputs and, of its successor, the outputs."""
        inputs = [port.name for port in self.inputs]
        outputs = [port.name for port in self.outputs]
        return tuple((inputs.index(s.input), outputs.index(s.output)) for s in self.states)


@dataclass(frozen=True)
class Connection:
    """One tensor and all that read it.

    ``source`` is (stage, output index), or the name of a model input. ``stages`` are the stages
    that read it, under the input name ``tensor``. ``outputs`` are the model outputs it is.
    """

    tensor: str
    bytes: int
    source: tuple[int, int] | str
    stages: tuple[int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Wiring:
    """A pipeline without its programs: all ports, and the connections between them.

    States are neither inputs nor outputs of the pipeline; ``initial`` has, by its input, what a
    state begins with that does not begin at zero. ``steps``: how many items a stream may have
    before its states are full, where that is known.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    stages: tuple[StagePorts, ...]
    connections: tuple[Connection, ...]
    initial: Mapping[str, Any] = field(default_factory=dict, compare=False)
    steps: int | None = None

    @property
    def first_states(self) -> dict[str, Any]:
        """What a stream begins with, by the input of each state."""
        states = [state for stage in self.stages for state in stage.states]
        return {s.input: self.initial.get(s.input, np.zeros(s.shape, s.dtype)) for s in states}


def wire(
    graph: FusedGraph,
    stages: Sequence[Sequence[int]],
    outputs: Iterable[tuple[str, str]],
    initial: Mapping[str, Any] = MappingProxyType({}),
    ranges: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> Wiring:
    """The wiring of a legal split; ``outputs`` pairs each model output with its tensor.

    ``initial`` has, by input, what states begin with that do not begin at zero; ``ranges`` the
    legal values of inputs.

    Raises SplitError where a state would leave its stage.
    """
    outputs = tuple(outputs)
    results = {tensor for _, tensor in outputs}
    # A state that no op reads stays in the stage that renews it.
    unread = {
        state.input: graph.tensors[state.tensor].producer
        for state in graph.states
        if not graph.tensors[state.input].consumers
    }
    ports = tuple(_ports(graph, ops, results, unread) for ops in stages)
    state_inputs = {state.input for state in graph.states}
    state_outputs = {state.output for state in graph.states}
    # The caller neither gives nor gets states.
    visible = [(name, tensor) for name, tensor in outputs if name not in state_outputs]
    states: dict[int, list[StageState]] = {}
    for state in graph.states:
        port = _port(graph, state.input)
        successor = StageState(port.name, state.tensor, port.shape, port.dtype)
        states.setdefault(_stage_of(graph, ports, state), []).append(successor)
    connections = [
        connection
        for connection in _connections(graph, ports, visible)
        if connection.source not in state_inputs
    ]
    inputs = [_port(graph, name) for name in graph.inputs if name not in state_inputs]
    return Wiring(
        inputs=tuple(replace(port, range=ranges.get(port.name)) for port in inputs),
        outputs=tuple(_port(graph, tensor, name) for name, tensor in visible),
        stages=tuple(replace(p, states=tuple(states.get(i, ()))) for i, p in enumerate(ports)),
        connections=tuple(connections),
        initial=initial,
    )


def _stage_of(graph: FusedGraph, stages: Sequence[StagePorts], state: State) -> int:
    """The stage that has a state. Raises SplitError where there is no such one."""
    port = _port(graph, state.input)
    # Several ops of one stage may read it; the stage then has one input for all.
    readers = [s for s, stage in enumerate(stages) if port in stage.inputs]
    successor = _port(graph, state.tensor)
    writers = [s for s, stage in enumerate(stages) if successor in stage.outputs]
    if len(readers) != 1 or readers != writers:
        raise SplitError(
            f"state '{state.input}' is read in stage {', '.join(map(str, readers))} and renewed in "
            f"stage {', '.join(map(str, writers))}; keep the ops of a state on one stage"
        )
    return readers[0]


def part(graph: FusedGraph, ops: Sequence[int], outputs: Iterable[tuple[str, str]]) -> Wiring:
    """The wiring of a convex set of ops alone, with ``outputs`` as for ``wire``.

    Its inputs are the tensors produced outside, its outputs those read outside. A set whose results
    nobody reads has them all as outputs.
    """
    ports = _ports(graph, ops, {tensor for _, tensor in outputs})
    if not ports.outputs:
        results = [t for i in ops for t in graph.ops[i].outputs]
        ports = StagePorts(ports.ops, ports.inputs, tuple(_port(graph, t) for t in results))
    connections = []
    for port in ports.inputs:
        size = graph.tensors[port.name].bytes
        connections.append(Connection(port.name, size, port.name, (0,), ()))
    for index, port in enumerate(ports.outputs):
        size = graph.tensors[port.name].bytes
        connections.append(Connection(port.name, size, (0, index), (), (port.name,)))
    return Wiring(ports.inputs, ports.outputs, (ports,), tuple(connections))


def _ports(
    graph: FusedGraph,
    ops: Sequence[int],
    results: set[str],
    unread: Mapping[str, int | None] = MappingProxyType({}),
) -> StagePorts:
    """The ports of a stage; ``results`` are the tensors that are model outputs.

    ``unread`` are inputs that no op reads, each with an op whose stage has it all the same.
    """
    inside = set(ops)
    inputs: dict[str, Port] = {}
    outputs: list[Port] = []
    for i in ops:
        for tensor in graph.ops[i].inputs:
            if graph.tensors[tensor].producer not in inside:
                inputs[tensor] = _port(graph, tensor)
        for tensor in graph.ops[i].outputs:
            # What only ops of the stage read never leaves it.
            if tensor in results or not inside.issuperset(graph.tensors[tensor].consumers):
                outputs.append(_port(graph, tensor))
    inputs |= {name: _port(graph, name) for name, op in unread.items() if op in inside}
    return StagePorts(tuple(ops), tuple(inputs.values()), tuple(outputs))


def _port(graph: FusedGraph, tensor: str, name: str | None = None) -> Port:
    return Port(name or tensor, graph.tensors[tensor].shape, graph.tensors[tensor].dtype)


def _connections(
    graph: FusedGraph, ports: Sequence[StagePorts], outputs: Sequence[tuple[str, str]]
) -> Iterator[Connection]:
    # The caller sends an input under its own name.
    sources: dict[str, tuple[int, int] | str] = {name: name for name in graph.inputs}
    readers: dict[str, list[int]] = {}
    for index, stage in enumerate(ports):
        for position, port in enumerate(stage.outputs):
            sources[port.name] = (index, position)
        for port in stage.inputs:
            readers.setdefault(port.name, []).append(index)
    for tensor, source in sources.items():
        stages = tuple(readers.get(tensor, ()))
        names = tuple(name for name, result in outputs if result == tensor)
        if stages or names:
            yield Connection(tensor, graph.tensors[tensor].bytes, source, stages, names)
