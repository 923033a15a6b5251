"""Costs corrected by what was measured: op times and stage overheads as the posterior has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import evaluate
from autosplit.study.surrogate.gaussian_posterior import (
    Array,
    Posterior,
    StageRows,
    contention_level,
    device_correlation,
    likely_posteriors,
)

T = TypeVar("T")

LEAST = 0.05  # no op is corrected below this share of its profiled time
REMEMBERED = 96  # measured stages that are looked at: half of the best trials, half of the latest


@dataclass(frozen=True)
class Measured:
    """A measured split: the time of each stage, the period and the latency in ms.

    The latency is 0 where it is not known.
    """

    number: int
    stages: Stages
    stage_ms: tuple[float, ...]
    period_ms: float
    latency_ms: float = 0.0


@dataclass(frozen=True)
class CorrectedCosts:
    """Costs after the update, with the ``error`` of the profile and the ``noise`` of a measurement.

    ``contention_costs``: by the number of stages that are not empty. ``ratio``: the usual period
    over its slowest stage, which is what hand-over and waiting add.
    """

    contention_costs: ContentionCosts
    error: float
    noise: float
    ratio: float
    _prior: CostModel
    _posteriors: tuple[Posterior, ...]
    _weights: Array

    @property
    def costs(self) -> CostModel:
        """The costs where every device runs a stage."""
        return self.contention_costs.costs[-1]

    def draw(self, rng: np.random.Generator) -> ContentionCosts:
        """Costs drawn from the posterior, error and noise too."""
        drawn = int(rng.choice(len(self._posteriors), p=self._weights))
        posterior = self._posteriors[drawn]
        levels = _contention_levels(len(self.contention_costs.costs), len(posterior.times))
        models = [
            _corrected(self._prior, posterior.times, factors, overheads)
            for factors, overheads in posterior.draw(rng, levels)
        ]
        return ContentionCosts(tuple(models))

    def period(self, stages: Stages) -> float:
        """The expected period of a split in ms."""
        model = self.contention_costs.at(sum(map(bool, stages)))
        return self.ratio * max(evaluate(model, stages, allow_empty=True).loads)


def correct(
    costs: CostModel, devices: Sequence[str], measured: Sequence[Measured], empty: bool = False
) -> CorrectedCosts:
    """Correct ``costs`` (times in ms; a row a device, or one for all) by any number of trials.

    ``empty``: whether stages may be empty, so that their number differs.
    """
    count = len(devices)
    complete = [m for m in measured if len(m.stage_ms) == len(m.stages) == count]
    trials = _most_informative(complete, max(2, REMEMBERED // count))
    times = np.array(_row_a_device(costs.times, count), dtype=np.float64)
    # What a device cannot run says nothing of it; `_corrected` leaves it infinite.
    times = np.where(np.isfinite(times), times, 0.0)
    rows = _stage_rows(costs, times, trials)
    posteriors, weights = likely_posteriors(times, device_correlation(devices), rows)
    models: list[CostModel] = []
    for level in _contention_levels(count if empty and trials else 1, count):
        factors, overheads = _mean_corrections(posteriors, weights, level)
        models.append(_corrected(costs, times, factors, overheads))
    # A period is a little longer than the longest stage: threads hand over and wait.
    ratios = [m.period_ms / max(m.stage_ms) for m in trials if max(m.stage_ms) > 0]
    ratio = min(max(float(np.median(ratios)), 0.5), 2.0) if ratios else 1.0
    # The grid is logarithmic, so the mean over it is a geometric one.
    error = math.exp(float(weights @ np.log([p.error for p in posteriors])))
    noise = math.exp(float(weights @ np.log([p.noise for p in posteriors])))
    contention_costs = ContentionCosts(tuple(models))
    return CorrectedCosts(contention_costs, error, noise, ratio, costs, posteriors, weights)


def _contention_levels(models: int, devices: int) -> tuple[float, ...]:
    """The contention for each number of stages at once; the highest for a single model."""
    if models == 1:
        return (1.0,)
    return tuple(contention_level(used, devices) for used in range(1, models + 1))


def _most_informative(measured: Sequence[Measured], count: int) -> list[Measured]:
    """The trials that tell most of where the best split is: half the best, half the latest."""
    if len(measured) <= count:
        return list(measured)
    # The best show where the optimum is, the latest what the search has just learned.
    best = sorted(measured, key=lambda m: m.period_ms)[: count // 2]
    latest = [m for m in measured if m not in best][-(count - len(best)) :]
    return sorted((*best, *latest), key=lambda m: m.number)


def _corrected(costs: CostModel, times: Array, factors: Array, overheads: Array) -> CostModel:
    """The costs with corrected times and overheads; what a device cannot run stays infinite."""
    # A draw may be negative, which no time is.
    corrected = times * np.maximum(factors, LEAST)
    profiled = np.array(_row_a_device(costs.times, len(times)))
    corrected = np.where(np.isinf(profiled), profiled, corrected)
    rows = [tuple(row) for row in corrected.tolist()]
    old_overheads = _row_a_device(costs.overheads, len(times))
    new_overheads = np.maximum(0.0, np.array(old_overheads) + overheads).tolist()
    # One row for all devices where they are equal: that plans faster.
    return replace(
        costs,
        times=tuple(rows[:1] if len(set(rows)) == 1 else rows),
        overheads=tuple(new_overheads[:1] if len(set(new_overheads)) == 1 else new_overheads),
    )


def _row_a_device(rows: Sequence[T], devices: int) -> list[T]:
    """The rows of a cost model, which has one for each device or one for all."""
    return [rows[0]] * devices if len(rows) == 1 else list(rows)


def _stage_rows(costs: CostModel, times: Array, trials: Sequence[Measured]) -> StageRows:
    """A row for each measured stage that has ops."""
    devices: list[int] = []
    contention: list[float] = []
    prior: list[float] = []
    measured: list[float] = []
    ops: list[Array] = []
    for trial in trials:
        level = contention_level(sum(map(bool, trial.stages)), len(times))
        loads = evaluate(costs, trial.stages, allow_empty=True).loads
        for device, members in enumerate(trial.stages):
            if not members:
                continue
            row = np.zeros(times.shape[1])
            row[list(members)] = times[device, list(members)]
            ops.append(row)
            devices.append(device)
            contention.append(level)
            prior.append(loads[device])
            measured.append(trial.stage_ms[device])
    return StageRows(
        np.array(ops).reshape(len(ops), times.shape[1]),
        np.array(devices, dtype=np.int64),
        np.array(contention),
        np.array(prior),
        np.array(measured),
    )


def _mean_corrections(
    posteriors: Sequence[Posterior], weights: Array, contention: float
) -> tuple[Array, Array]:
    """The corrections of all posteriors, averaged by their weights."""
    pairs = [posterior.corrections(posterior.weights, contention) for posterior in posteriors]
    factors = np.stack([factor for factor, _ in pairs])
    overheads = np.stack([overhead for _, overhead in pairs])
    # A matrix product would round equal rows differently.
    shares = weights[:, None]
    return (shares[:, None] * factors).sum(axis=0), (shares * overheads).sum(axis=0)
