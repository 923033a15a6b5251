"""The wiring of a manifest, checked: every input is fed exactly once, by something before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autosplit.deploy.manifest import (
    ConnectionPart,
    FromInput,
    FromStage,
    Manifest,
    StagePart,
    ToOutput,
    ToStage,
)
from autosplit.errors import ConfigError
from autosplit.hardware.execution.batches import of_batch
from autosplit.hardware.execution.wiring import Port, StagePorts, StageState, Wiring

_Place = FromInput | FromStage | ToStage | ToOutput


def wired(document: Manifest) -> Wiring:
    """The wiring to run, that of a whole batch.

    Raises ConfigError where connections or states do not fit the stages.
    """
    for position, stage in enumerate(document.stages):
        # Connections number the stages by their places.
        if stage.index != position:
            raise _misfit(f"stage {stage.index} is listed at position {position}")
    states = [state for stage in document.stages for state in _states(stage)]
    names = [state.port.name for state in states]
    if sorted(names) != sorted(document.model.states):
        raise _misfit(
            f"the stages have the states {', '.join(names) or 'none'}, the model "
            f"{', '.join(document.model.states) or 'none'}"
        )
    if states and document.batch > 1:
        raise _misfit(f"a batch of {document.batch} items has no state")
    inputs = of_batch(document.model.inputs, document.batch)
    outputs = of_batch(document.model.outputs, document.batch)
    _check_connections(document, inputs, outputs, states)
    return Wiring(
        inputs,
        outputs,
        tuple(StagePorts((), stage.inputs, stage.outputs) for stage in document.stages),
        tuple(connection.connection() for connection in document.connections),
        tuple(states),
        document.model.steps,
    )


def _states(stage: StagePart) -> list[StageState]:
    states = []
    for part in stage.states:
        before = Port(part.input, part.shape, part.dtype)
        after = Port(part.output, part.shape, part.dtype)
        if before not in stage.inputs or after not in stage.outputs:
            raise _misfit(
                f"stage {stage.index} has no ports of one shape and type for its state "
                f"'{part.input}'"
            )
        places = stage.inputs.index(before), stage.outputs.index(after)
        states.append(StageState(stage.index, *places, before))
    return states


def _check_connections(
    document: Manifest, inputs: Sequence[Port], outputs: Sequence[Port], states: list[StageState]
) -> None:
    sources: list[tuple[_Place, Port]] = []
    ends: list[tuple[_Place, Port]] = []
    sources += [(FromInput(input=port.name), port) for port in inputs]
    ends += [(ToOutput(output=port.name), port) for port in outputs]
    for number, stage in enumerate(document.stages):
        produced = enumerate(stage.outputs)
        sources += [(FromStage(stage=number, output=place), port) for place, port in produced]
        ends += [(ToStage(stage=number, input=port.name), port) for port in stage.inputs]
    port_of = dict(sources + ends)
    for place, times in Counter(place for place, _ in sources + ends).items():
        if times > 1:
            raise _misfit(f"{_text(place)} is listed {times} times")
    times_fed = Counter[_Place](ToStage(stage=s.stage, input=s.port.name) for s in states)
    for connection in document.connections:
        for end in (connection.source, *connection.to):
            _check_end(connection, end, port_of)
        times_fed.update(connection.to)
    for end, _ in ends:
        if times_fed[end] != 1:
            raise _misfit(f"{_text(end)} has {times_fed[end]} sources instead of one")


def _check_end(connection: ConnectionPart, end: _Place, port_of: dict[_Place, Port]) -> None:
    source, tensor = connection.source, f"tensor '{connection.tensor}'"
    if end not in port_of:
        way = "comes from" if end == source else "goes to"
        raise _misfit(f"{tensor} {way} {_text(end)}, which does not exist")
    if isinstance(end, ToStage) and end.input != connection.tensor:
        raise _misfit(f"{tensor} is read as '{end.input}'")
    # A stage that waits for a later one would wait for ever.
    if isinstance(source, FromStage) and isinstance(end, ToStage) and source.stage >= end.stage:
        raise _misfit(f"{tensor} goes backwards, from stage {source.stage} to {end.stage}")
    produced, read = port_of[source], port_of[end]
    if (produced.shape, produced.dtype) != (read.shape, read.dtype):
        raise _misfit(
            f"{tensor} is {produced.dtype}{list(produced.shape)} where it is produced and "
            f"{read.dtype}{list(read.shape)} where it is read"
        )


def _text(place: _Place) -> str:
    """``input 'x' of stage 1``, or ``output 'y'`` of the model."""
    stage = f" of stage {place.stage}" if isinstance(place, FromStage | ToStage) else ""
    side = "input" if isinstance(place, FromInput | ToStage) else "output"
    return f"{side} {getattr(place, side)!r}{stage}"


def _misfit(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; export the split again")
