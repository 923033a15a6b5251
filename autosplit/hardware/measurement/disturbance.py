"""What disturbs a measurement on this machine, and how its results show it.

The load of other processes, time that a hypervisor stole, and throttling are read where the system
reports them: in /proc/stat, in the counters below /sys, and in the control group of a container.
``doctor`` lists what cannot be read; that never counts as a disturbance.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autosplit.errors import AutosplitError, MismatchError
from autosplit.hardware.devices.system_files import cpu_seconds, is_server, processes, system_text
from autosplit.hardware.measurement.results import Spread

T = TypeVar("T")
CPUS = Path("/sys/devices/system/cpu")
CONTROL_GROUP = Path("/sys/fs/cgroup/cpu.stat")

# A hypervisor that takes more than this share of the processor changes a period by more than the
# 1 % to which periods are measured, even where all stages lose equally.
MOST_STEAL = 0.02
# Load of other processes disturbs above the first share where less than LEAST_IDLE is idle, and
# above the last one always: it takes clock speed and memory bandwidth from the other cores.
MOST_LOAD, LEAST_IDLE, MOST_LOAD_BESIDE = 0.05, 0.05, 1 / 3
# Half an interval, as a share of the median. Candidates that matter differ by less than this.
MOST_SPREAD = 0.1
# A pipeline whose period is much longer than its latency is slowed by something else.
MOST_OVER_LATENCY = 1.5
# Limits in multiples of the time of one measurement: for all waiting and repeating of a run, and
# for waiting before one repetition.
_PATIENCE, _WAIT = 12, 4
_LEAST_S = 0.5  # the shortest window: the system counts hundredths of a second on each core


@dataclass(frozen=True)
class Counters:
    """Processor times since the system was started, in seconds, summed over all cores.

    ``process`` is the time of this process, its children and the servers here. ``throttled`` is how
    often clocks were slowed, plus the withheld time in µs; it grows with each throttling.
    """

    total: float
    idle: float
    stolen: float
    process: float
    throttled: int

    @classmethod
    def now(cls) -> Counters:
        """The counters at this moment."""
        times = cpu_seconds()
        idle, stolen = sum(times[3:5]), sum(times[7:])
        return cls(sum(times), idle, stolen, _own_seconds(), _throttled())


def _own_seconds() -> float:
    """The time of this process and of the servers here, whoever uses them, with descendants."""
    usages = processes()
    family = {os.getpid(), *filter(is_server, usages)}
    while children := {pid for pid, usage in usages.items() if usage.parent in family} - family:
        family |= children
    return sum(usages[pid].seconds for pid in family if pid in usages)


@dataclass(frozen=True)
class Conditions:
    """The state of the machine during a measurement, as shares of the time of all its cores.

    ``load`` is that of other processes. ``throttled``: clocks were slowed or time was withheld.
    """

    load: float = 0.0
    idle: float = 1.0
    stolen: float = 0.0
    throttled: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """The disturbances of a measurement, as texts; empty on a calm machine."""
        reasons = []
        most_load = MOST_LOAD if self.idle < LEAST_IDLE else MOST_LOAD_BESIDE
        if self.load > most_load:
            reasons.append(f"other processes took {self.load:.0%} of the processor")
        if self.stolen > MOST_STEAL:
            reasons.append(f"the hypervisor took {self.stolen:.0%} of the processor")
        if self.throttled:
            reasons.append("the processor was throttled")
        return tuple(reasons)


def since(start: Counters) -> Conditions:
    """The conditions from ``start`` until now; calm where the time is too short to tell."""
    end = Counters.now()
    total = end.total - start.total
    if total < _LEAST_S * (os.cpu_count() or 1):
        return Conditions()
    idle, stolen = (end.idle - start.idle) / total, (end.stolen - start.stolen) / total
    load = max(0.0, 1.0 - idle - stolen - (end.process - start.process) / total)
    return Conditions(load, idle, stolen, end.throttled > start.throttled)


def signs(period: Spread, latency: Spread) -> tuple[str, ...]:
    """The signs of a disturbance in the results of a pipeline; empty if there are none."""
    if period.relative_half_width > MOST_SPREAD:
        return (f"an interval of more than {MOST_SPREAD:.0%} to each side",)
    if period.low > MOST_OVER_LATENCY * latency.high:
        return ("a period well above the latency of a single item",)
    return ()


def wait_until_calm(limit_s: float, sleep: Callable[[float], None] = time.sleep) -> float:
    """Wait until nothing disturbs, for ``limit_s`` seconds at most; returns how long it took."""
    waited = 0.0
    while waited < limit_s:
        start = Counters.now()
        sleep(2 * _LEAST_S)
        waited += 2 * _LEAST_S
        if not since(start).reasons:
            break
    return waited


class Calm:
    """Repeats disturbed measurements once the machine is calm, within a limited total time.

    A measurement takes ``seconds``; ``note`` is called with a message for each repetition.
    """

    def __init__(self, seconds: float, note: Callable[[str], None]) -> None:
        self._seconds, self._note = seconds, note
        self._patience = _PATIENCE * seconds

    def measured(
        self, name: str, measure: Callable[[], T], reasons: Callable[[T], Sequence[str]]
    ) -> T:
        """The result of ``measure``, or of a second one where ``reasons`` disturbed the first.

        If the second one fails, the first result stays, except where outputs differ.
        """
        result = measure()
        disturbances = reasons(result)
        if not disturbances or self._patience <= 0:
            return result
        self._note(f"{name} was disturbed: {'; '.join(disturbances)}; measuring again when calm")
        limit = min(_WAIT * self._seconds, self._patience)
        self._patience -= wait_until_calm(limit) + self._seconds
        again = "was disturbed again"
        try:
            result = measure()
        except MismatchError:
            raise
        except AutosplitError as error:
            again = f"failed when it was measured again ({error})"
        if reasons(result):
            self._note(f"{name} {again}, its figures are marked")
        return result


def state() -> str:
    """The load of this machine and the governor of its clocks, where they can be read."""
    parts = [f"load {os.getloadavg()[0]:.1f} on {os.cpu_count() or 1} cores"]
    files = CPUS.glob("cpu*/cpufreq/scaling_governor")
    governors = sorted({system_text(file) for file in files} - {""})
    return ", ".join(parts + [f"governor {' and '.join(governors)}"] * bool(governors))


def unreadable() -> tuple[str, ...]:
    """The sources of disturbance that this system, or its container, does not report."""
    sources = {
        "steal time": len(cpu_seconds()) > 7,
        "governor": any(CPUS.glob("cpu*/cpufreq/scaling_governor")),
        "throttling": CONTROL_GROUP.exists() or any(_throttle_files()),
    }
    return tuple(name for name, is_readable in sources.items() if not is_readable)


def _throttled() -> int:
    """How often clocks were slowed, plus the time in µs that the control group withheld."""
    counts = [system_text(file) for file in _throttle_files()]
    for line in system_text(CONTROL_GROUP).splitlines():
        key, _, value = line.partition(" ")
        counts += [value] if key == "throttled_usec" else []
    return sum(int(count) for count in counts if count.isdecimal())


def _throttle_files() -> list[Path]:
    return sorted(CPUS.glob("cpu*/thermal_throttle/core_throttle_count"))
