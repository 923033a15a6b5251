"""A deployment as a value: which ops run in which runtime on which devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

__all__ = ["DeployedStage", "Deployment", "Option", "Row", "Stage"]


@dataclass(frozen=True)
class Row:
    """A line of the cost table.

    It is a kind of device, a runtime, the threads of a replica, and how many items it computes at
    once.
    """

    kind: str = ""
    runtime: str = ""
    threads: int = 1
    batch: int = 1


@dataclass(frozen=True)
class Option:
    """A way to run a stage: so many replicas as a row of the cost table says."""

    row: Row
    replicas: int = 1


@dataclass(frozen=True)
class Stage:
    """The ops of a stage, and how it runs.

    Several options are replicas on devices of several kinds, in one runtime and with one batch.
    """

    ops: tuple[int, ...]
    options: tuple[Option, ...]

    @property
    def runtime(self) -> str:
        """What computes the stage."""
        return self.options[0].row.runtime

    @property
    def replicas(self) -> int:
        """How many copies take items in turn."""
        return sum(option.replicas for option in self.options)


@dataclass(frozen=True)
class DeployedStage:
    """The ops of a stage, the runtime that computes them, and the device of each replica.

    Devices are spelled as everywhere, such as ``cores:0-1``. ``shared``: whether replicas with one
    thread share one loaded model even where that lets them move between their cores.
    """

    ops: tuple[int, ...]
    runtime: str
    devices: tuple[str, ...]
    shared: bool = False


@dataclass(frozen=True)
class Deployment:
    """Stages in the order of the pipeline, each with at least one op and one device."""

    stages: tuple[DeployedStage, ...]

    @classmethod
    def of_split(
        cls,
        stages: Sequence[Sequence[int]],
        devices: Sequence[str],
        runtimes: Sequence[str],
        replicas: Sequence[int] = (),
    ) -> Deployment:
        """Stage i in runtime i on the next ``replicas[i]`` devices, by default on one.

        An empty stage leaves its devices unused. Raises ValueError for another number of devices.
        """
        counts = replicas or [1] * len(stages)
        if len(devices) != sum(counts):
            raise ValueError(f"{len(devices)} devices are not {sum(counts)}, one a replica")
        free, deployed = iter(devices), []
        for ops, runtime, count in zip(stages, runtimes, counts, strict=True):
            places = tuple(islice(free, count))
            if ops:
                deployed.append(DeployedStage(tuple(ops), runtime, places))
        return cls(tuple(deployed))

    @classmethod
    def on_cores(
        cls,
        stages: Sequence[Sequence[int]],
        replicas: Sequence[int],
        threads: Sequence[int],
        runtimes: Sequence[str],
        cores: Sequence[Sequence[int]],
        kinds: Sequence[int] = (),
    ) -> Deployment:
        """Stages with replicas and threads on the cores in their order, a core for each thread.

        ``cores`` of each kind, of which ``kinds`` names that of each stage, by default the first.
        Raises ValueError for fewer cores or kinds.
        """
        free = [map(str, numbers) for numbers in cores]
        devices = []
        chosen = kinds or [0] * len(stages)
        if any(not 0 <= kind < len(free) for kind in chosen):
            raise ValueError(f"kinds {tuple(chosen)} are not those of {len(free)} lists of cores")
        for count, width, kind in zip(replicas, threads, chosen, strict=True):
            for _ in range(count):
                numbers = list(islice(free[kind], width))
                if len(numbers) < width:
                    raise ValueError(
                        f"{len(cores[kind])} cores are fewer than those of all replicas"
                    )
                devices.append(f"cores:{','.join(numbers)}")
        return cls.of_split(stages, devices, runtimes, replicas)

    def with_runtimes(self, replacements: Mapping[str, str]) -> Deployment:
        """The same stages, each runtime among the keys replaced by its value."""
        return Deployment(
            tuple(
                replace(stage, runtime=replacements.get(stage.runtime, stage.runtime))
                for stage in self.stages
            )
        )

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
        return tuple(threads_of(stage.devices[0]) for stage in self.stages)


def cores_of(device: str) -> tuple[int, ...]:
    """The core numbers in the spelling of a device; none for a GPU, a server and a Ray node."""
    kind, _, rest = device.partition(":")
    if kind != "cores":
        return ()
    numbers: list[int] = []
    for part in rest.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))


def on_its_machine(device: str) -> str:
    """A device as its own machine spells it: without the node of ``ray:NODE/cores:0``."""
    return device.partition("/")[2] if device.startswith("ray:") else device


def threads_of(device: str) -> int:
    """How many cores a device has, here or on a Ray node; one for any other device."""
    return len(cores_of(on_its_machine(device))) or 1


def resources_of(device: str) -> tuple[str, ...]:
    """What two stages on one device would have to share: cores, a GPU or a server.

    A tracker finds another server for each stage, so those share nothing.
    """
    cores = cores_of(on_its_machine(device))
    if cores or device.startswith("tracker:"):
        node = device.removesuffix(on_its_machine(device))
        return tuple(f"{node}core {number}" for number in cores)
    return (device,)
