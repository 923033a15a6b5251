"""Costs corrected by what was measured: op times and stage overheads as the posterior has them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.planner.batch.deployments import DeployedSplit, DeploymentEvaluator
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import kinds_of_rows
from autosplit.planner.problem.runtime_costs import least_costs
from autosplit.study.surrogate.gaussian_posterior import (
    OTHER_KIND,
    Array,
    Posterior,
    StageRows,
    contention_level,
    device_correlation,
    equal_correlation,
    likely_posteriors,
)

T = TypeVar("T")

LEAST = 0.05  # no op is corrected below this share of its profiled time
SCALE_OF_THREADS = 0.9  # correlation of the common scales of two numbers of threads
REMEMBERED = 96  # measured stages that are looked at: half of the best trials, half of the latest


@dataclass(frozen=True)
class Measured:
    """A measured split: the time of each stage, the period and the latency in ms.

    The latency is 0 where it is not known; ``runtimes`` are those of the stages where several
    compete. ``deployment`` is the split with replicas and threads in a study of deployments; then a
    time is that of one replica.
    """

    number: int
    stages: Stages
    stage_ms: tuple[float, ...]
    period_ms: float
    latency_ms: float = 0.0
    runtimes: tuple[str, ...] = ()
    deployment: DeployedSplit | None = None

    @property
    def candidate(self) -> Any:
        """The candidate of the study's space."""
        return self.deployment or self.stages


@dataclass(frozen=True)
class Corrected:
    """Costs after the update, with the ``error`` of the profile and the ``noise`` of a measurement.

    ``contention_costs``: by the number of busy devices or cores. ``ratio``: the usual period over
    its slowest stage, which is what hand-over and waiting add.
    """

    contention_costs: ContentionCosts
    error: float
    noise: float
    ratio: float
    _evaluator: BatchEvaluator[Any]  # of the profiled costs
    _posteriors: tuple[Posterior, ...]
    _weights: Array

    def draw(self, rng: np.random.Generator) -> ContentionCosts:
        """Costs drawn from the posterior, error and noise too."""
        drawn = int(rng.choice(len(self._posteriors), p=self._weights))
        posterior = self._posteriors[drawn]
        models = [
            corrected_model(self._evaluator.costs, posterior.times, factors, overheads)
            for factors, overheads in posterior.draw(rng, _levels(self.contention_costs.varies))
        ]
        return ContentionCosts(models[0], models[-1], self.contention_costs.most)

    def period(self, candidate: Any, runtimes: Sequence[str] = ()) -> float:
        """The expected period of a candidate in ms, in the fastest runtimes or in some."""
        return self.ratio * self.period_under(self.contention_costs, candidate, runtimes)

    def period_under(
        self, costs: ContentionCosts, candidate: Any, runtimes: Sequence[str]
    ) -> float:
        """The largest load of a stage under some costs, divided by what its replicas share."""
        shape = self._evaluator.shape(candidate)
        loads = shape.loads(costs.at(shape.busy), runtimes)
        return max(load / share for load, share in zip(loads, shape.shares, strict=True))


def correct(
    costs: CostModel, devices: Sequence[str], measured: Sequence[Measured], empty: bool = False
) -> Corrected:
    """Correct ``costs`` (times in ms; a row a device, or one for all) by any number of trials.

    ``empty``: whether stages may be empty, so that their number differs.
    """
    count, kinds = len(devices), device_correlation(devices)
    complete = [m for m in measured if len(m.stage_ms) == len(m.stages) == count]
    trials = most_informative(complete, max(2, REMEMBERED // count))
    varies = empty and bool(trials)
    return _correct(BatchEvaluator(costs), trials, (kinds, kinds), most=count, varies=varies)


def correct_deployments(
    costs: CostModel, thread_counts: tuple[int, ...], cores: int, measured: Sequence[Measured]
) -> Corrected:
    """Correct ``costs``, a row for each of ``thread_counts``, by measured deployments.

    The posterior is that of splits, with numbers of threads in place of devices: an op's errors for
    two numbers of threads are correlated by half. Numbers of threads share most of the scale: the
    profile is wrong for all of them by the same clock, and busy cores slow all of them down.
    """
    trials = most_informative(measured, REMEMBERED // 2)
    complete = [m for m in trials if m.deployment and len(m.stage_ms) == len(m.stages)]
    kind = np.array(kinds_of_rows(thread_counts))
    kinds, scales = equal_correlation(len(kind)), equal_correlation(len(kind), SCALE_OF_THREADS)
    # Cores of another kind have another clock.
    scales = np.where(kind[:, None] == kind, scales, OTHER_KIND)
    evaluator = DeploymentEvaluator(costs, thread_counts)
    return _correct(evaluator, complete, (kinds, scales), most=cores, varies=True)


def _correct(
    evaluator: BatchEvaluator[Any],
    trials: Sequence[Measured],
    correlations: tuple[Array, Array],
    *,
    most: int,
    varies: bool,
) -> Corrected:
    """The costs corrected by some trials, whose stages run on up to ``most`` devices.

    ``correlations``: of the errors and of the scales of the rows of the costs.
    """
    costs, count = evaluator.costs, len(correlations[0])
    # A row for each device in the first runtime, then in the next.
    every_row = [np.broadcast_to(r.times, (count, len(costs.names))) for r in costs.each_runtime]
    times = np.array(every_row, dtype=np.float64).reshape(-1, len(costs.names))
    # What a device cannot run says nothing of it; `corrected_model` leaves it infinite.
    times = np.where(np.isfinite(times), times, 0.0)
    between_runtimes = equal_correlation(len(costs.each_runtime))
    correlation, scale_correlation = (
        np.asarray(np.kron(between_runtimes, one), dtype=np.float64) for one in correlations
    )
    ratios: list[float] = []
    for trial in trials:
        shares = evaluator.shape(trial.candidate).shares
        slowest = max(map(operator.truediv, trial.stage_ms, shares))
        # A period is a little longer than the longest stage: threads hand over and wait.
        if slowest > 0:
            ratios.append(trial.period_ms / slowest)
    rows = _stage_rows(evaluator, trials, times, most)
    posteriors, weights = likely_posteriors(times, correlation, scale_correlation, rows, count)
    models = [
        corrected_model(costs, times, *mean_corrections(posteriors, weights, level))
        for level in _levels(varies)
    ]
    return Corrected(
        ContentionCosts(models[0], models[-1], most),
        mean_logarithm([p.error for p in posteriors], weights),
        mean_logarithm([p.noise for p in posteriors], weights),
        min(max(float(np.median(ratios)), 0.5), 2.0) if ratios else 1.0,
        evaluator,
        posteriors,
        weights,
    )


def _levels(varies: bool) -> tuple[float, ...]:
    """The levels of contention that costs are made for: alone and all busy, or the latter only."""
    return (0.0, 1.0) if varies else (1.0,)


def mean_logarithm(values: Sequence[float], weights: Array) -> float:
    """The geometric mean of some values by their weights: their grid is logarithmic."""
    return math.exp(float(weights @ np.log(values)))


def most_informative(measured: Sequence[Measured], count: int) -> list[Measured]:
    """The trials that tell most of where the best split is: half the best, half the latest."""
    if len(measured) <= count:
        return list(measured)
    # The best show where the optimum is, the latest what the search has just learned.
    best = sorted(measured, key=lambda m: m.period_ms)[: count // 2]
    latest = [m for m in measured if m not in best][-(count - len(best)) :]
    return sorted((*best, *latest), key=lambda m: m.number)


def corrected_model(costs: CostModel, times: Array, factors: Array, overheads: Array) -> CostModel:
    """The costs with corrected times and overheads; what a device cannot run stays infinite."""
    runtimes = costs.each_runtime
    # A draw may be negative, which no time is.
    corrected = times * np.maximum(factors, LEAST)
    devices = len(times) // len(runtimes)
    new_runtimes = []
    for number, runtime in enumerate(runtimes):
        part = slice(number * devices, (number + 1) * devices)
        profiled = np.array(runtime.times)
        rows = np.where(np.isinf(profiled), profiled, corrected[part]).tolist()
        new_overheads = np.maximum(0.0, np.array(runtime.overheads) + overheads[part]).tolist()
        new_times = _merged(list(map(tuple, rows)))
        new_runtimes.append(replace(runtime, times=new_times, overheads=_merged(new_overheads)))
    if not costs.runtimes:
        return replace(costs, times=new_runtimes[0].times, overheads=new_runtimes[0].overheads)
    least_times, least_overheads = least_costs(new_runtimes)
    return replace(
        costs, times=least_times, overheads=least_overheads, runtimes=tuple(new_runtimes)
    )


def _merged(rows: list[T]) -> tuple[T, ...]:
    """One row for all devices where they are equal: that plans faster."""
    return tuple(rows[:1] if len(set(rows)) == 1 else rows)


def _stage_rows(
    evaluator: BatchEvaluator[Any], trials: Sequence[Measured], times: Array, most: int
) -> StageRows:
    """The stages of some trials that have ops; ``times``: row of the costs by op."""
    names = [runtime.name for runtime in evaluator.costs.each_runtime]
    profiled: list[Array] = []
    columns: list[tuple[float, ...]] = []
    for trial in trials:
        shape = evaluator.shape(trial.candidate)
        loads = shape.loads(evaluator.costs, trial.runtimes)
        level = contention_level(shape.busy, most)
        for stage, (row, ops) in enumerate(shape.parts):
            if not ops:
                continue
            if trial.runtimes:
                row += len(times) // len(names) * names.index(trial.runtimes[stage])
            is_in_stage = np.zeros(times.shape[1], dtype=bool)
            is_in_stage[list(ops)] = True
            profiled.append(np.where(is_in_stage, times[row], 0.0))
            columns.append((row, level, loads[stage], trial.stage_ms[stage]))
    rows, *others = np.array(columns, dtype=np.float64).reshape(-1, 4).T.copy()
    ops_ms = np.array(profiled).reshape(-1, times.shape[1])
    return StageRows(ops_ms, rows.astype(np.int64), *others)


def mean_corrections(
    posteriors: Sequence[Posterior], weights: Array, contention: float
) -> tuple[Array, Array]:
    """The corrections of all posteriors, averaged by their weights."""
    pairs = [posterior.corrections(posterior.weights, contention) for posterior in posteriors]
    factors = np.stack([factor for factor, _ in pairs])
    overheads = np.stack([overhead for _, overhead in pairs])
    # A matrix product would round equal rows differently.
    shares = weights[:, None]
    return (shares[:, None] * factors).sum(axis=0), (shares * overheads).sum(axis=0)
