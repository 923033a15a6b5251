"""A deployment as a value: which ops run in which runtime on which devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

MOST_CORES = 1 << 16  # an upper limit of core numbers: a huge range would fill the memory
MOST_DEVICES = 1024  # of a deployment

__all__ = ["Deployment", "Option", "Row", "Stage"]


@dataclass(frozen=True)
class Row:
    """A row of the cost table: a device kind, a runtime, and the threads of a replica.

    ``batch`` is how many items a replica computes at once.
    """

    kind: str = ""
    runtime: str = ""
    threads: int = 1
    batch: int = 1


@dataclass(frozen=True)
class Option:
    """A way to run a stage: a number of replicas, each as a row of the cost table says.

    ``devices`` has the device of each replica, such as ``cores:0-1``, once they are placed.
    """

    row: Row
    replicas: int = 1
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """The ops of a stage, and how it runs.

    A stage has one option for each kind of device; all have the same runtime and batch.
    """

    ops: tuple[int, ...]
    options: tuple[Option, ...]

    @classmethod
    def on(cls, ops: Sequence[int], runtime: str, devices: Sequence[str], batch: int = 1) -> Stage:
        """A stage with one replica on each of ``devices``, which are all alike."""
        row = Row("", runtime, threads_of(devices[0]), batch)
        return cls(tuple(ops), (Option(row, len(devices), tuple(devices)),))

    @property
    def runtime(self) -> str:
        """The runtime that computes the stage."""
        return self.options[0].row.runtime

    @property
    def replicas(self) -> int:
        """The number of replicas, which take items in turn."""
        return sum(option.replicas for option in self.options)

    @property
    def threads(self) -> int:
        """The threads of a replica."""
        return threads_of(self.devices[0]) if self.devices else self.options[0].row.threads

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of each replica; empty before they are placed."""
        return tuple(device for option in self.options for device in option.devices)


@dataclass(frozen=True)
class Deployment:
    """Stages in the order of the pipeline, each with at least one op and one replica."""

    stages: tuple[Stage, ...]

    @classmethod
    def of_split(
        cls,
        stages: Sequence[Sequence[int]],
        devices: Sequence[str],
        runtimes: Sequence[str],
        replicas: Sequence[int] = (),
        batch: int = 1,
    ) -> Deployment:
        """A deployment of stage i in runtime i on the next ``replicas[i]`` devices, by default one.

        ``batch`` items are computed at once. An empty stage leaves its devices unused. Raises
        ValueError if the number of devices is not that of all replicas.
        """
        counts = replicas or [1] * len(stages)
        if len(devices) != sum(counts):
            raise ValueError(f"{len(devices)} devices are not {sum(counts)}, one a replica")
        free, deployed = iter(devices), []
        for ops, runtime, count in zip(stages, runtimes, counts, strict=True):
            places = tuple(islice(free, count))
            if ops:
                deployed.append(Stage.on(ops, runtime, places, batch))
        return cls(tuple(deployed))

    def on_cores(self, cores: Mapping[str, Sequence[int]]) -> Deployment:
        """The deployment placed on cores: the replicas take those of their kind in order.

        Each thread takes one core. Raises ValueError if there are too few cores.
        """
        free = {kind: iter(numbers) for kind, numbers in cores.items()}

        def device(row: Row) -> str:
            numbers = list(islice(free[row.kind], row.threads))
            if len(numbers) < row.threads:
                raise ValueError(
                    f"{len(cores[row.kind])} cores are fewer than those of all replicas"
                )
            return f"cores:{','.join(map(str, numbers))}"

        return self._placed(device)

    def on_devices(self, devices: Sequence[tuple[str, str]], in_order: bool) -> Deployment:
        """The deployment placed on devices, given as (kind, name) pairs.

        A replica takes the first free device of its kind; with ``in_order``, devices before the
        last one taken are no longer free. Raises ValueError if there are too few devices.
        """
        free = list(devices)

        def device(row: Row) -> str:
            place = next((p for p, (kind, _) in enumerate(free) if kind == row.kind), None)
            if place is None:
                raise ValueError(f"{len(devices)} devices are fewer than those of all replicas")
            name = free[place][1]
            del free[0 if in_order else place : place + 1]
            return name

        return self._placed(device)

    def _placed(self, device: Callable[[Row], str]) -> Deployment:
        """The deployment with the device that ``device`` returns for the row of each replica."""
        stages = []
        for stage in self.stages:
            options = [
                replace(option, devices=tuple(device(option.row) for _ in range(option.replicas)))
                for option in stage.options
            ]
            stages.append(replace(stage, options=tuple(options)))
        return Deployment(tuple(stages))

    def with_runtimes(self, replacements: Mapping[str, str]) -> Deployment:
        """The same stages, each runtime among the keys replaced by its value."""

        def replaced(option: Option) -> Option:
            name = option.row.runtime
            return replace(option, row=replace(option.row, runtime=replacements.get(name, name)))

        stages = [replace(s, options=tuple(map(replaced, s.options))) for s in self.stages]
        return Deployment(tuple(stages))

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
        return tuple(stage.replicas for stage in self.stages)

    @property
    def threads(self) -> tuple[int, ...]:
        """The threads of a replica of each stage."""
        return tuple(stage.threads for stage in self.stages)

    @property
    def batch(self) -> int:
        """How many items are computed at once."""
        return self.stages[0].options[0].row.batch


def cores_of(device: str) -> tuple[int, ...]:
    """The core numbers in the name of a device; empty for a GPU, a server or a Ray node.

    Raises ValueError for an invalid range, and for core numbers from ``MOST_CORES`` on.
    """
    kind, _, rest = device.partition(":")
    if kind != "cores":
        return ()
    numbers: list[int] = []
    for part in rest.split(","):
        first, _, last = part.partition("-")
        if not int(first) <= int(last or first) < MOST_CORES:
            raise ValueError(f"{part} is no range of core numbers below {MOST_CORES}")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))


def on_its_machine(device: str) -> str:
    """The name of a device on its own machine: without the node of ``ray:NODE/cores:0``."""
    return device.partition("/")[2] if device.startswith("ray:") else device


def threads_of(device: str) -> int:
    """How many cores a device has, here or on a Ray node; one for any other device."""
    return len(cores_of(on_its_machine(device))) or 1


def resources_of(device: str) -> tuple[str, ...]:
    """The resources that stages on the same device share: its cores, a GPU or a server.

    A tracker finds a different server for each stage, so such stages share nothing.
    """
    cores = cores_of(on_its_machine(device))
    if cores or device.startswith("tracker:"):
        node = device.removesuffix(on_its_machine(device))
        return tuple(f"{node}core {number}" for number in cores)
    return (device,)
