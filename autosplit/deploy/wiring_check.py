"""Whether the connections of a manifest fit its stages: everything read is fed exactly once, by somebody before it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from autosplit.errors import ConfigError

if TYPE_CHECKING:
    from autosplit.deploy.manifest import ConnectionPart, Manifest, TensorPort


def check(manifest: Manifest) -> None:
    """Raises ConfigError naming the first tensor, stage or output that does not fit."""
    for position, stage in enumerate(manifest.stages):
        if stage.index != position:
            raise ConfigError(
                f"stage {stage.index} stands at place {position}; export the split again"
            )
        _check_names(f"stage {position} has two inputs", stage.inputs)
    _check_names("the model has two inputs", manifest.model.inputs)
    _check_names("the model has two outputs", manifest.model.outputs)
    fed: Counter[tuple[str, object, str]] = Counter()
    for connection in manifest.connections:
        made = _made(manifest, connection)
        for target in connection.to:
            read, key = _read(manifest, connection, target)
            if (read.shape, read.dtype) != (made.shape, made.dtype):
                raise ConfigError(
                    f"tensor '{connection.tensor}' is {made.dtype}{list(made.shape)} where it is made and "
                    f"{read.dtype}{list(read.shape)} where it is read; export the split again"
                )
            fed[key] += 1
    wanted: list[tuple[str, object, str]] = [
        ("stage", s.index, p.name) for s in manifest.stages for p in s.inputs
    ]
    wanted += [("model", None, p.name) for p in manifest.model.outputs]
    for key in wanted:
        if fed[key] != 1:
            what = (
                f"input '{key[2]}' of stage {key[1]}" if key[0] == "stage" else f"output '{key[2]}'"
            )
            raise ConfigError(
                f"{what} is fed {fed[key]} times instead of once; export the split again"
            )


def _check_names(problem: str, ports: tuple[TensorPort, ...]) -> None:
    for name, times in Counter(p.name for p in ports).items():
        if times > 1:
            raise ConfigError(f"{problem} called '{name}'; export the split again")


def _made(manifest: Manifest, connection: ConnectionPart) -> TensorPort:
    from autosplit.deploy.manifest import FromInput

    source = connection.source
    if isinstance(source, FromInput):
        return _port(
            manifest.model.inputs, source.input, f"the model has no input '{source.input}'"
        )
    outputs = manifest.stages[source.stage].outputs if source.stage < len(manifest.stages) else ()
    if source.output >= len(outputs):
        raise ConfigError(
            f"tensor '{connection.tensor}' comes from output {source.output} of stage {source.stage}, "
            f"which does not exist; export the split again"
        )
    return outputs[source.output]


def _read(
    manifest: Manifest, connection: ConnectionPart, target: object
) -> tuple[TensorPort, tuple[str, object, str]]:
    from autosplit.deploy.manifest import FromStage, ToStage

    if not isinstance(target, ToStage):
        name = str(getattr(target, "output", ""))
        return _port(manifest.model.outputs, name, f"the model has no output '{name}'"), (
            "model",
            None,
            name,
        )
    if target.stage >= len(manifest.stages):
        raise ConfigError(
            f"tensor '{connection.tensor}' goes to stage {target.stage}, which does not exist"
        )
    if isinstance(connection.source, FromStage) and connection.source.stage >= target.stage:
        raise ConfigError(
            f"tensor '{connection.tensor}' goes back from stage {connection.source.stage} to {target.stage}"
        )
    if target.input != connection.tensor:
        raise ConfigError(
            f"tensor '{connection.tensor}' is read as '{target.input}'; an input goes by its tensor's name"
        )
    inputs = manifest.stages[target.stage].inputs
    port = _port(inputs, target.input, f"stage {target.stage} has no input '{target.input}'")
    return port, ("stage", target.stage, target.input)


def _port(ports: tuple[TensorPort, ...], name: str, problem: str) -> TensorPort:
    for port in ports:
        if port.name == name:
            return port
    raise ConfigError(f"{problem}; export the split again")
