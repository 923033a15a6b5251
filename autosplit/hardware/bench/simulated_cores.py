"""Simulated hardware of equal cores, on which deployments of all shapes are measured.

A replica with w threads is as fast as 1 + (w - 1) * ``thread_share`` cores. Half of the variance of
an op's error is the same for all numbers of threads. Each busy core slows all others down.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosplit.deployment import Deployment
from autosplit.errors import Infeasible
from autosplit.graph import FusedGraph
from autosplit.hardware.bench.simulated import SimulatedBench, Simulation, exact
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.baselines import UnsplitRun
from autosplit.hardware.measurement.results import Baseline
from autosplit.planner import CostModel, PlannedDeployment, evaluate_deployment, plan_deployment
from autosplit.planner.problem.deployment import useful_replicas


@dataclass(frozen=True)
class CoreSimulation(Simulation):
    """How equal cores differ from what is known of them.

    ``contention`` is that of each further busy core; ``thread_share`` is the share of a core that
    each further thread adds.
    """

    thread_share: float = 0.7


class SimulatedCores(SimulatedBench):
    """Implements Bench; its device i is a replica with ``thread_counts[i]`` threads."""

    simulation: CoreSimulation

    def __init__(
        self,
        graph: FusedGraph,
        costs: CostModel,
        cores: Sequence[int],
        thread_counts: Sequence[int],
        simulation: CoreSimulation,
    ) -> None:
        self.cores, self.thread_counts = tuple(cores), tuple(thread_counts)
        rows = []
        for threads in thread_counts:
            speedup = 1 + (threads - 1) * simulation.thread_share
            rows.append([time / speedup for time in costs.times[0]])
        known = replace(costs, times=tuple(map(tuple, rows)))
        devices = [f"cores:{','.join(map(str, cores[:threads]))}" for threads in thread_counts]
        super().__init__(graph, known, devices, simulation)
        # Its stream of random numbers is that of the hidden times.
        rng = np.random.default_rng((simulation.seed, 0))
        shape = (len(rows) + 1, len(costs.names))
        errors = simulation.error * math.sqrt(0.5) * rng.normal(size=shape)
        times = np.array(rows) * np.exp(errors[0] + errors[1:])
        overheads = tuple(o + simulation.overhead for o in costs.overheads)
        self.true = replace(known, times=tuple(map(tuple, times.tolist())), overheads=overheads)

    def baselines(self) -> Sequence[Baseline]:
        """One core, all cores and replicas."""
        whole = tuple(range(len(self.costs.names)))
        baselines = []
        numbers = [Cores((core,)) for core in self.cores]
        if self.costs.stateful:
            numbers = numbers[: useful_replicas(len(numbers), self.costs.streams)]
        for devices in dict.fromkeys([(numbers[0],), (Cores(self.cores),), tuple(numbers)]):
            name = UnsplitRun("simulated", devices).name
            plan = self._true_plan([whole], [len(devices)], [len(devices[0].numbers)])
            period, latency = exact(plan.period), exact(plan.latency)
            baselines.append(Baseline(name, period, latency, len(devices)))
        return baselines

    def true_plan(self, deployment: Deployment) -> PlannedDeployment:
        """The true costs of a deployment; for tests and comparisons, never for a search."""
        return self._true_plan(deployment.split, deployment.replicas, deployment.threads)

    def optimum(self) -> PlannedDeployment:
        """The best deployment under the true costs, for tests and comparisons too.

        Raises Infeasible where none fits.
        """
        best: PlannedDeployment | None = None
        for busy in range(len(self.cores), 0, -1):
            counts = [threads for threads in self.thread_counts if threads <= busy]
            costs = self._true_costs(busy).on_devices(range(len(counts)))
            # All work shared evenly is a bound: few numbers of cores have to be planned for.
            work = (np.array(costs.times).T * counts).min(axis=1).sum() / busy
            if best is not None and work >= best.period:
                continue
            with contextlib.suppress(Infeasible):
                plan = plan_deployment(costs, busy, thread_counts=counts)
                # It may use fewer cores, which then slow each other down less.
                plan = self._true_plan(plan.stages, plan.replicas, plan.threads)
                best = plan if best is None else min(best, plan, key=lambda p: p.period)
        if best is None:
            raise Infeasible(f"no deployment of '{self.costs.name}' fits")
        return best

    def _true_plan(
        self, stages: Sequence[Iterable[int]], replicas: Sequence[int], threads: Sequence[int]
    ) -> PlannedDeployment:
        busy = sum(map(int.__mul__, replicas, threads))
        costs = self._true_costs(busy)
        return evaluate_deployment(costs, stages, replicas, threads, self.thread_counts)

    def _true_costs(self, busy: int) -> CostModel:
        """The true costs where some cores are busy."""
        times = np.array(self.true.times) * (1 + self.simulation.contention * (busy - 1))
        return replace(self.true, times=tuple(map(tuple, times.tolist())))

    def _noisy(self, deployment: Deployment, purpose: str, noise: float) -> tuple[float, ...]:
        parts = deployment.split, deployment.replicas, deployment.threads
        return self._with_noise(self._true_plan(*parts).loads, noise, purpose, parts)
