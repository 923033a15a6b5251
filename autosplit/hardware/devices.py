"""Where a stage runs: for now, sets of local cores, spelled ``cores:0``, ``cores:0,2`` or ``cores:0-3``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from autosplit.errors import ConfigError, MachineError


@dataclass(frozen=True)
class Cores:
    """Some cores of this machine. A stage on them has one thread a core, each kept there where the system can do that."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return "cores:" + ",".join(map(str, self.numbers))

    def bind(self) -> None:
        """Keep the calling thread, and the kernel threads it will start, on these cores."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, set(self.numbers))

    def bind_kernels(self) -> None:
        """Let TVM's thread pool of the calling thread use these cores; the pool is the thread's own."""
        import tvm

        one_core_per_thread = -2
        configure = tvm.get_global_func("runtime.config_threadpool")
        configure(one_core_per_thread, len(self.numbers), [str(n) for n in self.numbers])


def can_pin() -> bool:
    """Whether this system lets a thread be kept on a core (Linux does)."""
    return hasattr(os, "sched_setaffinity")


def available() -> tuple[int, ...]:
    """The cores this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def parse(text: str) -> Cores:
    """A device from its spelling. Raises ConfigError where it is misspelt, MachineError for a core that is not there."""
    kind, _, rest = text.partition(":")
    if kind != "cores" or not rest:
        raise ConfigError(f"device '{text}' is unknown; write cores:0, cores:0,1 or cores:0-3")
    numbers: list[int] = []
    there = available()
    for part in rest.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"device '{text}' has '{part}' where a core number belongs; write cores:0 or cores:0-3")
        numbers.extend(range(int(first), min(int(last or first), int(first) + there[-1] + 1) + 1))
    missing = [n for n in numbers if n not in there]
    if missing or not numbers:
        raise MachineError(f"device '{text}' needs core {missing or 'numbers'}; this process may use {list(there)}")
    return Cores(tuple(dict.fromkeys(numbers)))


def along(stages: int, devices: Sequence[str] = ()) -> tuple[Cores, ...]:
    """One device a stage: those given, else one core a stage, starting over where there are more stages than cores.

    Raises ConfigError where the number given is another.
    """
    if devices and len(devices) != stages:
        raise ConfigError(f"{stages} stages need {stages} devices, not {len(devices)}: {', '.join(devices)}")
    cores = available()
    return tuple(map(parse, devices)) or tuple(Cores((cores[i % len(cores)],)) for i in range(stages))
