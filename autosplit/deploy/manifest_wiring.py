"""The wiring of a manifest, checked: every input has exactly one source, which comes before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from autosplit.deploy.manifest import ConnectionPart, Manifest, ToOutput
from autosplit.errors import ConfigError
from autosplit.hardware.execution.batches import of_batch
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.execution.wiring import Wiring, connections_of


def wired(document: Manifest) -> Wiring:
    """The wiring of a manifest for a whole batch, as it is run.

    Raises ConfigError where connections or states do not fit the stages.
    """
    for position, stage in enumerate(document.stages):
        # Connections refer to stages by their positions.
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
    ours = [(port.name, port.dtype) for port in document.model.inputs]
    for name, variant in document.model.variants.items():
        if [(port.name, port.dtype) for port in variant.inputs] != ours:
            raise _misfit(f"variant '{name}' has other inputs than the model")
    results = [
        (end.output, part.tensor)
        for part in document.connections
        for end in part.to
        if isinstance(end, ToOutput)
    ]
    inputs = of_batch(document.model.inputs, document.batch)
    wiring = Wiring(
        inputs,
        of_batch(document.model.outputs, document.batch),
        document.stages,
        connections_of(inputs, document.stages, results),
        steps=document.model.steps,
        variants=document.model.variants,
    )
    _check_ports(wiring, results)
    for part, connection in zip_longest(document.connections, wiring.connections):
        if not (part and connection) or ConnectionPart.of(connection, part.bytes) != part:
            what = f"the connection of tensor '{(part or connection).tensor}'"
            raise _misfit(f"{what} does not fit the inputs and outputs of the stages")
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


def _check_ports(wiring: Wiring, results: Sequence[tuple[str, str]]) -> None:
    """Raises ConfigError unless every tensor that is read is produced exactly once, before that.

    ``results`` pairs each output of the model with its tensor.
    """
    names, tensor_of = [port.name for port in wiring.outputs], dict(results)
    if sorted(names) != sorted(name for name, _ in results):
        connected = ", ".join(name for name, _ in results) or "none"
        raise _misfit(f"the model's outputs are {', '.join(names)}, those connected {connected}")
    produced = Counter(wiring.inputs)
    for stage in wiring.stages:
        states = {state.input for state in stage.states}
        reads = [port for port in stage.inputs if port.name not in states]
        _require_produced(f"stage {stage.index}", reads, produced)
        produced.update(stage.outputs)
    ends = [replace(port, name=tensor_of[port.name]) for port in wiring.outputs]
    _require_produced("the model's output", ends, produced)
    inputs = (stage.inputs for stage in wiring.stages)
    for ports in (produced.elements(), wiring.outputs, *inputs):
        for name, times in Counter(port.name for port in ports).items():
            if times > 1:
                raise _misfit(f"'{name}' is listed {times} times")


def _require_produced(reader: str, ports: Iterable[Port], produced: Container[Port]) -> None:
    for port in ports:
        if port not in produced:
            tensor = f"'{port.name}', {port.dtype}{list(port.shape)}"
            raise _misfit(f"{reader} reads {tensor}, which nothing before it produces")


def _misfit(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; export the split again")
