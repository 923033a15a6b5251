"""The ways to run a model unsplit on the devices of its stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autosplit.hardware.devices.device import Cores, Device


class UnsplitRun(NamedTuple):
    """A baseline before it is measured: one copy of the model on each of ``devices``."""

    name: str
    devices: tuple[Device, ...]


def unsplit_runs(devices: Sequence[Device]) -> list[UnsplitRun]:
    """One core, all cores, each other device, and replicas on every core and other device."""
    numbers: set[int] = set()
    others: dict[str, Device] = {}
    for device in devices:
        if isinstance(device, Cores):
            numbers.update(device.numbers)
        else:
            # Servers with the same spelling are equal for a baseline of one device.
            others.setdefault(str(device), device)
    cores = sorted(numbers)
    runs = []
    if cores:
        runs.append(UnsplitRun("one core", (Cores((cores[0],)),)))
    if len(cores) > 1:
        runs.append(UnsplitRun("all cores", (Cores(tuple(cores)),)))
    runs += [UnsplitRun(name, (device,)) for name, device in others.items()]
    replicas: list[Device] = [Cores((core,)) for core in cores]
    replicas += dict.fromkeys(device for device in devices if not isinstance(device, Cores))
    if len(replicas) > 1:
        runs.append(UnsplitRun("replicas", tuple(replicas)))
    return runs
