"""Where a stage runs: local cores, a local GPU, or a TVM RPC server by its address or through a tracker.

They are spelled ``cores:0``, ``cores:0,2`` or ``cores:0-3``; ``cuda:0``; ``rpc:HOST:PORT``; ``tracker:HOST:PORT/KEY``. The
device on a server is its processor, unless a suffix such as ``/cuda:0`` names another.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from autosplit.errors import ConfigError, MachineError

KINDS = ("cpu", "cuda", "rocm", "opencl", "vulkan", "metal")  # of devices on a server
_SPELLINGS = "cores:0, cores:0-3, cuda:0, rpc:HOST:PORT or tracker:HOST:PORT/KEY"
_ADDRESS = re.compile(
    r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?):(?P<port>[0-9]{1,5})"
)
_KEY = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Cores:
    """Some cores of this machine. A stage on them has one thread a core, each kept there where the system can do that."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return "cores:" + ",".join(map(str, self.numbers))

    def tvm_device(self) -> Any:
        """The device as TVM's runtime has it."""
        import tvm

        return tvm.cpu()

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


@dataclass(frozen=True)
class Cuda:
    """A CUDA device of this machine."""

    number: int

    def __str__(self) -> str:
        return f"cuda:{self.number}"

    def tvm_device(self) -> Any:
        """The device as TVM's runtime has it. Raises MachineError where there is none, or TVM cannot use it."""
        import tvm

        if not tvm.runtime.enabled("cuda"):
            raise MachineError(
                f"device '{self}' needs a TVM built with CUDA, this one is not; `autosplit doctor` tells"
            )
        device = tvm.cuda(self.number)
        if not device.exist:
            raise MachineError(
                f"device '{self}' is not there; see nvidia-smi, and write cores:0 to run without it"
            )
        return device

    def bind(self) -> None:
        """The calling thread only waits for the device."""

    def bind_kernels(self) -> None:
        """No kernel runs on this machine's cores."""


@dataclass(frozen=True)
class Rpc:
    """A device of a TVM RPC server.

    ``host`` and ``port`` are the server's, or with ``by_tracker`` those of a tracker that knows servers by ``key``.
    ``copy`` counts the servers of one key: two stages on a key are on two servers.
    """

    host: str
    port: int
    key: str = ""
    by_tracker: bool = False
    kind: str = "cpu"
    number: int = 0
    copy: int = 0

    def __str__(self) -> str:
        server = f"{'tracker' if self.by_tracker else 'rpc'}:{self.host}:{self.port}{'/' if self.key else ''}{self.key}"
        return (
            server
            if (self.kind, self.number) == ("cpu", 0)
            else f"{server}/{self.kind}:{self.number}"
        )


Device: TypeAlias = Cores | Cuda | Rpc


def can_pin() -> bool:
    """Whether this system lets a thread be kept on a core (Linux does)."""
    return hasattr(os, "sched_setaffinity")


def available() -> tuple[int, ...]:
    """The cores this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def parse(text: str) -> Device:
    """A device from its spelling. Raises ConfigError where it is misspelt, MachineError for a core that is not there.

    Whether a GPU or a server is there shows when it is used.
    """
    kind, _, rest = text.partition(":")
    if kind == "cores" and rest:
        return _cores(text, rest)
    if kind == "cuda" and _is_number(rest):
        return Cuda(int(rest))
    if kind in ("rpc", "tracker") and rest:
        return _server(text, rest, by_tracker=kind == "tracker")
    raise ConfigError(f"device '{text}' is unknown; write {_SPELLINGS}")


def along(stages: int, devices: Sequence[str] = ()) -> tuple[Device, ...]:
    """One device a stage: those given, else one core a stage, starting over where there are more stages than cores.

    Raises ConfigError where the number given is another.
    """
    if devices and len(devices) != stages:
        raise ConfigError(
            f"{stages} stages need {stages} devices, not {len(devices)}: {', '.join(devices)}"
        )
    cores = available()
    return apart(list(map(parse, devices))) or tuple(
        Cores((cores[i % len(cores)],)) for i in range(stages)
    )


def apart(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices, those of one tracker's key told apart: each is another server of that key."""
    seen: Counter[Device] = Counter()
    found: list[Device] = []
    for device in devices:
        if isinstance(device, Rpc) and device.by_tracker:
            seen[device] += 1
            device = replace(device, copy=seen[device] - 1)
        found.append(device)
    return tuple(found)


def _cores(text: str, rest: str) -> Cores:
    numbers: list[int] = []
    there = available()
    for part in rest.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(
                f"device '{text}' has '{part}' where a core number belongs; write cores:0 or cores:0-3"
            )
        numbers.extend(range(int(first), min(int(last or first), int(first) + there[-1] + 1) + 1))
    missing = [n for n in numbers if n not in there]
    if missing or not numbers:
        wanted = ", ".join(map(str, missing[:8])) or "numbers"
        raise MachineError(
            f"device '{text}' needs core {wanted}; this process may use {', '.join(map(str, there))}"
        )
    return Cores(tuple(dict.fromkeys(numbers)))


def _server(text: str, rest: str, by_tracker: bool) -> Rpc:
    form = "tracker:HOST:PORT/KEY" if by_tracker else "rpc:HOST:PORT"
    address, *suffixes = rest.split("/")
    if "[" in address or address.count(":") > 1:
        raise ConfigError(
            f"device '{text}' has an IPv6 address; write the host's name or IPv4 address as in {form}"
        )
    found = _ADDRESS.fullmatch(address)
    if not found or not 0 < int(found["port"]) < 1 << 16:
        raise ConfigError(f"device '{text}' has '{address}' where HOST:PORT belongs; write {form}")
    key = suffixes.pop(0) if suffixes and ":" not in suffixes[0] else None
    kind, _, number = suffixes.pop(0).partition(":") if suffixes else ("cpu", "", "0")
    if (
        suffixes
        or kind not in KINDS
        or not _is_number(number)
        or not (key is None or _KEY.fullmatch(key))
    ):
        raise ConfigError(
            f"device '{text}' ends in what names no device; write {form}, or {form}/cuda:0 for a GPU there"
        )
    if by_tracker and not key:
        raise ConfigError(f"device '{text}' names no key of a server; write {form}")
    return Rpc(found["host"], int(found["port"]), key or "", by_tracker, kind, int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 4
