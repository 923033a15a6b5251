"""The stages of an export: where they run, whether this machine can run them, and loading them."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from autosplit.deploy.manifest import Manifest, ReplicaPart, StagePart, ports_of
from autosplit.deploy.private_copy import copy_checked
from autosplit.deployment import cores_of
from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.hardware.codegen.target import architecture, target_of
from autosplit.hardware.devices import device, processor
from autosplit.hardware.devices.device import Device, Rpc
from autosplit.hardware.runtimes.interface import Stage
from autosplit.hardware.runtimes.registry import TVM, load_stage
from autosplit.units import counted
from autosplit.versions import require_pair


def place_replicas(
    document: Manifest, devices: Sequence[str] = ()
) -> tuple[tuple[Device, ...], ...]:
    """The devices of the replicas of each stage.

    They are from ``devices``, from the manifest, or the cores there are.
    """
    names = [replica.device for stage in document.stages for replica in stage.replicas]
    if devices and len(devices) != len(names):
        raise ConfigError(
            f"the export has {counted(len(names), 'replica')}, "
            f"but {counted(len(devices), 'device')} are given; give one a replica"
        )
    try:
        places = [device.parse(name) for name in devices or names]
    except MachineError:
        if devices:
            raise
        cores = iter(device.along(len(names)))
        # A core of the other machine is any core here; a server is the same from everywhere.
        places = [next(cores) if cores_of(name) else device.parse(name) for name in names]
    placed = iter(device.with_copies(places))
    return tuple(tuple(next(placed) for _ in stage.replicas) for stage in document.stages)


def require_target(document: Manifest, stage: StagePart, replica: ReplicaPart) -> None:
    """Raises MachineError where this machine cannot run the code of a replica."""
    here = platform.machine()
    target = target_of(replica.target or document.environment.get("target"))
    if replica.target:
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


def load_replicas(
    document: Manifest, folder: Path, places: Sequence[Sequence[Device]]
) -> list[list[Stage]]:
    """The replicas of each stage, loaded on their ``places``; raises as ``load``."""
    if any(stage.runtime == TVM for stage in document.stages):
        # With an ffi package of another version TVM may crash the process when it loads a library.
        require_pair()
        for stage, stage_places in zip(document.stages, places, strict=True):
            for replica, place in zip(stage.replicas, stage_places, strict=True):
                # A server's processor is not known here; loading there says what is wrong.
                if not isinstance(place, Rpc):
                    require_target(document, stage, replica)
    loaded: list[list[Stage]] = []
    # What is loaded stays in memory, so the copies can go once every stage is loaded.
    with tempfile.TemporaryDirectory(prefix="autosplit-load-") as private:
        try:
            for name, sha256 in chain.from_iterable(map(run_files, document.stages)):
                copy_checked(folder, name, sha256, Path(private))
            for stage, stage_places in zip(document.stages, places, strict=True):
                loaded.append([])
                for replica, place in zip(stage.replicas, stage_places, strict=True):
                    loaded[-1].append(_load(Path(private), stage, replica, place))
        except BaseException:
            for replica_stage in chain.from_iterable(loaded):
                replica_stage.close()
            raise
    return loaded


def run_files(stage: StagePart) -> Iterator[tuple[str, str]]:
    """Name and sha256 of the files that the replicas of a stage run."""
    # Where the stage file is the ONNX model itself, its weights may lie beside it.
    if stage.onnx and stage.onnx.file == stage.file and stage.onnx.data:
        yield stage.onnx.data, stage.onnx.data_sha256 or ""
    yield stage.file, stage.sha256
    for replica in stage.replicas:
        if replica.file:
            yield replica.file, replica.sha256 or ""


def _load(private: Path, stage: StagePart, replica: ReplicaPart, place: Device) -> Stage:
    inputs, outputs = ports_of(stage.inputs), ports_of(stage.outputs)
    file = private / (replica.file or stage.file)
    digest = replica.sha256 if replica.file else stage.sha256
    try:
        return load_stage(stage.runtime, file, digest or "", inputs, outputs, place)
    except (ConfigError, MachineError):
        raise
    except Exception as error:
        reason = line_of(error, last=True)
        runtime = {TVM: "TVM"}.get(stage.runtime, stage.runtime)
        raise MachineError(
            f"'{file.name}' does not load with this {runtime}: {reason}; see `autosplit doctor`"
        ) from error
