"""A deployment as a value: which ops run in which runtime on which devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DeployedStage:
    """The ops of a stage, the runtime that computes them, and the device of each replica.

    Devices are spelled as everywhere, such as ``cores:0-1``.
    """

    ops: tuple[int, ...]
    runtime: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Deployment:
    """Stages in the order of the pipeline, each with at least one op and one device."""

    stages: tuple[DeployedStage, ...]

    @classmethod
    def of_split(
        cls, stages: Sequence[Sequence[int]], devices: Sequence[str], runtimes: Sequence[str]
    ) -> Deployment:
        """Stage i on device i in runtime i; an empty stage leaves its device unused."""
        rows = zip(stages, devices, runtimes, strict=True)
        return cls(tuple(DeployedStage(tuple(ops), r, (d,)) for ops, d, r in rows if ops))

    @classmethod
    def on_cores(
        cls,
        stages: Sequence[Sequence[int]],
        replicas: Sequence[int],
        threads: Sequence[int],
        runtimes: Sequence[str],
        cores: Sequence[int],
    ) -> Deployment:
        """Stages with replicas and threads on the cores in their order, a core for each thread.

        Raises ValueError for fewer cores.
        """
        if len(cores) < sum(r * w for r, w in zip(replicas, threads, strict=True)):
            raise ValueError(f"{len(cores)} cores are fewer than those of all replicas")
        free = iter(cores)
        deployed = []
        for ops, count, width, runtime in zip(stages, replicas, threads, runtimes, strict=True):
            devices = []
            for _ in range(count):
                numbers = [str(next(free)) for _ in range(width)]
                devices.append(f"cores:{','.join(numbers)}")
            deployed.append(DeployedStage(tuple(ops), runtime, tuple(devices)))
        return cls(tuple(deployed))

    @property
    def split(self) -> tuple[tuple[int, ...], ...]:
        """The ops of each stage."""
        return tuple(stage.ops for stage in self.stages)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtime of each stage."""
        return tuple(stage.runtime for stage in self.stages)

    @property
    def replicas(self) -> tuple[int, ...]:
        """The number of replicas of each stage."""
        return tuple(len(stage.devices) for stage in self.stages)

    @property
    def threads(self) -> tuple[int, ...]:
        """The threads of a replica of each stage: its cores, and one for any other device."""
        return tuple(len(cores_of(stage.devices[0])) or 1 for stage in self.stages)


def cores_of(device: str) -> tuple[int, ...]:
    """The core numbers in the spelling of a device; none for a GPU and a server."""
    kind, _, rest = device.partition(":")
    if kind != "cores":
        return ()
    numbers: list[int] = []
    for part in rest.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))


def resources_of(device: str) -> tuple[str, ...]:
    """What two stages on one device would have to share: cores, a GPU or a server.

    A tracker finds another server for each stage, so those share nothing.
    """
    cores = cores_of(device)
    if cores or device.startswith("tracker:"):
        return tuple(f"core {number}" for number in cores)
    return (device,)
