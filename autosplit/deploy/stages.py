"""The stages of an export: where they run, whether this machine can run them, and loading them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

from autosplit.deploy.export_folder import checked
from autosplit.deploy.manifest import Manifest, ReplicaPart, StagePart
from autosplit.deployment import cores_of, on_its_machine
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Cuda, Device, RayCores, Rpc
from autosplit.hardware.devices.rpc import reached
from autosplit.hardware.runtimes.interface import Stage, closed_on_error
from autosplit.hardware.runtimes.stage_file import StageFile
from autosplit.units import counted


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
    # Only ``on_ray`` runs stages on other nodes.
    here = list(map(on_its_machine, names))
    try:
        places = [device.parse(name) for name in devices or here]
    except MachineError:
        if devices:
            raise
        cores = iter(device.along(len(names)))
        # A core of the other machine is any core here; a server is the same from everywhere.
        places = [next(cores) if cores_of(name) else device.parse(name) for name in here]
    if any(isinstance(place, RayCores) for place in places):
        raise ConfigError(f"device '{devices[0]}' is on a Ray cluster; use `load(folder).on_ray()`")
    placed = iter(device.with_copies(places))
    return tuple(tuple(next(placed) for _ in stage.replicas) for stage in document.stages)


def absent_device(document: Manifest) -> str | None:
    """Why this machine cannot run an export now; None where it can.

    Other cores than those of the manifest may run it, another processor, GPU or server may not.
    """
    places = [
        device.parse(on_its_machine(replica.device), anywhere=True)
        for stage in document.stages
        for replica in stage.replicas
    ]
    try:
        for place, file in zip(places, stage_files(document), strict=True):
            if isinstance(place, Cuda):
                place.tvm_device()
            if not isinstance(place, Rpc):
                file.require_here()
        with reached(places):
            pass
    except MachineError as error:
        return str(error)
    return None


def stage_files(document: Manifest) -> list[StageFile]:
    """What each replica loads, stage by stage."""
    return [stage_file(document, s, replica) for s in document.stages for replica in s.replicas]


def stage_file(document: Manifest, stage: StagePart, replica: ReplicaPart) -> StageFile:
    """What a replica of a stage loads."""
    environment, name = document.environment, replica.file or stage.file
    digests = {name: (replica.sha256 if replica.file else stage.sha256) or ""} | stage.weights
    return StageFile(
        stage.runtime,
        name,
        digests,
        stage.inputs,
        stage.outputs,
        replica.target or environment.get("target"),
        None if replica.target else environment.get("architecture", platform.machine()),
    )


def load_replicas(
    document: Manifest, folder: Path, places: Sequence[Sequence[Device]]
) -> list[list[Stage]]:
    """The replicas of each stage, loaded on their ``places``; raises as ``load``."""
    files = stage_files(document)
    for file, place in zip(files, chain(*places), strict=True):
        # A server's processor is not known here; loading there says what is wrong.
        if not isinstance(place, Rpc):
            file.require_here()
    for name, digest in dict(chain(*(file.digests.items() for file in files))).items():
        checked(folder, name, digest)
    numbers = [stage.index for stage in document.stages for _ in stage.replicas]
    # Replicas with the same file, as most have, may share what is loaded.
    groups = groupby(zip(numbers, files, chain(*places), strict=True), key=itemgetter(0, 1))
    loads = (file.load(folder, [place for *_, place in same]) for (_, file), same in groups)
    loaded = iter(closed_on_error(chain.from_iterable(loads)))
    return [[next(loaded) for _ in stage.replicas] for stage in document.stages]
