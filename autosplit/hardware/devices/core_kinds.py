"""Which cores of this machine are alike and which share memory, as Linux tells them apart."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

from autosplit.deployment import cores_of
from autosplit.hardware.devices.device import available
from autosplit.hardware.devices.system_files import system_text

_DEVICES = Path("/sys/devices")


def by_kind(numbers: Sequence[int], devices: Path = _DEVICES) -> tuple[tuple[int, ...], ...]:
    """Some cores by kind, those of the first core first; one kind where nothing says otherwise.

    Processors of Arm have a capacity for each core; Intel's hybrid ones list their small cores.
    """
    kinds: dict[Hashable, list[int]] = {}
    for core, kind in zip(numbers, kinds_of(numbers, devices), strict=True):
        kinds.setdefault(kind, []).append(core)
    return tuple(map(tuple, kinds.values()))


def kinds_of(numbers: Sequence[int], devices: Path = _DEVICES) -> tuple[Hashable, ...]:
    """The kind of each of some cores, which is equal where cores are alike."""
    listed = system_text(devices / "cpu_atom" / "cpus")
    small = cores_of(f"cores:{listed}") if listed else ()
    cpus = devices / "system" / "cpu"
    return tuple((system_text(cpus / f"cpu{n}" / "cpu_capacity"), n in small) for n in numbers)


def site_of_thread() -> Hashable:
    """What the core of the calling thread shares with those that compute alike from its memory.

    None for a thread that may run on several cores.
    """
    numbers = available()
    return (kinds_of(numbers), memory_node(numbers[0])) if len(numbers) == 1 else None


def memory_node(core: int, devices: Path = _DEVICES) -> str:
    """The name of the memory (NUMA node) next to a core; empty where there is one for all."""
    links = (devices / "system" / "cpu" / f"cpu{core}").glob("node[0-9]*")
    return min((link.name for link in links), default="")
