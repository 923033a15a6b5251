"""The connections of a split: which tensor goes from which stage to which. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import PositiveInt

from autosplit.errors import SplitError
from autosplit.graph import FusedGraph, State
from autosplit.hardware.execution.stage_spec import Port, StageSpec, StageState
from autosplit.hardware.runtimes.arrays import dtype_of

CALLER = -1  # stands for the caller, which sends the model's inputs, among the stage numbers


@dataclass(frozen=True)
class Connection:
    """One tensor, its source and its readers.

    ``source`` is (stage, output index), or the name of a model input. ``stages`` are the stages
    that read it, under the input name ``tensor``. ``outputs`` names the model outputs that it is.
    """

    tensor: str
    source: tuple[int, int] | str
    stages: tuple[int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """Items of other shapes that the same stages compute; ``inputs`` is what the caller gives.

    One such item takes as much room in the states as ``advance`` usual items.
    """

    inputs: tuple[Port, ...]
    advance: PositiveInt = 1


@dataclass(frozen=True)
class Wiring:
    """A pipeline without its programs: all ports, and the connections between them.

    States are neither inputs nor outputs of the pipeline. ``initial`` has, by input, the initial
    values of the states that do not begin at zero. ``steps`` is how many items a stream may have
    before its states are full, if known. ``variants`` has the other shapes of items, by name; the
    ports have the shapes of usual items.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    stages: tuple[StageSpec, ...]
    connections: tuple[Connection, ...]
    initial: Mapping[str, Any] = field(default_factory=dict, compare=False)
    steps: int | None = None
    variants: Mapping[str, Variant] = field(default_factory=dict)

    @property
    def first_states(self) -> dict[str, Any]:
        """The initial value of each state, by its input. Arrays of zeros are read-only."""
        states = [state for stage in self.stages for state in stage.states]
        zeros = {s.input: np.broadcast_to(np.zeros((), dtype_of(s.dtype)), s.shape) for s in states}
        return {name: self.initial.get(name, zero) for name, zero in zeros.items()}


def wire(
    graph: FusedGraph, stages: Sequence[Sequence[int]], outputs: Iterable[tuple[str, str]]
) -> Wiring:
    """The wiring of a legal split; ``outputs`` pairs each model output with its tensor.

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
    specs = [_spec(graph, i, ops, results, unread) for i, ops in enumerate(stages)]
    state_inputs = {state.input for state in graph.states}
    state_outputs = {state.output for state in graph.states}
    # The caller neither gives nor gets states.
    visible = [(name, tensor) for name, tensor in outputs if name not in state_outputs]
    states: dict[int, list[StageState]] = {}
    for state in graph.states:
        port = _port(graph, state.input)
        successor = StageState(port.name, state.tensor, port.shape, port.dtype)
        states.setdefault(_stage_of(graph, specs, state), []).append(successor)
    inputs = [_port(graph, name) for name in graph.inputs if name not in state_inputs]
    return Wiring(
        inputs=tuple(inputs),
        outputs=tuple(_port(graph, tensor, name) for name, tensor in visible),
        stages=tuple(replace(s, states=tuple(states.get(s.index, ()))) for s in specs),
        connections=connections_of(inputs, specs, visible),
    )


def _stage_of(graph: FusedGraph, stages: Sequence[StageSpec], state: State) -> int:
    """The one stage that reads and renews a state. Raises SplitError if there is no such stage."""
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

    Its inputs are the tensors produced outside, its outputs those read outside. If nobody reads
    the results of the set, they all are outputs.
    """
    spec = _spec(graph, 0, ops, {tensor for _, tensor in outputs})
    if not spec.outputs:
        results = [t for i in ops for t in graph.ops[i].outputs]
        spec = replace(spec, outputs=tuple(_port(graph, t) for t in results))
    names = [(port.name, port.name) for port in spec.outputs]
    return Wiring(spec.inputs, spec.outputs, (spec,), connections_of(spec.inputs, [spec], names))


def _spec(
    graph: FusedGraph,
    index: int,
    ops: Sequence[int],
    results: set[str],
    unread: Mapping[str, int | None] = MappingProxyType({}),
) -> StageSpec:
    """A planned stage; ``results`` are the tensors that are model outputs.

    ``unread`` maps each input that no op reads to the op whose stage has this input nevertheless.
    """
    inside = set(ops)
    inputs: dict[str, Port] = {}
    outputs: list[Port] = []
    for i in ops:
        for tensor in graph.ops[i].inputs:
            if graph.tensors[tensor].producer not in inside:
                inputs[tensor] = _port(graph, tensor)
        for tensor in graph.ops[i].outputs:
            # A tensor that only ops of this stage read is not an output.
            if tensor in results or not inside.issuperset(graph.tensors[tensor].consumers):
                outputs.append(_port(graph, tensor))
    inputs |= {name: _port(graph, name) for name, op in unread.items() if op in inside}
    return StageSpec.planned([graph.ops[i] for i in ops], inputs.values(), outputs, index)


def _port(graph: FusedGraph, tensor: str, name: str | None = None) -> Port:
    return Port(name or tensor, graph.tensors[tensor].shape, graph.tensors[tensor].dtype)


def connections_of(
    inputs: Iterable[Port], stages: Sequence[StageSpec], outputs: Iterable[tuple[str, str]]
) -> tuple[Connection, ...]:
    """The connections, which follow from the names of the ports; ``outputs`` as for ``wire``."""
    # The caller sends an input under its own name.
    sources: dict[str, tuple[int, int] | str] = {port.name: port.name for port in inputs}
    readers: dict[str, list[int]] = {}
    results: dict[str, list[str]] = {}
    for index, stage in enumerate(stages):
        sources |= {port.name: (index, place) for place, port in enumerate(stage.outputs)}
        for name in {port.name for port in stage.inputs}.difference(s.input for s in stage.states):
            readers.setdefault(name, []).append(index)
    for output, tensor in outputs:
        results.setdefault(tensor, []).append(output)
    return tuple(
        Connection(tensor, source, tuple(readers.get(tensor, ())), tuple(results.get(tensor, ())))
        for tensor, source in sources.items()
        if tensor in readers or tensor in results
    )


@dataclass(frozen=True)
class Edges:
    """Where the tensors of each sender go; a sender is a stage or CALLER.

    ``readers`` has, by sender and reading stage, pairs of positions: of a tensor at the sender, and
    among the inputs of the reader. ``senders`` counts, for each stage, the senders that it reads
    from. ``outputs`` has, by sender, the model outputs with their positions at the sender.
    """

    readers: Mapping[int, Mapping[int, Sequence[tuple[int, int]]]]
    senders: tuple[int, ...]
    outputs: Mapping[int, Sequence[tuple[str, int]]]


def connect(wiring: Wiring) -> Edges:
    """The edges of a wiring. A stage without inputs waits for the caller, to begin each item."""
    stages = range(len(wiring.stages))
    positions = [{port.name: i for i, port in enumerate(s.inputs)} for s in wiring.stages]
    input_index = {port.name: i for i, port in enumerate(wiring.inputs)}
    readers: dict[int, dict[int, list[tuple[int, int]]]] = {s: {} for s in (CALLER, *stages)}
    outputs: dict[int, list[tuple[str, int]]] = {s: [] for s in (CALLER, *stages)}
    for connection in wiring.connections:
        if isinstance(connection.source, str):
            sender, index = CALLER, input_index[connection.source]
        else:
            sender, index = connection.source
        outputs[sender] += [(name, index) for name in connection.outputs]
        for reader in connection.stages:
            pair = index, positions[reader][connection.tensor]
            readers[sender].setdefault(reader, []).append(pair)
    for stage in stages:
        if not any(stage in of_sender for of_sender in readers.values()):
            readers[CALLER][stage] = []
    senders = (sum(stage in of_sender for of_sender in readers.values()) for stage in stages)
    return Edges(readers, tuple(senders), outputs)
