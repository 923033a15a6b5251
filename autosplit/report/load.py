"""Running an exported split: no model file, no study, no compiler; every file is checked before it is loaded."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from autosplit.errors import ConfigError, MachineError
from autosplit.hardware import cache
from autosplit.hardware import devices as device
from autosplit.hardware.devices import Cores
from autosplit.hardware.pipeline import Pipeline
from autosplit.hardware.stage import VmStage
from autosplit.report import manifest
from autosplit.report.manifest import Manifest
from autosplit.versions import require_pair


def load(folder: Path, devices: Sequence[str] = (), depth: int = 2, trace: bool = False) -> Pipeline:
    """The pipeline of an exported folder, or of a manifest, on the devices it was made for, or on ``devices``.

    Where this machine lacks a core the split was made for, its stages take the cores there are. Raises ConfigError for a
    damaged or miswired folder, MachineError for one made on another architecture or whose files do not load.
    """
    require_pair()
    document = manifest.read(folder)
    folder = folder if folder.is_dir() else folder.parent
    wiring = document.wiring()
    _check_architecture(document)
    cores = _devices(document, devices)
    files = [checked(folder, s.file, s.sha256) for s in document.stages]
    stages = [_stage(file, core) for file, core in zip(files, cores, strict=True)]
    return Pipeline(wiring, stages, depth, trace)


def checked(folder: Path, name: str, sha256: str) -> Path:
    """The path of a file of the export whose content is the one recorded. Raises ConfigError otherwise."""
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"'{name}' leads out of the folder '{folder}'; export the split again")
    if not file.is_file():
        raise ConfigError(f"'{file}' is missing; export the split again")
    found = cache.sha256(file)
    if found != sha256:
        raise ConfigError(
            f"'{file}' has sha256 {found[:12]}…, recorded is {sha256[:12]}…; it was changed, export it again"
        )
    return file


def _check_architecture(document: Manifest) -> None:
    made = document.environment.get("architecture", platform.machine())
    if made != platform.machine():
        raise MachineError(f"the split was exported for {made}, this machine is {platform.machine()}; export it there")


def _devices(document: Manifest, given: Sequence[str]) -> tuple[Cores, ...]:
    if given:
        return device.along(len(document.stages), given)
    try:
        return tuple(device.parse(s.device) for s in document.stages)
    except MachineError:
        return device.along(len(document.stages))


def _stage(file: Path, cores: Cores) -> VmStage:
    import tvm

    try:
        return VmStage(tvm.runtime.load_module(str(file)), cores)
    except Exception as error:
        reason = str(error).strip().splitlines()[-1]
        raise MachineError(f"'{file.name}' does not load with this TVM: {reason}; see `autosplit doctor`") from error
