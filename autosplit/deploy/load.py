"""The running pipeline of an exported split, without model file, study and compiler."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.manifest import Manifest, StagePart, ports_of
from autosplit.deploy.private_copy import copy_checked
from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.hardware.codegen.target import architecture, target_of
from autosplit.hardware.devices import device, processor
from autosplit.hardware.devices.device import Device, Rpc
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.runtimes.interface import Stage
from autosplit.hardware.runtimes.registry import TVM, load_stage
from autosplit.versions import require_pair


def load(
    folder: str | Path, devices: Sequence[str] = (), depth: int = 2, trace: bool = False
) -> Pipeline:
    """The pipeline of an exported folder, or of a manifest.

    It runs on ``devices``, else on those it was exported for; where this machine lacks one of those
    cores, its local stages take the cores there are. A stage for a server is sent there. An export
    is code: load only what you would run. Raises ConfigError for a damaged or miswired folder,
    MachineError for a stage of another architecture or processor, a server that is not there, and
    a file that does not load.
    """
    file = manifest_file.locate(Path(folder))
    document = manifest_file.read(file)
    while True:
        try:
            return _pipeline(document, file.parent, devices, depth, trace)
        except ConfigError:
            # Another process may have replaced the export since its manifest was read.
            latest = manifest_file.read(file)
            if latest == document:
                raise
            document = latest


def place_stages(document: Manifest, devices: Sequence[str] = ()) -> tuple[Device, ...]:
    """The device of each stage here: of ``devices``, of the manifest, or the cores there are."""
    if devices:
        return device.along(len(document.stages), devices)
    try:
        return device.with_copies([device.parse(s.device) for s in document.stages])
    except MachineError:
        cores = iter(device.along(len(document.stages)))
        places = []
        for stage in document.stages:
            # A core of the other machine is any core here; a server is the same from everywhere.
            is_local = stage.device.startswith("cores:")
            places.append(next(cores) if is_local else device.parse(stage.device))
        return device.with_copies(places)


def require_target(document: Manifest, stage: StagePart) -> None:
    """Raises MachineError where this machine cannot run the code of a stage."""
    here = platform.machine()
    target = target_of(stage.target or document.environment.get("target"))
    if stage.target:
        exported_for = architecture(target.host or target)
    else:
        exported_for = document.environment.get("architecture", here)
    if exported_for != here:
        raise MachineError(
            f"the split was exported for {exported_for}, this machine is {here}; export it there"
        )
    missing = processor.missing_features(target.host or target) if stage.runtime == TVM else ()
    if missing:
        raise MachineError(
            f"the split was exported for {target.attrs.get('mcpu', target.kind.name)}, this "
            f"processor lacks {', '.join(missing)}; "
            "export it on this machine or for an older processor"
        )


def _pipeline(
    document: Manifest, folder: Path, devices: Sequence[str], depth: int, trace: bool
) -> Pipeline:
    wiring = document.wiring()
    places = place_stages(document, devices)
    if any(stage.runtime == TVM for stage in document.stages):
        # With an ffi package of another version TVM may crash the process when it loads a library.
        require_pair()
        for stage, place in zip(document.stages, places, strict=True):
            # A server's processor is not known here; loading there says what is wrong.
            if not isinstance(place, Rpc):
                require_target(document, stage)
    stages: list[Stage] = []
    # What is loaded stays in memory, so the copies can go once every stage is loaded.
    with tempfile.TemporaryDirectory(prefix="autosplit-load-") as private:
        try:
            copies = [_copy_stage(folder, stage, Path(private)) for stage in document.stages]
            for copy, stage, place in zip(copies, document.stages, places, strict=True):
                stages.append(_load(copy, stage, place))
        except BaseException:
            for loaded in stages:
                loaded.close()
            raise
    return Pipeline(wiring, [[stage] for stage in stages], depth, trace)


def _copy_stage(folder: Path, stage: StagePart, private: Path) -> Path:
    """A private copy of the stage's file, with the file of weights beside it."""
    # Where the stage file is the ONNX model itself, its weights may lie beside it.
    if stage.onnx and stage.onnx.file == stage.file and stage.onnx.data:
        copy_checked(folder, stage.onnx.data, stage.onnx.data_sha256 or "", private)
    return copy_checked(folder, stage.file, stage.sha256, private)


def _load(file: Path, stage: StagePart, place: Device) -> Stage:
    inputs, outputs = ports_of(stage.inputs), ports_of(stage.outputs)
    try:
        return load_stage(stage.runtime, file, stage.sha256, inputs, outputs, place)
    except (ConfigError, MachineError):
        raise
    except Exception as error:
        reason = line_of(error, last=True)
        runtime = {TVM: "TVM"}.get(stage.runtime, stage.runtime)
        raise MachineError(
            f"'{file.name}' does not load with this {runtime}: {reason}; see `autosplit doctor`"
        ) from error
