"""Devices: local cores, a local GPU, cores of a Ray node, or a TVM RPC server.

They are spelled ``cores:0``, ``cores:0,2`` or ``cores:0-3``; ``cuda:0``; ``ray:NODE/cores:0-3``;
``rpc:HOST:PORT``, or ``tracker:HOST:PORT/KEY`` for a server that a tracker finds. The device on
a server is its processor, unless a suffix such as ``/cuda:0`` names another.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from autosplit.deployment import MOST_CORES, MOST_DEVICES, cores_of
from autosplit.errors import ConfigError, MachineError
from autosplit.extras import tvm

KINDS = ("cpu", "cuda", "rocm", "opencl", "vulkan", "metal")  # of devices on a server
SILENCE_S = 300.0  # a device or a stage without an answer for this long is taken to hang
_SPELLINGS = (
    "cores:0, cores:0-3, cuda:0, ray:NODE/cores:0-3, rpc:HOST:PORT or tracker:HOST:PORT/KEY"
)
_CORES = re.compile(r"cores:[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_NUMBER = re.compile(r"[0-9]{1,3}")
_NODE = re.compile(r"[!-.0-~]{1,200}")  # visible, and no slash
_SERVER = re.compile(
    r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?):(?P<port>[0-9]{1,5})"
    r"(?:/(?P<key>[A-Za-z0-9._-]+))?"
    rf"(?:/(?P<kind>{'|'.join(KINDS)}):(?P<number>{_NUMBER.pattern}))?"
)


@dataclass(frozen=True)
class Cores:
    """Cores of this machine. A stage has one thread per core, pinned if the system supports it."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return "cores:" + ",".join(map(str, self.numbers))

    def tvm_device(self) -> Any:
        """The device as TVM's runtime has it."""
        return tvm.cpu()

    def bind(self) -> None:
        """Pin the calling thread, and the kernel threads that it starts later, to these cores.

        Raises MachineError where they are gone.
        """
        # Other systems than Linux cannot pin; `doctor` says so.
        if not hasattr(os, "sched_setaffinity"):
            return
        try:
            os.sched_setaffinity(0, set(self.numbers))
        except OSError as error:
            raise MachineError(
                f"device '{self}' is not there any more ({error.strerror}); `lscpu` shows which are"
            ) from error

    def bind_kernels(self) -> None:
        """Let TVM's thread pool of the calling thread use these cores; each thread has a pool."""
        # TVM's affinity mode kSpecifyOneCorePerThread, which has no name in Python.
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
        """The device as TVM's runtime has it. Raises MachineError where TVM cannot use it."""
        if not tvm.runtime.enabled("cuda"):
            problem = f"device '{self}' needs a TVM built with CUDA; see `autosplit doctor`"
            raise MachineError(problem)
        device: Any = tvm.cuda(self.number)
        if not device.exist:
            raise MachineError(f"device '{self}' does not exist; see nvidia-smi, or write cores:0")
        return device

    def bind(self) -> None:
        """Do nothing: the calling thread only waits for the device."""

    def bind_kernels(self) -> None:
        """Do nothing: no kernel runs on this machine's cores."""


@dataclass(frozen=True)
class Rpc:
    """A device of a TVM RPC server.

    ``host`` and ``port`` are the server's, or with ``by_tracker`` those of a tracker that knows
    servers by ``key``. ``copy`` numbers the servers of one key, since two stages with the same key
    run on two servers.
    """

    host: str
    port: int
    key: str = ""
    by_tracker: bool = False
    kind: str = "cpu"
    number: int = 0
    copy: int = 0

    def __str__(self) -> str:
        text = f"{'tracker' if self.by_tracker else 'rpc'}:{self.host}:{self.port}"
        if self.key:
            text += f"/{self.key}"
        if (self.kind, self.number) != ("cpu", 0):
            text += f"/{self.kind}:{self.number}"
        return text


@dataclass(frozen=True)
class RayCores:
    """Cores of a node of a Ray cluster, by its address, host name, id or resource."""

    node: str
    cores: Cores

    def __str__(self) -> str:
        return f"ray:{self.node}/{self.cores}"


LocalDevice: TypeAlias = Cores | Cuda
Device: TypeAlias = LocalDevice | Rpc | RayCores


def on_its_machine(device: Device) -> LocalDevice | Rpc:
    """A device as its own machine has it: the cores of a Ray node, else the device itself."""
    return device.cores if isinstance(device, RayCores) else device


def can_pin() -> bool:
    """Whether this system can pin a thread to a core, as Linux can."""
    return hasattr(os, "sched_setaffinity")


def available() -> tuple[int, ...]:
    """The cores this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def parse(text: str, *, anywhere: bool = False) -> Device:
    """A device from its spelling, without checking that a GPU, a server or a node exists.

    This process must be able to use the cores, unless ``anywhere`` allows those of any machine.
    Raises ConfigError for misspelt text, MachineError for a core that does not exist.
    """
    kind, _, rest = text.partition(":")
    if kind == "cores" and rest:
        return _cores(text, text, range(MOST_CORES) if anywhere else available())
    if kind == "cuda" and _NUMBER.fullmatch(rest):
        return Cuda(int(rest))
    if kind == "ray" and rest:
        return _ray_cores(text, rest)
    if kind in ("rpc", "tracker") and rest:
        return _server(text, rest, by_tracker=kind == "tracker")
    raise ConfigError(f"device '{text}' is unknown; write {_SPELLINGS}")


def along(
    stages: int, devices: Sequence[str] = (), things: str = "stages", *, anywhere: bool = False
) -> tuple[Device, ...]:
    """One device per stage: ``devices``, or by default one core each, shared if there are too few.

    ``things`` is the word for stages in messages. Raises ConfigError if the numbers of devices and
    stages differ, and for anything but a list of strings.
    """
    if isinstance(devices, str):  # each of its letters would be taken for a device
        raise ConfigError(f"devices is {devices!r}; give a list of devices: [{devices!r}]")
    for text in devices:
        if not isinstance(text, str):
            raise ConfigError(f"device {text!r} is not a string; write {_SPELLINGS}")
    if stages > MOST_DEVICES:
        raise ConfigError(f"{stages} {things} are too many; give at most {MOST_DEVICES}")
    if devices and len(devices) != stages:
        raise ConfigError(
            f"{stages} {things} need {stages} devices, not {len(devices)}: {', '.join(devices)}"
        )
    if devices:
        return with_copies([parse(text, anywhere=anywhere) for text in devices])
    cores = available()
    # More stages than cores share cores in turn.
    return tuple(Cores((cores[i % len(cores)],)) for i in range(stages))


def with_copies(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices; those of one tracker key are numbered, since each is another server."""
    count: Counter[Device] = Counter()
    numbered: list[Device] = []
    for device in devices:
        if isinstance(device, Rpc) and device.by_tracker:
            numbered.append(replace(device, copy=count[device]))
            count[device] += 1
        else:
            numbered.append(device)
    return tuple(numbered)


def _cores(text: str, spelling: str, cores: Container[int]) -> Cores:
    """Parse ``spelling``, the part of the device name ``text`` that lists cores."""
    if not _CORES.fullmatch(spelling):
        raise ConfigError(f"device '{text}' is misspelt; write cores as in cores:0 or cores:0-3")
    try:
        numbers = cores_of(spelling)
    except ValueError as error:
        raise MachineError(f"device '{text}' does not exist: {error}") from error
    missing = [number for number in numbers if number not in cores]
    if missing:
        raise MachineError(
            f"device '{text}' needs core {', '.join(map(str, missing[:8]))}; "
            f"this process may use {', '.join(map(str, available()))}"
        )
    return Cores(numbers)


def _ray_cores(text: str, rest: str) -> RayCores:
    node, _, spelling = rest.partition("/")
    if not _NODE.fullmatch(node) or not spelling.startswith("cores:"):
        raise ConfigError(f"device '{text}' is not cores of a Ray node; write ray:NODE/cores:0-3")
    # The node itself checks which cores it has.
    return RayCores(node, _cores(text, spelling, range(MOST_CORES)))


def _server(text: str, rest: str, by_tracker: bool) -> Rpc:
    # TVM resolves the host name; only text that cannot be a host name is refused here.
    match = _SERVER.fullmatch(rest)
    if not match or not 0 < int(match["port"]) < 1 << 16 or (by_tracker and not match["key"]):
        form = "tracker:HOST:PORT/KEY" if by_tracker else "rpc:HOST:PORT"
        raise ConfigError(
            f"device '{text}' is misspelt; write {form}, with the host's name or IPv4 address, or "
            f"{form}/cuda:0 for a GPU there"
        )
    key, kind, number = match["key"] or "", match["kind"] or "cpu", int(match["number"] or 0)
    return Rpc(match["host"], int(match["port"]), key, by_tracker, kind, number)
