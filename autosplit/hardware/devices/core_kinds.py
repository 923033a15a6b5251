"""Which cores of this machine are alike and which share memory, as Linux reports it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

from autosplit.deployment import cores_of
from autosplit.hardware.devices.device import available
from autosplit.hardware.devices.system_files import system_text

_DEVICES = Path("/sys/devices")


def by_kind(numbers: Sequence[int], devices: Path = _DEVICES) -> tuple[tuple[int, ...], ...]:
    """Group cores by kind, beginning with that of the first core; one group if no kind is known.

    Linux reports a capacity for each Arm core, and lists the small cores of Intel's hybrids.
    """
    kinds: dict[Hashable, list[int]] = {}
    for core, kind in zip(numbers, kinds_of(numbers, devices), strict=True):
        kinds.setdefault(kind, []).append(core)
    return tuple(map(tuple, kinds.values()))


def kinds_of(numbers: Sequence[int], devices: Path = _DEVICES) -> tuple[Hashable, ...]:
    """The kind of each of some cores: a value that is equal for cores that are alike."""
    listed = system_text(devices / "cpu_atom" / "cpus")
    small = cores_of(f"cores:{listed}") if listed else ()
    cpus = devices / "system" / "cpu"
    return tuple((system_text(cpus / f"cpu{n}" / "cpu_capacity"), n in small) for n in numbers)


def site_of_thread() -> Hashable:
    """The kind and the memory node of the core that this thread is pinned to; None without one."""
    numbers = available()
    return (kinds_of(numbers), memory_node(numbers[0])) if len(numbers) == 1 else None


def memory_node(core: int, devices: Path = _DEVICES) -> str:
    """The name of the NUMA node of a core; empty where Linux lists none."""
    links = (devices / "system" / "cpu" / f"cpu{core}").glob("node[0-9]*")
    return min((link.name for link in links), default="")
