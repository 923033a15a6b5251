"""Costs on equal cores corrected by measured deployments.

The posterior is that of splits, with numbers of threads in place of devices: an op's errors for two
numbers of threads are correlated by half. Half of the common scale grows with the number of busy
cores, whether they run stages, replicas or threads. Numbers of threads share most of the scale:
the profile is wrong for all of them by the same clock, and busy cores slow all of them down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosplit.planner.batch.deployments import CoreContention, DeployedSplit, loads_in
from autosplit.planner.problem.cost_model import CostModel
from autosplit.study.surrogate.cost_correction import (
    REMEMBERED,
    Measured,
    MeasuredStage,
    corrected_model,
    every_row,
    mean_corrections,
    mean_logarithm,
    most_informative,
    stage_rows,
)
from autosplit.study.surrogate.gaussian_posterior import (
    OTHER_KIND,
    Array,
    Posterior,
    contention_level,
    equal_correlation,
    likely_posteriors,
)

SCALE_OF_THREADS = 0.9  # correlation of the common scales of two numbers of threads


@dataclass(frozen=True)
class CorrectedDeployments:
    """See CorrectedCosts: the same for deployments."""

    contention_costs: CoreContention
    error: float
    noise: float
    ratio: float
    _thread_counts: tuple[int, ...]
    _prior: CostModel
    _posteriors: tuple[Posterior, ...]
    _weights: Array

    @property
    def costs(self) -> CostModel:
        """The costs where all cores are busy."""
        return self.contention_costs.all_busy

    def draw(self, rng: np.random.Generator) -> CoreContention:
        """Costs drawn from the posterior, error and noise too."""
        posterior = self._posteriors[int(rng.choice(len(self._posteriors), p=self._weights))]
        alone, all_busy = (
            corrected_model(self._prior, posterior.times, factors, overheads)
            for factors, overheads in posterior.draw(rng, (0.0, 1.0))
        )
        return CoreContention(alone, all_busy, self.contention_costs.cores)

    def period(self, deployment: DeployedSplit, runtimes: Sequence[str] = ()) -> float:
        """The expected period of a deployment in ms, in the fastest runtimes or in some."""
        return self.ratio * self.period_under(self.contention_costs, deployment, runtimes)

    def period_under(
        self, costs: CoreContention, deployment: DeployedSplit, runtimes: Sequence[str]
    ) -> float:
        """The largest load under some costs, divided by its replicas."""
        model = costs.at(deployment.cores)
        loads = loads_in(model, deployment, self._thread_counts, runtimes)
        pairs = zip(loads, deployment.replicas, strict=True)
        return max(load / replicas for load, replicas in pairs)


def correct_deployments(
    costs: CostModel, thread_counts: tuple[int, ...], cores: int, measured: Sequence[Measured]
) -> CorrectedDeployments:
    """Correct ``costs``, a row for each of ``thread_counts``, by measured deployments."""
    rows: list[MeasuredStage] = []
    ratios: list[float] = []
    names, count = [runtime.name for runtime in costs.each_runtime], len(thread_counts)
    times = every_row(costs, count)
    # What a runtime cannot compute says nothing of it.
    times = np.where(np.isfinite(times), times, 0.0)
    for trial in most_informative(measured, REMEMBERED // 2):
        chosen = trial.deployment
        if chosen is None or len(trial.stage_ms) != len(chosen.stages):
            continue
        level = contention_level(chosen.cores, cores)
        loads = loads_in(costs, chosen, thread_counts, trial.runtimes)
        slowest = 0.0
        for stage, ops in enumerate(chosen.stages):
            row, time = thread_counts.index(chosen.threads[stage]), trial.stage_ms[stage]
            if trial.runtimes:
                row += count * names.index(trial.runtimes[stage])
            rows.append(MeasuredStage(ops, row, level, loads[stage], time))
            slowest = max(slowest, time / chosen.replicas[stage])
        if slowest > 0:
            ratios.append(trial.period_ms / slowest)
    between_runtimes = equal_correlation(len(names))
    correlation, scale_correlation = (
        np.asarray(np.kron(between_runtimes, equal_correlation(count, share)), dtype=np.float64)
        for share in (OTHER_KIND, SCALE_OF_THREADS)
    )
    prior = times, correlation, scale_correlation
    posteriors, weights = likely_posteriors(*prior, stage_rows(times, rows), count)
    alone, all_busy = (
        corrected_model(costs, times, *mean_corrections(posteriors, weights, level))
        for level in (0.0, 1.0)
    )
    return CorrectedDeployments(
        CoreContention(alone, all_busy, cores),
        mean_logarithm([p.error for p in posteriors], weights),
        mean_logarithm([p.noise for p in posteriors], weights),
        min(max(float(np.median(ratios)), 0.5), 2.0) if ratios else 1.0,
        thread_counts,
        costs,
        posteriors,
        weights,
    )
