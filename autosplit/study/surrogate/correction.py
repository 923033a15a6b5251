"""Costs corrected by measurements: the posterior of op times and stage overheads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosplit.deployment import Stage
from autosplit.planner.batch import Batch, BatchEvaluator
from autosplit.planner.costs import CostModel
from autosplit.study.surrogate.posterior import (
    Array,
    Posterior,
    Prior,
    StageRows,
    correlations,
    likely_posteriors,
)

LEAST = 0.05  # no op is corrected below this share of its known time
REMEMBERED = 96  # measured stages that are used: half of the best trials, half of the latest
DIGITS = 9  # to which values and gains are rounded before they are compared
USUAL_STAGES = 5  # of a deployment where any number is allowed


@dataclass(frozen=True)
class Measured:
    """A measured deployment: the time of a replica of each stage, the period and the latency in ms.

    The latency is 0 where it is not known.
    """

    number: int
    stages: tuple[Stage, ...]
    stage_ms: tuple[float, ...]
    period_ms: float
    latency_ms: float = 0.0


@dataclass(frozen=True, eq=False)
class Factors:
    """Costs as factors on the known times, row by op, and overheads of each row in ms.

    The first axis of the factors has two entries: for stages that run alone, and for stages beside
    which all other devices are busy. The next axis, the first of the overheads, may be draws.
    """

    factors: Array
    overheads: Array

    def __getitem__(self, draw: int) -> Factors:
        """One of the draws."""
        return Factors(self.factors[:, draw], self.overheads[draw])


@dataclass(frozen=True, eq=False)
class Corrected:
    """The corrected costs, and the relative ``noise`` of a measurement.

    ``ratio``: the usual period divided by that of its slowest stage, since hand-over and waiting
    take time too; ``latency_ratio``: the usual latency divided by the sum of its stages.
    """

    evaluator: BatchEvaluator
    mean: Factors
    noise: float
    ratio: float
    latency_ratio: float
    _posteriors: tuple[Posterior, ...]
    _weights: Array

    def draw(self, rng: np.random.Generator, count: int) -> Factors:
        """Draw costs from the posterior, over all likely pairs of error and noise."""
        chosen = rng.choice(len(self._posteriors), size=count, p=self._weights)
        table = self.evaluator.times.shape
        factors, overheads = np.empty((2, count, *table)), np.empty((count, table[0]))
        for number in np.unique(chosen):
            here = chosen == number
            drawn = self._posteriors[number].draw(rng, int(here.sum()))
            factors[:, here], overheads[here] = drawn
        return _factors(self.evaluator, factors, overheads)

    def loads(self, batch: Batch, costs: Factors) -> Array:
        """The load of each option of a batch: the more devices are busy, the slower is each."""
        question = self.evaluator.question
        busy = batch.loads(batch.part_loads(costs.factors[1], costs.overheads))
        # Where deployments do not differ in how many devices they take, all are busy.
        if question.stages is not None or question.count == 1:
            return busy
        alone = batch.loads(batch.part_loads(costs.factors[0], costs.overheads))
        most = question.count
        level = np.clip((batch.busy - 1) / max(1, most - 1), 0.0, 1.0)[:, None, None]
        with np.errstate(invalid="ignore"):
            mixed = alone + level * (busy - alone)
        return np.asarray(np.where(np.isinf(busy), math.inf, mixed))

    def period(self, stages: tuple[Stage, ...]) -> float:
        """The expected period of a deployment in ms."""
        batch = self.evaluator.batch([stages])
        return self.ratio * float(batch.periods(self.loads(batch, self.mean))[0])

    def model(self, costs: Factors) -> CostModel:
        """The cost table with all devices busy; times of ops that cannot run stay infinite."""
        known, rows = self.evaluator.costs, []
        for row, factors, overhead in zip(
            known.rows, costs.factors[1], rounded(costs.overheads).tolist(), strict=True
        ):
            times = rounded(np.where(np.isinf(row.times), row.times, row.times * factors))
            rows.append(replace(row, times=tuple(times.tolist()), overhead=overhead))
        return replace(known, rows=tuple(rows))


def rounded(values: Array) -> Array:
    """Round off the last digits of values, which differ with what a process has summed up before.

    Equal candidates then have equal values in every process, and a resumed study makes the same
    choices as one that was not interrupted.
    """
    mantissas, exponents = np.frexp(values)
    with np.errstate(over="ignore"):
        return np.ldexp(mantissas.round(DIGITS), exponents)


def correct(evaluator: BatchEvaluator, measured: Sequence[Measured]) -> Corrected:
    """The costs corrected by any number of measured deployments."""
    question = evaluator.question
    usual = question.stages or min(question.count, USUAL_STAGES)
    complete = [m for m in measured if len(m.stage_ms) == len(m.stages) > 0]
    trials = most_informative(complete, max(2, REMEMBERED // usual))
    rows = [costs.row for costs in evaluator.costs.rows]
    batch = evaluator.batch([trial.stages for trial in trials])
    measured_rows = _stage_rows(evaluator, batch, trials)
    prior = Prior(evaluator.times, *correlations(rows), measured_rows, usual)
    posteriors, weights = likely_posteriors(prior)
    corrections = [posterior.corrections(posterior.weights) for posterior in posteriors]
    factors, overheads = map(np.stack, zip(*corrections, strict=True))
    mean = _factors(evaluator, np.tensordot(weights, factors, 1), weights @ overheads)
    # The geometric mean, as the grid of the noises is logarithmic.
    noise = math.exp(float(weights @ np.log([p.noise for p in posteriors])))
    ratios = _ratios(batch, trials)
    return Corrected(evaluator, mean, noise, *ratios, posteriors, weights)


def _factors(evaluator: BatchEvaluator, factors: Array, overheads: Array) -> Factors:
    """The costs after corrections, limited below: a draw may be negative, but no time is."""
    return Factors(np.maximum(factors, LEAST), np.maximum(evaluator.overheads + overheads, 0.0))


def _ratios(batch: Batch, trials: Sequence[Measured]) -> tuple[float, float]:
    """The usual ratios of periods and latencies to stage times: threads hand over and wait."""
    periods, latencies = [], []
    for trial, replicas, share in zip(trials, batch.replicas, batch.share, strict=True):
        count = len(trial.stages)
        divisor = np.where(share > 0, share, replicas.sum(axis=1))[:count]
        slowest = max(np.array(trial.stage_ms) / divisor)
        if slowest > 0:
            periods.append(trial.period_ms / slowest)
            if trial.latency_ms > 0:
                items = trial.stages[0].options[0].row.batch  # a lone item takes as long as a batch
                latencies.append(trial.latency_ms / (items * sum(trial.stage_ms)))
    ratio = min(max(float(np.median(periods)), 0.5), 2.0) if periods else 1.0
    return ratio, float(np.median(latencies)) if latencies else 1.0


def most_informative(measured: Sequence[Measured], count: int) -> list[Measured]:
    """The trials that tell most about the optimum: half of them the best, half the latest."""
    if len(measured) <= count:
        return list(measured)
    # The best show where the optimum is, the latest what the search has just learned.
    best = sorted(measured, key=lambda m: m.period_ms)[: count // 2]
    latest = [m for m in measured if m not in best][-(count - len(best)) :]
    return sorted((*best, *latest), key=lambda m: m.number)


def _stage_rows(evaluator: BatchEvaluator, batch: Batch, trials: Sequence[Measured]) -> StageRows:
    """The stages of some trials whose replicas are all of one row."""
    known = batch.part_loads(np.ones_like(evaluator.times), evaluator.overheads)
    most = evaluator.question.count
    places, columns = [], []
    for n, trial in enumerate(trials):
        level = (batch.busy[n] - 1) / (most - 1) if most > 1 else 1.0
        for s, stage in enumerate(trial.stages):
            place = batch.parts[n, s, 0]
            if len(stage.options) == 1 and known[place] < math.inf:
                places.append(place)
                columns.append((batch.row[place], level, known[place], trial.stage_ms[s]))
    rows, *others = np.array(columns, dtype=np.float64).reshape(-1, 4).T.copy()
    ops_ms = batch.work[np.array(places, dtype=np.intp)].reshape(-1, evaluator.times.shape[1])
    return StageRows(ops_ms, rows.astype(np.int64), *others)
