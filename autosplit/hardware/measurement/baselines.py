"""The ways to run a model unsplit on the devices of its stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.measurement.results import Baseline, Measurement
from autosplit.planner.problem import useful_replicas
from autosplit.units import counted

COMPARED = 4  # baselines in a final comparison at most
# The first measurement of a baseline is this many times shorter than that of a candidate, so its
# interval may be wider by the square root of this number.
BRIEFER = 4


@dataclass(frozen=True)
class UnsplitRun:
    """A baseline before it is measured: a copy of the model in ``runtime`` on each of ``devices``.

    With ``by_hint`` the runtime is asked for throughput on the one device and chooses by itself how
    many of ``batch`` items each it computes side by side.
    """

    runtime: str
    devices: tuple[Device, ...]
    by_hint: bool = False
    batch: int = 1

    @property
    def name(self) -> str:
        """What the baseline is called."""
        return self._name if self.batch == 1 else f"{self._name}, batch {self.batch}"

    @property
    def _name(self) -> str:
        if self.by_hint:
            return f"{self.runtime}, throughput hint"
        device, *others = self.devices
        if others:
            return f"{self.runtime}, {len(self.devices)} replicas"
        if isinstance(device, Cores):
            return f"{self.runtime}, {counted(len(device.numbers), 'thread')}"
        return f"{self.runtime}, {device}"

    def measured(self, measurement: Measurement) -> Baseline:
        """The baseline with its figures."""
        return Baseline(
            self.name,
            measurement.period_ms,
            measurement.latency_ms,
            len(self.devices),
            self.runtime,
            () if self.by_hint else tuple(map(str, self.devices)),
            measurement.stage_ms,
            measurement.accuracy.max_rel_error,
            measurement.disturbances,
            self.batch,
        )

    def of_streams(self, streams: int) -> UnsplitRun:
        """The run without the replicas that would get none of so few streams with states."""
        return replace(self, devices=self.devices[: useful_replicas(len(self.devices), streams)])


def unsplit_runs(
    runtime: str, devices: Sequence[Device], has_hint: bool, batches: Sequence[int] = (1,)
) -> list[UnsplitRun]:
    """One core, all cores, each other device, and replicas on every core and other device.

    With ``has_hint`` the runtime is also asked for throughput on all cores. Each is there at all of
    the batches.
    """
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
        runs.append(UnsplitRun(runtime, (Cores((cores[0],)),)))
    if len(cores) > 1:
        all_cores = (Cores(tuple(cores)),)
        runs.append(UnsplitRun(runtime, all_cores))
        if has_hint:
            runs.append(UnsplitRun(runtime, all_cores, by_hint=True))
    runs += [UnsplitRun(runtime, (device,)) for device in others.values()]
    replicas: list[Device] = [Cores((core,)) for core in cores]
    replicas += dict.fromkeys(device for device in devices if not isinstance(device, Cores))
    if len(replicas) > 1:
        runs.append(UnsplitRun(runtime, tuple(replicas)))
    return [replace(run, batch=batch) for batch in batches for run in runs]


def strongest(baselines: Sequence[Baseline]) -> list[str]:
    """The names of the fastest baselines: those that a final comparison measures again."""
    fastest = sorted(baselines, key=lambda b: b.period_ms.median)[:COMPARED]
    return [b.name for b in baselines if b in fastest]
