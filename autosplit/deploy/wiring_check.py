"""Whether connections fit stages: every input is fed exactly once, by something before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autosplit.errors import ConfigError
from autosplit.hardware.execution.wiring import Connection, Port, Wiring

_MODEL = -1  # stands for the model where stages are numbered


def check_wiring(wiring: Wiring) -> None:
    """Raises ConfigError naming the first tensor, stage or output that does not fit."""
    for number, stage in enumerate(wiring.stages):
        _require_unique_names(stage.inputs, f"stage {number} has two inputs")
    _require_unique_names(wiring.inputs, "the model has two inputs")
    _require_unique_names(wiring.outputs, "the model has two outputs")
    times_fed: Counter[tuple[int, str]] = Counter()
    for connection in wiring.connections:
        source = _source(wiring, connection)
        for reader, name in _ends(connection):
            _require_same_type(connection.tensor, source, _end(wiring, connection, reader, name))
            times_fed[reader, name] += 1
    for state in wiring.states:
        times_fed[state.stage, state.port.name] += 1
    for number, stage in enumerate(wiring.stages):
        for port in stage.inputs:
            _require_one(times_fed[number, port.name], f"input '{port.name}' of stage {number}")
    for port in wiring.outputs:
        _require_one(times_fed[_MODEL, port.name], f"output '{port.name}'")


def _ends(connection: Connection) -> list[tuple[int, str]]:
    inputs = [(stage, connection.tensor) for stage in connection.stages]
    return inputs + [(_MODEL, name) for name in connection.outputs]


def _source(wiring: Wiring, connection: Connection) -> Port:
    if isinstance(connection.source, str):
        name = connection.source
        return _named(wiring.inputs, name, f"the model has no input '{name}'")
    stage, output = connection.source
    outputs = wiring.stages[stage].outputs if stage < len(wiring.stages) else ()
    if output >= len(outputs):
        raise ConfigError(
            f"tensor '{connection.tensor}' comes from output {output} of stage {stage}, "
            "which does not exist; export the split again"
        )
    return outputs[output]


def _end(wiring: Wiring, connection: Connection, stage: int, name: str) -> Port:
    if stage == _MODEL:
        return _named(wiring.outputs, name, f"the model has no output '{name}'")
    if stage >= len(wiring.stages):
        raise ConfigError(
            f"tensor '{connection.tensor}' goes to stage {stage}, which does not exist"
        )
    # Items go forward only: a stage that waits for a later one would wait for ever.
    if not isinstance(connection.source, str) and connection.source[0] >= stage:
        raise ConfigError(
            f"tensor '{connection.tensor}' goes backwards, "
            f"from stage {connection.source[0]} to {stage}"
        )
    return _named(wiring.stages[stage].inputs, name, f"stage {stage} has no input '{name}'")


def _named(ports: Sequence[Port], name: str, problem: str) -> Port:
    for port in ports:
        if port.name == name:
            return port
    raise ConfigError(f"{problem}; export the split again")


def _require_unique_names(ports: Sequence[Port], problem: str) -> None:
    for name, times in Counter(port.name for port in ports).items():
        if times > 1:
            raise ConfigError(f"{problem} called '{name}'; export the split again")


def _require_same_type(tensor: str, source: Port, end: Port) -> None:
    if (end.shape, end.dtype) != (source.shape, source.dtype):
        raise ConfigError(
            f"tensor '{tensor}' is {source.dtype}{list(source.shape)} where it is produced and "
            f"{end.dtype}{list(end.shape)} where it is read; export the split again"
        )


def _require_one(times: int, port: str) -> None:
    if times != 1:
        raise ConfigError(f"{port} has {times} sources instead of one; export the split again")
