"""Running an exported split: no model file, no study, no compiler; every file is checked before it is loaded."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from autosplit import files
from autosplit.deploy import manifest
from autosplit.deploy.manifest import Manifest, StagePart
from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.hardware.codegen.target import architecture, target_of
from autosplit.hardware.devices import device, processor
from autosplit.hardware.devices.device import Device, Rpc
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.runtimes.runtime import ONNXRUNTIME, TVM, load_stage
from autosplit.hardware.runtimes.stage import Stage
from autosplit.versions import require_pair


def load(
    folder: str | Path, devices: Sequence[str] = (), depth: int = 2, trace: bool = False
) -> Pipeline:
    """The pipeline of an exported folder, or of a manifest, on the devices it was made for, or on ``devices``.

    Where this machine lacks a core the split was made for, its stages take the cores there are. A stage for a server is
    sent there. Raises ConfigError for a damaged or miswired folder, MachineError for a stage on this machine that was made
    for another architecture or for a processor that can do more, for a server that is not there, and where files do not load.
    """
    folder = Path(folder)
    document = manifest.read(folder)
    folder = folder if folder.is_dir() else folder.parent
    wiring = document.wiring()
    places = placed(document, devices)
    if any(s.runtime == TVM for s in document.stages):
        require_pair()
        for stage, device in zip(document.stages, places, strict=True):
            if not isinstance(device, Rpc):
                _check_target(document, stage)
    stage_files = [_stage_file(folder, s) for s in document.stages]
    stages: list[Stage] = []
    try:
        for file, s, device in zip(stage_files, document.stages, places, strict=True):
            stages.append(_stage(file, s, device))
    except BaseException:
        for made in stages:
            made.close()
        raise
    return Pipeline(wiring, stages, depth, trace)


def checked(folder: Path, name: str, sha256: str) -> Path:
    """The path of a file of the export whose content is the one recorded. Raises ConfigError otherwise."""
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"'{name}' leads out of the folder '{folder}'; export the split again")
    if not file.is_file():
        raise ConfigError(f"'{file}' is missing; export the split again")
    found = files.sha256(file)
    if found != sha256:
        raise ConfigError(
            f"'{file}' has sha256 {found[:12]}…, recorded is {sha256[:12]}…; it was changed, export it again"
        )
    return file


def _stage_file(folder: Path, stage: StagePart) -> Path:
    """The stage's file, checked with the file of weights beside it."""
    if stage.runtime == ONNXRUNTIME and stage.onnx and stage.onnx.data:
        checked(folder, stage.onnx.data, stage.onnx.data_sha256 or "")
    return checked(folder, stage.file, stage.sha256)


def _check_target(document: Manifest, stage: StagePart) -> None:
    """Raises MachineError where this machine cannot run the code of a stage."""
    here = platform.machine()
    target = target_of(stage.target or document.environment.get("target"))
    made = (
        document.environment.get("architecture", here)
        if not stage.target
        else architecture(target.host or target)
    )
    if made != here:
        raise MachineError(
            f"the split was exported for {made}, this machine is {here}; export it there"
        )
    if stage.runtime == TVM and (missing := processor.lacking(target.host or target)):
        raise MachineError(
            f"the split was exported for {target.attrs.get('mcpu', target.kind.name)}, this processor lacks "
            f"{', '.join(missing)}; export it on this machine or for an older processor"
        )


def placed(document: Manifest, given: Sequence[str] = ()) -> tuple[Device, ...]:
    """Where each stage runs here: on ``given``, where the split was made for, or on the cores there are."""
    if given:
        return device.along(len(document.stages), given)
    cores = iter(device.along(len(document.stages)))
    try:
        return device.apart([device.parse(s.device) for s in document.stages])
    except MachineError:
        remote = [
            None if s.device.startswith("cores:") else device.parse(s.device)
            for s in document.stages
        ]
        return device.apart([d or next(cores) for d in remote])


def _stage(file: Path, stage: StagePart, on: Device) -> Stage:
    inputs, outputs = ([p.port() for p in ports] for ports in (stage.inputs, stage.outputs))
    try:
        return load_stage(stage.runtime, file, stage.sha256, inputs, outputs, on)
    except (ConfigError, MachineError):
        raise
    except Exception as error:
        reason = line_of(error, last=True)
        runtime = {TVM: "TVM"}.get(stage.runtime, stage.runtime)
        raise MachineError(
            f"'{file.name}' does not load with this {runtime}: {reason}; see `autosplit doctor`"
        ) from error
