"""The ways to run a model unsplit on the devices of its stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from autosplit.hardware.devices.device import Cores, Device, Rpc
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

    With ``by_hint`` there is one device. The runtime is then asked for throughput, and itself
    chooses how many batches of ``batch`` items it computes side by side.
    """

    runtime: str
    devices: tuple[Device, ...]
    by_hint: bool = False
    batch: int = 1

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that compute it, as ``Deployment`` has them."""
        return (self.runtime,)

    @property
    def name(self) -> str:
        """The name of the baseline."""
        device, *others = self.devices
        if self.by_hint:
            how = "throughput hint"
        elif others:
            how = f"{len(self.devices)} replicas"
        elif isinstance(device, Cores):
            how = counted(len(device.numbers), "thread")
        else:
            how = str(device)
        at_batch = "" if self.batch == 1 else f", batch {self.batch}"
        return f"{self.runtime}, {how}{at_batch}"

    def measured(self, measurement: Measurement) -> Baseline:
        """The baseline with its figures."""
        return Baseline(
            self.name,
            copies=len(self.devices),
            runtime=self.runtime,
            devices=() if self.by_hint else tuple(map(str, self.devices)),
            batch=self.batch,
            **vars(measurement),
        )

    def of_streams(self, streams: int) -> UnsplitRun:
        """The run with only as many replicas as are useful for ``streams`` streams with states."""
        return replace(self, devices=self.devices[: useful_replicas(len(self.devices), streams)])


def unsplit_runs(
    runtime: str, devices: Sequence[Device], has_hint: bool, batches: Sequence[int] = (1,)
) -> list[UnsplitRun]:
    """The runs on one core, all cores, each other device, and as replicas on every core and device.

    With ``has_hint`` the runtime is also asked for throughput on all cores. All these runs are
    repeated for each of the batches.
    """
    numbers = (d.numbers for d in devices if isinstance(d, Cores))
    cores = sorted({*chain.from_iterable(numbers)})
    others = list(dict.fromkeys(d for d in devices if not isinstance(d, Cores)))
    runs = []
    if cores:
        runs.append(UnsplitRun(runtime, (Cores((cores[0],)),)))
    if len(cores) > 1:
        all_cores = (Cores(tuple(cores)),)
        runs.append(UnsplitRun(runtime, all_cores))
        if has_hint:
            runs.append(UnsplitRun(runtime, all_cores, by_hint=True))
    # All servers of a tracker's key are equal for a baseline of one device.
    single = (d for d in others if not (isinstance(d, Rpc) and d.copy))
    runs += [UnsplitRun(runtime, (device,)) for device in single]
    replicas: list[Device] = [*(Cores((core,)) for core in cores), *others]
    if len(replicas) > 1:
        runs.append(UnsplitRun(runtime, tuple(replicas)))
    return [replace(run, batch=batch) for batch in batches for run in runs]


def strongest(baselines: Sequence[Baseline]) -> list[str]:
    """The names of the fastest baselines: those that a final comparison measures again."""
    fastest = sorted(baselines, key=lambda b: b.period_ms.median)[:COMPARED]
    return [b.name for b in baselines if b in fastest]
