"""Costs corrected by what was measured: op times and stage overheads as the posterior has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import evaluate
from autosplit.planner.problem.runtime_costs import least_costs
from autosplit.study.surrogate.gaussian_posterior import (
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


class Corrected(Protocol):
    """Costs after the update, of splits (CorrectedCosts) or of deployments."""

    @property
    def costs(self) -> CostModel:
        """The costs where every device is busy."""

    @property
    def contention_costs(self) -> Any:
        """The costs by how many devices are busy."""

    @property
    def error(self) -> float:
        """The relative error of a profiled op."""

    @property
    def noise(self) -> float:
        """The relative noise of a measured time."""

    @property
    def ratio(self) -> float:
        """The usual period over its slowest stage."""

    def draw(self, rng: np.random.Generator) -> Any:
        """Costs drawn from the posterior."""

    def period(self, candidate: Any, runtimes: Sequence[str] = (), /) -> float:
        """The expected period of a candidate in ms, in the fastest runtimes or in some."""

    def period_under(self, costs: Any, candidate: Any, runtimes: Sequence[str], /) -> float:
        """Its largest load of a device under some costs."""


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
        levels = _contention_levels(len(self.contention_costs.costs), posterior.devices)
        models = [
            corrected_model(self._prior, posterior.times, factors, overheads)
            for factors, overheads in posterior.draw(rng, levels)
        ]
        return ContentionCosts(tuple(models))

    def period(self, stages: Stages, runtimes: Sequence[str] = ()) -> float:
        """The expected period of a split in ms, in the fastest runtimes or in some."""
        return self.ratio * self.period_under(self.contention_costs, stages, runtimes)

    def period_under(
        self, costs: ContentionCosts, stages: Stages, runtimes: Sequence[str]
    ) -> float:
        """The largest load of a split in the runtimes of its stages, in the fastest without any."""
        model = costs.at(sum(map(bool, stages)))
        if runtimes:
            model = model.in_runtimes(runtimes)
        return max(evaluate(model, stages, allow_empty=True).loads)


def correct(
    costs: CostModel, devices: Sequence[str], measured: Sequence[Measured], empty: bool = False
) -> CorrectedCosts:
    """Correct ``costs`` (times in ms; a row a device, or one for all) by any number of trials.

    ``empty``: whether stages may be empty, so that their number differs.
    """
    count = len(devices)
    complete = [m for m in measured if len(m.stage_ms) == len(m.stages) == count]
    trials = most_informative(complete, max(2, REMEMBERED // count))
    times = every_row(costs, count)
    # What a device cannot run says nothing of it; `_corrected` leaves it infinite.
    times = np.where(np.isfinite(times), times, 0.0)
    rows = _stage_rows(costs, times, count, trials)
    between_runtimes = equal_correlation(len(costs.each_runtime))
    correlation = np.kron(between_runtimes, device_correlation(devices)).astype(np.float64)
    posteriors, weights = likely_posteriors(times, correlation, correlation, rows, count)
    models: list[CostModel] = []
    for level in _contention_levels(count if empty and trials else 1, count):
        factors, overheads = mean_corrections(posteriors, weights, level)
        models.append(corrected_model(costs, times, factors, overheads))
    # A period is a little longer than the longest stage: threads hand over and wait.
    ratios = [m.period_ms / max(m.stage_ms) for m in trials if max(m.stage_ms) > 0]
    ratio = min(max(float(np.median(ratios)), 0.5), 2.0) if ratios else 1.0
    error = mean_logarithm([p.error for p in posteriors], weights)
    noise = mean_logarithm([p.noise for p in posteriors], weights)
    contention_costs = ContentionCosts(tuple(models))
    return CorrectedCosts(contention_costs, error, noise, ratio, costs, posteriors, weights)


def mean_logarithm(values: Sequence[float], weights: Array) -> float:
    """The geometric mean of some values by their weights: their grid is logarithmic."""
    return math.exp(float(weights @ np.log(values)))


def _contention_levels(models: int, devices: int) -> tuple[float, ...]:
    """The contention for each number of stages at once; the highest for a single model."""
    if models == 1:
        return (1.0,)
    return tuple(contention_level(used, devices) for used in range(1, models + 1))


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
        profiled = np.array(_row_a_device(runtime.times, devices))
        rows = np.where(np.isinf(profiled), profiled, corrected[part]).tolist()
        old_overheads = _row_a_device(runtime.overheads, devices)
        new_overheads = np.maximum(0.0, np.array(old_overheads) + overheads[part]).tolist()
        new_runtimes.append(
            replace(
                runtime, times=_merged(list(map(tuple, rows))), overheads=_merged(new_overheads)
            )
        )
    if not costs.runtimes:
        return replace(costs, times=new_runtimes[0].times, overheads=new_runtimes[0].overheads)
    least_times, least_overheads = least_costs(new_runtimes)
    return replace(
        costs, times=least_times, overheads=least_overheads, runtimes=tuple(new_runtimes)
    )


def _merged(rows: list[T]) -> tuple[T, ...]:
    """One row for all devices where they are equal: that plans faster."""
    return tuple(rows[:1] if len(set(rows)) == 1 else rows)


def every_row(costs: CostModel, devices: int) -> Array:
    """The times of all ops: a row for each device in the first runtime, then in the next."""
    rows = [row for r in costs.each_runtime for row in _row_a_device(r.times, devices)]
    return np.array(rows, dtype=np.float64)


def _row_a_device(rows: Sequence[T], devices: int) -> list[T]:
    """The rows of a cost model, which has one for each device or one for all."""
    return [rows[0]] * devices if len(rows) == 1 else list(rows)


def _stage_rows(
    costs: CostModel, times: Array, count: int, trials: Sequence[Measured]
) -> StageRows:
    """A row for each measured stage that has ops; ``times`` has ``count`` rows a runtime."""
    names = [runtime.name for runtime in costs.each_runtime]
    rows: list[MeasuredStage] = []
    for trial in trials:
        level = contention_level(sum(map(bool, trial.stages)), count)
        model = costs.in_runtimes(trial.runtimes) if trial.runtimes else costs
        loads = evaluate(model, trial.stages, allow_empty=True).loads
        for device, ops in enumerate(trial.stages):
            if not ops:
                continue
            place = device
            if trial.runtimes:
                place += count * names.index(trial.runtimes[device])
            time = trial.stage_ms[device]
            rows.append(MeasuredStage(ops, place, level, loads[device], time))
    return stage_rows(times, rows)


class MeasuredStage(NamedTuple):
    """A measured stage: see StageRows, of which it becomes a row."""

    ops: tuple[int, ...]
    device: int
    contention: float
    prior: float
    measured: float


def stage_rows(times: Array, stages: Sequence[MeasuredStage]) -> StageRows:
    """The rows of some measured stages; ``times``: device by op."""
    ops = np.zeros((len(stages), times.shape[1]))
    for row, stage in zip(ops, stages, strict=True):
        row[list(stage.ops)] = times[stage.device, list(stage.ops)]
    return StageRows(
        ops,
        np.array([stage.device for stage in stages], dtype=np.int64),
        np.array([stage.contention for stage in stages]),
        np.array([stage.prior for stage in stages]),
        np.array([stage.measured for stage in stages]),
    )


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
