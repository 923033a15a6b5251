"""The wiring of a manifest, checked: every input is fed exactly once, by something before it."""

from __future__ import annotations

from collections import Counter

from autosplit.deploy.manifest import Manifest
from autosplit.errors import ConfigError
from autosplit.hardware.execution.batches import of_batch
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.execution.wiring import Wiring

# An input of the model by its name; a stage and the name of its input or the position of its
# output; an output of the model by its name, without a stage.
_Place = str | tuple[int | None, str | int]


def wired(document: Manifest) -> Wiring:
    """The wiring to run, that of a whole batch.

    Raises ConfigError where connections or states do not fit the stages.
    """
    for position, stage in enumerate(document.stages):
        # Connections number the stages by their places.
        if stage.index != position:
            raise _misfit(f"stage {stage.index} is listed at position {position}")
        _check_states(stage)
    names = [state.input for stage in document.stages for state in stage.states]
    if sorted(names) != sorted(document.model.states):
        raise _misfit(
            f"the stages have the states {', '.join(names) or 'none'}, the model "
            f"{', '.join(document.model.states) or 'none'}"
        )
    if (names or document.model.variants) and document.batch > 1:
        what = "state" if names else "variants"
        raise _misfit(f"a batch of {document.batch} items has no {what}")
    for name, variant in document.model.variants.items():
        ours, theirs = (
            [(port.name, port.dtype) for port in inputs]
            for inputs in (document.model.inputs, variant.inputs)
        )
        if ours != theirs:
            raise _misfit(f"variant '{name}' has other inputs than the model")
    wiring = Wiring(
        of_batch(document.model.inputs, document.batch),
        of_batch(document.model.outputs, document.batch),
        document.stages,
        tuple(connection.connection() for connection in document.connections),
        steps=document.model.steps,
        variants=document.model.variants,
    )
    _check_connections(wiring)
    return wiring


def _check_states(stage: StageSpec) -> None:
    for state in stage.states:
        before = Port(state.input, state.shape, state.dtype)
        after = Port(state.output, state.shape, state.dtype)
        if before not in stage.inputs or after not in stage.outputs:
            raise _misfit(
                f"stage {stage.index} has no ports of one shape and type for its state "
                f"'{state.input}'"
            )


def _check_connections(wiring: Wiring) -> None:
    sources: list[tuple[_Place, Port]] = [(port.name, port) for port in wiring.inputs]
    ends: list[tuple[_Place, Port]] = [((None, port.name), port) for port in wiring.outputs]
    fed: Counter[_Place] = Counter()
    for number, stage in enumerate(wiring.stages):
        sources += [((number, place), port) for place, port in enumerate(stage.outputs)]
        ends += [((number, port.name), port) for port in stage.inputs]
        fed.update((number, state.input) for state in stage.states)
    for place, times in Counter(place for place, _ in sources + ends).items():
        if times > 1:
            raise _misfit(f"{_text(place)} is listed {times} times")
    port_of = dict(sources + ends)
    for connection in wiring.connections:
        tensor, source = f"tensor '{connection.tensor}'", connection.source
        readers: list[_Place] = [(stage, connection.tensor) for stage in connection.stages]
        readers += [(None, name) for name in connection.outputs]
        if source not in port_of:
            raise _misfit(f"{tensor} comes from {_text(source)}, which does not exist")
        for end in readers:
            if end not in port_of:
                raise _misfit(f"{tensor} goes to {_text(end)}, which does not exist")
            _check_types(tensor, port_of[source], port_of[end])
        # A stage that waits for a later one would wait for ever.
        first = min(connection.stages, default=len(wiring.stages))
        if not isinstance(source, str) and source[0] >= first:
            raise _misfit(f"{tensor} goes backwards, from stage {source[0]} to {first}")
        fed.update(readers)
    for end, _ in ends:
        if fed[end] != 1:
            raise _misfit(f"{_text(end)} has {fed[end]} sources instead of one")


def _check_types(tensor: str, produced: Port, read: Port) -> None:
    if (produced.shape, produced.dtype) != (read.shape, read.dtype):
        raise _misfit(
            f"{tensor} is {produced.dtype}{list(produced.shape)} where it is produced and "
            f"{read.dtype}{list(read.shape)} where it is read"
        )


def _text(place: _Place) -> str:
    """``input 'x' of stage 1``, or ``output 'y'`` of the model."""
    if isinstance(place, str):
        return f"input {place!r}"
    stage, port = place
    if stage is None:
        return f"output {port!r}"
    return f"{'output' if isinstance(port, int) else 'input'} {port!r} of stage {stage}"


def _misfit(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; export the split again")
