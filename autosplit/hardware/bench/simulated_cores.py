"""Simulated hardware of cores, on which deployments of all shapes are measured.

A replica with w threads is as fast as 1 + (w - 1) * ``thread_share`` cores. Half of the variance of
an op's error is the same for all numbers of threads. Each busy core slows all others down.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import numpy as np

from autosplit.deployment import Deployment, cores_of
from autosplit.errors import ConfigError, Infeasible
from autosplit.graph import FusedGraph
from autosplit.hardware.bench.simulated import SimulatedBench, Simulation, exact
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.baselines import UnsplitRun
from autosplit.hardware.measurement.results import Accuracy, Baseline, Measurement
from autosplit.planner import CostModel, PlannedDeployment, evaluate_deployment, plan_cores
from autosplit.planner.problem.deployment import kinds_of_rows, row_numbers, useful_replicas
from autosplit.planner.problem.runtime_costs import of_device

_Shape = tuple[
    tuple[tuple[int, ...], ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]
]  # stages, replicas, threads, kinds


@dataclass(frozen=True)
class CoreSimulation(Simulation):
    """How the true costs of cores differ from the known ones.

    ``contention`` is that of each further busy core; ``thread_share`` is the share of a core that
    each further thread adds; ``speeds`` are those of the kinds of cores, by default all 1.
    """

    thread_share: float = 0.7
    speeds: Sequence[float] = ()


class SimulatedCores(SimulatedBench):
    """Implements Bench; its device i is a replica with ``thread_counts[i]`` threads.

    ``kinds``: the cores of each kind. Raises ConfigError where there are not as many speeds.
    """

    simulation: CoreSimulation

    def __init__(
        self,
        graph: FusedGraph,
        costs: CostModel,
        kinds: Sequence[Sequence[int]],
        thread_counts: Sequence[int],
        simulation: CoreSimulation,
    ) -> None:
        self.cores, self.thread_counts = tuple(chain(*kinds)), tuple(thread_counts)
        self.sizes = tuple(map(len, kinds))
        self._kind_of = {core: kind for kind, cores in enumerate(kinds) for core in cores}
        speeds = simulation.speeds or (1.0,) * len(kinds)
        if len(speeds) != len(kinds):
            raise ConfigError(
                f"simulated.speeds has {len(speeds)} numbers for {len(kinds)} kinds of cores; "
                "give one for each"
            )
        if costs.devices not in (None, len(kinds)):
            raise ConfigError(
                f"'{costs.name}' has times for {costs.devices} devices, but cores are of "
                f"{len(kinds)} kinds; list the cores of as many kinds"
            )
        rows, devices = [], []
        for threads, kind in row_numbers(self.thread_counts):
            speedup = speeds[kind] * (1 + (threads - 1) * simulation.thread_share)
            rows.append([time / speedup for time in of_device(costs.times, kind)])
            devices.append(f"cores:{','.join(map(str, kinds[kind][:threads]))}")
        if costs.devices is not None:
            costs = costs.on_devices(kinds_of_rows(self.thread_counts))
        known = replace(costs, times=tuple(map(tuple, rows)))
        super().__init__(graph, known, devices, simulation)
        # Its stream of random numbers is that of the hidden times.
        rng = np.random.default_rng((simulation.seed, 0))
        shape = (len(rows) + 1, len(costs.names))
        errors = simulation.error * math.sqrt(0.5) * rng.normal(size=shape)
        times = np.array(rows) * np.exp(errors[0] + errors[1:])
        overheads = tuple(o + simulation.overhead for o in costs.overheads)
        self.true = replace(known, times=tuple(map(tuple, times.tolist())), overheads=overheads)

    def baselines(self) -> Sequence[Baseline]:
        """One core and all cores of the first kind, and replicas on all of every kind."""
        whole = tuple(range(len(self.costs.names)))
        baselines = []
        numbers = [Cores((core,)) for core in self.cores]
        if self.costs.stateful:
            numbers = numbers[: useful_replicas(len(numbers), self.costs.streams)]
        first_kind = Cores(self.cores[: self.sizes[0]])
        for devices in dict.fromkeys([(numbers[0],), (first_kind,), tuple(numbers)]):
            threads = len(devices[0].numbers)
            costs = self._true_costs(len(devices) * threads)
            plans = []
            for kind, count in Counter(self._kind_of[d.numbers[0]] for d in devices).items():
                parts = [whole], [count], [threads]
                plans.append(evaluate_deployment(costs, *parts, self.thread_counts, [kind]))
            # The rates of unlike replicas add up.
            rate = math.fsum(1 / plan.period for plan in plans)
            period = plans[0].period if len(plans) == 1 else 1 / rate
            latency = max(plan.latency for plan in plans)
            figures = exact(period), exact(latency), (latency,), Accuracy(True, 0.0, 0.0, 1)
            baselines.append(UnsplitRun("simulated", devices).measured(Measurement(*figures)))
        return baselines

    def true_plan(self, deployment: Deployment) -> PlannedDeployment:
        """The true costs of a deployment; for tests and comparisons, never for a search."""
        return self._true_plan(*self._shape(deployment))

    def _shape(self, deployment: Deployment) -> _Shape:
        first = (cores_of(stage.devices[0])[0] for stage in deployment.stages)
        kinds = tuple(self._kind_of[core] for core in first)
        parts = deployment.split, deployment.replicas, deployment.threads
        return (*parts, kinds if len(self.sizes) > 1 else ())

    def optimum(self) -> PlannedDeployment:
        """The best deployment under the true costs, for tests and comparisons too.

        Raises Infeasible where none fits.
        """
        best: PlannedDeployment | None = None
        numbers = product(*(range(most + 1) for most in self.sizes))
        for used in sorted(numbers, key=sum, reverse=True)[:-1]:
            busy = sum(used)
            costs = self._true_costs(busy)
            # All work shared evenly is a bound: few numbers of cores have to be planned for.
            work = (np.array(costs.times).T * self.thread_counts).min(axis=1).sum() / busy
            if best is not None and work >= best.period:
                continue
            with contextlib.suppress(Infeasible):
                plan = plan_cores(costs, used, self.thread_counts)
                # It may use fewer cores, which then slow each other down less.
                plan = self._true_plan(plan.stages, plan.replicas, plan.threads, plan.kinds)
                best = plan if best is None else min(best, plan, key=lambda p: p.period)
        if best is None:
            raise Infeasible(f"no deployment of '{self.costs.name}' fits")
        return best

    def _true_plan(
        self,
        stages: Sequence[Sequence[int]],
        replicas: Sequence[int],
        threads: Sequence[int],
        kinds: Sequence[int],
    ) -> PlannedDeployment:
        costs = self._true_costs(sum(map(int.__mul__, replicas, threads)))
        return evaluate_deployment(costs, stages, replicas, threads, self.thread_counts, kinds)

    def _true_costs(self, busy: int) -> CostModel:
        """The true costs where some cores are busy."""
        times = np.array(self.true.times) * (1 + self.simulation.contention * (busy - 1))
        return replace(self.true, times=tuple(map(tuple, times.tolist())))

    def _noisy(self, deployment: Deployment, purpose: str, noise: float) -> tuple[float, ...]:
        parts = self._shape(deployment)
        # The parts are the seed, in which one kind of cores has no number.
        loads = self._true_plan(*parts).loads
        return self._with_noise(loads, noise, purpose, parts if parts[3] else parts[:3])
