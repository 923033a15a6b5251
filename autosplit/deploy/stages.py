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
from autosplit.hardware.runtimes.interface import Stage
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
    places = [on_its_machine(r.device) for stage in document.stages for r in stage.replicas]
    here = [device.parse(name, anywhere=True) for name in places]
    replicas = [(stage, replica) for stage in document.stages for replica in stage.replicas]
    try:
        for place, (stage, replica) in zip(here, replicas, strict=True):
            if isinstance(place, Cuda):
                place.tvm_device()
            if not isinstance(place, Rpc):
                stage_file(document, stage, replica).require_here()
        with reached(here):
            pass
    except MachineError as error:
        return str(error)
    return None


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
    files = [[stage_file(document, s, replica) for replica in s.replicas] for s in document.stages]
    for file, place in zip(chain(*files), chain(*places), strict=True):
        # A server's processor is not known here; loading there says what is wrong.
        if not isinstance(place, Rpc):
            file.require_here()
    digests = dict(chain(*(file.digests.items() for file in chain(*files))))
    for name, digest in digests.items():
        checked(folder, name, digest)
    loaded: list[list[Stage]] = []
    try:
        for replica_files, replica_places in zip(files, places, strict=True):
            loaded.append([])
            pairs = zip(replica_files, replica_places, strict=True)
            # Replicas with the same file, as most have, may share what is loaded.
            for file, same in groupby(pairs, key=itemgetter(0)):
                loaded[-1] += file.load(folder, [place for _, place in same])
    except BaseException:
        for replica_stage in chain.from_iterable(loaded):
            replica_stage.close()
        raise
    return loaded
