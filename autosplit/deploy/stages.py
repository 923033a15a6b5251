"""The stages of an export: where they run, whether this machine can run them, and loading them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, cycle, groupby, islice
from operator import itemgetter
from pathlib import Path

from autosplit.deploy.manifest import Manifest
from autosplit.deployment import on_its_machine
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Cores, Device, LocalDevice, RayCores, Rpc
from autosplit.hardware.devices.rpc import reached
from autosplit.hardware.runtimes.interface import Stage, closed_on_error
from autosplit.hardware.runtimes.stage_files import load_stage, require_here
from autosplit.units import counted


def place_replicas(
    document: Manifest, devices: Sequence[str] = ()
) -> tuple[tuple[Device, ...], ...]:
    """The devices of each stage's replicas: ``devices``, else the manifest's, else cores here."""
    # Only ``on_ray`` runs stages on other nodes.
    names = [on_its_machine(replica.device) for replica in document.replicas]
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
        # Any cores here replace those of the exporting machine, in proportion if there are fewer;
        # a server is reached from anywhere.
        there, here = [device.parse(name, anywhere=True) for name in names], device.available()
        counts = [len(place.numbers) if isinstance(place, Cores) else 0 for place in there]
        shares = [min(count, max(1, count * len(here) // sum(counts))) for count in counts]
        cores, pairs = cycle(here), zip(there, shares, strict=True)
        places = [Cores(tuple(islice(cores, n))) if n else place for place, n in pairs]
    remote = next((place for place in places if isinstance(place, RayCores)), None)
    if remote:
        raise ConfigError(f"device '{remote}' is on a Ray cluster; use `load(folder).on_ray()`")
    placed = iter(device.with_copies(places))
    return tuple(tuple(next(placed) for _ in stage.replicas) for stage in document.stages)


def absent_device(document: Manifest) -> str | None:
    """Why this machine cannot run an export now; None where it can.

    Other cores than those of the manifest may run it, another processor, GPU or server may not.
    """
    names = [on_its_machine(replica.device) for replica in document.replicas]
    places = [device.parse(name, anywhere=True) for name in names]
    try:
        for place in places:
            if isinstance(place, LocalDevice):
                place.tvm_device()
        _require_here(document, places)
        with reached(places):
            pass
    except MachineError as error:
        return str(error)
    return None


def load_replicas(
    document: Manifest, folder: Path, places: Sequence[Sequence[Device]]
) -> list[list[Stage]]:
    """The replicas of each stage, loaded on their ``places``; raises as ``load``."""
    flat = list(chain(*places))
    _require_here(document, flat)
    # Replicas with the same file, as most have, may share a loaded model.
    keys = [(spec.index, spec.file) for spec in document.replicas]
    groups = groupby(zip(keys, document.replicas, flat, strict=True), key=itemgetter(0))
    same = (list(group) for _, group in groups)
    loads = (load_stage(group[0][1], folder, [place for *_, place in group]) for group in same)
    loaded = iter(closed_on_error(chain.from_iterable(loads)))
    return [[next(loaded) for _ in stage.replicas] for stage in document.stages]


def _require_here(document: Manifest, places: Sequence[Device]) -> None:
    for spec, place in zip(document.replicas, places, strict=True):
        # A server's processor is not known here; loading the stage there reports a mismatch.
        if not isinstance(place, Rpc):
            require_here(spec, document.environment)
