"""Costs corrected by what was measured: a Gaussian update of op times and stage overheads from stage times.

Model: the true time of op i on device d is its profiled time times 1 + g_d + x_i,d. ``x`` is the op's own error with
relative deviation ``error``, ``g`` a common scale (contention, clock) and each stage adds an overhead o_d. A measured
stage time is the sum over its ops, its transfers and o_d, with relative noise. All are Gaussian, so the posterior
given the measured stages is linear algebra on one matrix with a row per measured stage (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, section 2.2). ``error`` and the noise are those of a small grid that
make the measurements most likely (section 5.2). Devices of one kind (``cores:0``, ``cores:1``) share their errors,
others by half. Where stages may stay empty half of the variance of g grows with the stages that run at once: what they
slow each other down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from autosplit.hardware.bench import Stages
from autosplit.planner.costs import CostModel
from autosplit.planner.split import evaluate
from autosplit.study.crowd import Crowd

Array = NDArray[np.float64]
_Row = TypeVar("_Row")

ERRORS = (0.01, 0.03, 0.08, 0.2, 0.4, 0.8)  # relative error of one profiled op
NOISES = (0.003, 0.01, 0.02, 0.05, 0.1)  # relative noise of one measured stage time
_USUAL_ERROR, _USUAL_NOISE = 0.2, 0.02  # centre of the prior over the grids, one unit of log deviation wide
_UNLIKELY = 6.0  # difference of log likelihoods beyond which an error and noise are left out
SCALE = 0.3  # relative deviation of the common scale of a device
OVERHEAD = 0.05  # deviation of a stage's overhead, relative to the mean stage
OTHER_KIND = 0.5  # correlation of errors between devices of different kinds
LEAST = 0.05  # no op is corrected below this share of its profiled time
REMEMBERED = 96  # measured stages that the update looks at: half of the best trials, half of the latest


@dataclass(frozen=True)
class Measured:
    """One measured split: the time of each stage, the period and the latency, in ms; 0 for a latency not known."""

    number: int
    stages: Stages
    stage_ms: tuple[float, ...]
    period_ms: float
    latency_ms: float = 0.0


@dataclass(frozen=True)
class _Rows:
    """Measured stages as rows: the profiled time of their ops (else 0), their device, prior and measured time in ms.

    ``crowd``: how many of the devices ran stages beside it, from 0 for none to 1 for all.
    """

    ops: Array
    device: NDArray[np.int64]
    crowd: Array
    prior: Array
    measured: Array

    @cached_property
    def totals(self) -> Array:
        """The profiled time of each stage."""
        return np.asarray(self.ops.sum(axis=1))

    @cached_property
    def shared(self) -> Array:
        """For each pair of stages the sum of squares of the ops in both."""
        return np.asarray(self.ops @ self.ops.T)


@dataclass(frozen=True)
class Corrected:
    """Costs after the update: ``costs`` with corrected times and overheads, ``error`` and ``noise`` as found.

    ``crowd`` are the costs by how many stages are not empty, ``costs`` those where none is. ``ratio`` is the usual period
    over its slowest stage: what hand-over and waiting add.
    """

    crowd: Crowd
    error: float
    noise: float
    ratio: float
    _prior: CostModel
    _updates: tuple[_Update, ...]
    _likely: Array

    @property
    def costs(self) -> CostModel:
        """The costs where every device runs a stage."""
        return self.crowd.costs[-1]

    def stage_deviations(self, stages: Stages) -> tuple[float, ...]:
        """For each stage of a split the standard deviation of its time, in ms, under the posterior."""
        return self._updates[int(self._likely.argmax())].deviations(stages)

    def draw(self, rng: np.random.Generator) -> Crowd:
        """Costs drawn from the posterior, error and noise too: what may be true, as likely as it is."""
        update = self._updates[int(rng.choice(len(self._updates), p=self._likely))]
        shares = _shares(len(self.crowd.costs), len(update.times))
        return Crowd(tuple(_with(self._prior, update.times, *found) for found in update.draw(rng, shares)))

    def period(self, stages: Stages, deviations: float = 0.0) -> float:
        """The period expected of a split, in ms, each stage taken ``deviations`` standard deviations faster."""
        loads = evaluate(self.crowd.of(sum(map(bool, stages))), stages, allow_empty=True).loads
        if deviations:
            loads = tuple(t - deviations * s for t, s in zip(loads, self.stage_deviations(stages), strict=True))
        return self.ratio * max(loads)


def correct(costs: CostModel, devices: Sequence[str], measured: Sequence[Measured], empty: bool = False) -> Corrected:
    """Update ``costs`` (times in ms; a row a device, or one for all) by what was measured, in any number of trials.

    ``empty``: whether stages may be empty, so that their number differs.
    """
    recent = [m for m in measured if len(m.stage_ms) == len(m.stages) == len(devices)]
    recent = _telling(recent, max(2, REMEMBERED // len(devices)))
    times = np.array([costs.times[d if len(costs.times) > 1 else 0] for d in range(len(devices))], dtype=np.float64)
    times = np.where(np.isfinite(times), times, 0.0)
    rows = _rows(costs, times, recent)
    updates, likely = _weighed(times, _kinship(devices), rows)
    shares = _shares(len(devices) if empty and recent else 1, len(devices))
    crowd = Crowd(tuple(_with(costs, times, *_expected(updates, likely, share)) for share in shares))
    ratios = [m.period_ms / max(m.stage_ms) for m in recent if max(m.stage_ms) > 0]
    ratio = min(max(float(np.median(ratios)), 0.5), 2.0) if ratios else 1.0
    error, noise = (
        math.exp(float(likely @ np.log(x))) for x in zip(*((u.error, u.noise) for u in updates), strict=True)
    )
    return Corrected(crowd, error, noise, ratio, costs, updates, likely)


def _shares(models: int, devices: int) -> tuple[float, ...]:
    """For each number of stages that run at once how crowded that is; for a single model as crowded as can be."""
    return tuple(_crowded(used, devices) for used in range(1, models + 1)) if models > 1 else (1.0,)


def _crowded(used: int, devices: int) -> float:
    return (used - 1) / (devices - 1) if devices > 1 else 1.0


@dataclass(frozen=True)
class _Update:
    """The posterior for one pair of error and noise. ``times``: device by op; ``kinship``: correlation of devices."""

    times: Array
    kinship: Array
    rows: _Rows
    error: float
    noise: float

    @cached_property
    def overhead_variance(self) -> float:
        return float((OVERHEAD * self.times.sum(axis=1).mean() / len(self.times)) ** 2)

    @cached_property
    def covariance(self) -> Array:
        """Of the measured stages, noise included."""
        rows = self.rows
        covariance = self._covariance(rows.shared, rows.totals, rows.device, rows.crowd)
        spread = (self.noise * rows.measured) ** 2 + 1e-9 * np.diag(covariance) + 1e-18
        return np.asarray(covariance + np.diag(spread), dtype=np.float64)

    @cached_property
    def cholesky(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)

    @cached_property
    def weights(self) -> Array:
        return self.solve(self.rows.measured - self.rows.prior)

    def _covariance(self, shared: Array, totals: Array, device: NDArray[np.int64], crowd: Array) -> Array:
        """Prior covariance of some stages with the measured ones."""
        common = SCALE**2 * np.outer(totals, self.rows.totals) * (0.5 + 0.5 * np.outer(crowd, self.rows.crowd))
        kinship = self.kinship[np.ix_(device, self.rows.device)]
        return np.asarray((self.error**2 * shared + common + self.overhead_variance) * kinship)

    def log_likelihood(self) -> float:
        residual = self.rows.measured - self.rows.prior
        log_prior = -0.5 * (math.log(self.error / _USUAL_ERROR) ** 2 + math.log(self.noise / _USUAL_NOISE) ** 2)
        return log_prior - 0.5 * float(residual @ self.weights) - float(np.log(np.diag(self.cholesky)).sum())

    def corrections(self, weights: Array, crowd: float) -> tuple[Array, Array]:
        """Per device and op the factor on its profiled time, and per device the overhead to add, in ms.

        ``crowd`` as in the rows: how crowded the devices are that the factors are for.
        """
        pull = self.kinship[:, self.rows.device] * weights  # device by measured stage
        common = SCALE**2 * (pull @ (self.rows.totals * (0.5 + 0.5 * crowd * self.rows.crowd)))
        return 1 + self.error**2 * (pull @ self.rows.ops) + common[:, None], self.overhead_variance * pull.sum(axis=1)

    def draw(self, rng: np.random.Generator, crowds: Sequence[float]) -> list[tuple[Array, Array]]:
        """Factors and overheads drawn from the posterior: drawn from the prior, then corrected by what they miss.

        One pair for each of ``crowds``, all of one draw.
        (Matheron's rule; Wilson et al., Efficiently sampling functions from Gaussian process posteriors, 2020, section 3.)
        """
        values, vectors = np.linalg.eigh(self.kinship)
        _, first, kind = np.unique(self.kinship, axis=0, return_index=True, return_inverse=True)
        root = (vectors * np.sqrt(np.maximum(values, 0.0)))[first[kind.ravel()]]  # alike to the last digit
        kinds, ops = self.times.shape
        own = self.error * (root @ rng.normal(size=(kinds, ops)))
        alone = SCALE * (root @ rng.normal(size=(kinds, 1)))
        overheads = math.sqrt(self.overhead_variance) * (root @ rng.normal(size=kinds))
        rows, device = self.rows, self.rows.device
        errors = rng.normal(size=len(device))
        among = np.zeros((kinds, 1))
        if len(crowds) > 1:  # half of the common scale is there for a stage by itself, half comes with the others
            alone, among = math.sqrt(0.5) * np.stack([alone, SCALE * (root @ rng.normal(size=(kinds, 1)))])
        common = (alone + among * rows.crowd)[device, np.arange(len(device))]
        stages = rows.prior + (rows.ops * own[device]).sum(axis=1) + rows.totals * common + overheads[device]
        weights = self.solve(rows.measured - stages - self.noise * rows.measured * errors)
        corrected = [self.corrections(weights, crowd) for crowd in crowds]
        return [
            (factors + own + alone + among * crowd, more + overheads)
            for crowd, (factors, more) in zip(crowds, corrected, strict=True)
        ]

    def solve(self, residual: Array) -> Array:
        """The residual over the covariance of the measured stages."""
        return np.asarray(np.linalg.solve(self.covariance, residual))

    def deviations(self, stages: Stages) -> tuple[float, ...]:
        device = np.arange(len(stages))
        ops = np.zeros((len(stages), self.times.shape[1]))
        for s, members in enumerate(stages):
            ops[s, list(members)] = self.times[s, list(members)]
        totals = ops.sum(axis=1)
        crowd = np.full(len(stages), _crowded(sum(map(bool, stages)), len(self.times)))
        scale = SCALE**2 * (0.5 + 0.5 * crowd**2)
        prior = self.error**2 * (ops**2).sum(axis=1) + scale * totals**2 + self.overhead_variance
        known = np.linalg.solve(self.cholesky, self._covariance(ops @ self.rows.ops.T, totals, device, crowd).T)
        spread = np.sqrt(np.maximum(prior - (known**2).sum(axis=0), 0.0))
        return tuple(np.where([bool(members) for members in stages], spread, 0.0).tolist())


def _telling(measured: Sequence[Measured], count: int) -> list[Measured]:
    """The trials that say most of where the best lies: half the best, half the latest, in their order."""
    if len(measured) <= count:
        return list(measured)
    best = sorted(measured, key=lambda m: m.period_ms)[: count // 2]
    latest = [m for m in measured if m not in best][-(count - len(best)) :]
    return sorted((*best, *latest), key=lambda m: m.number)


def _with(costs: CostModel, times: Array, factors: Array, overheads: Array) -> CostModel:
    """The costs with corrected times, what a device cannot run left so, and overheads."""
    new = times * np.maximum(factors, LEAST)
    rows = tuple(tuple(new[d].tolist()) for d in range(len(new)))
    if any(math.inf in row for row in costs.times):
        own = [costs.times[d if len(costs.times) > 1 else 0] for d in range(len(new))]
        rows = tuple(
            tuple(t if b < math.inf else b for t, b in zip(*pair, strict=True)) for pair in zip(rows, own, strict=True)
        )
    base = [costs.overheads[d if len(costs.overheads) > 1 else 0] for d in range(len(new))]
    return replace(
        costs,
        times=_collapsed(rows),
        overheads=_collapsed(tuple(max(0.0, b + o) for b, o in zip(base, overheads.tolist(), strict=True))),
    )


def _rows(costs: CostModel, times: Array, measured: Sequence[Measured]) -> _Rows:
    """A row a stage that ran ops; an empty one tells nothing."""
    own = [
        (s, members, load, seen, _crowded(sum(map(bool, m.stages)), len(times)))
        for m in measured
        for s, (members, load, seen) in enumerate(
            zip(m.stages, evaluate(costs, m.stages, allow_empty=True).loads, m.stage_ms, strict=True)
        )
        if members
    ]
    ops = np.zeros((len(own), times.shape[1]))
    for row, (s, members, *_) in enumerate(own):
        ops[row, list(members)] = times[s, list(members)]
    device, _, prior, seen, crowd = zip(*own, strict=True) if own else ((), (), (), (), ())
    return _Rows(ops, np.array(device, dtype=np.int64), np.array(crowd), np.array(prior), np.array(seen))


def _weighed(times: Array, kinship: Array, rows: _Rows) -> tuple[tuple[_Update, ...], Array]:
    """The updates for each error and noise that is not out of the question, and how likely each is."""
    if not len(rows.measured):
        return (_Update(times, kinship, rows, _USUAL_ERROR, _USUAL_NOISE),), np.ones(1)
    grid = [_Update(times, kinship, rows, error, noise) for error in ERRORS for noise in NOISES]
    logs = np.array([update.log_likelihood() for update in grid])
    kept = np.flatnonzero(logs > logs.max() - _UNLIKELY)
    likely = np.exp(logs[kept] - logs.max())
    return tuple(grid[n] for n in kept), likely / likely.sum()


def _expected(updates: Sequence[_Update], likely: Array, crowd: float) -> tuple[Array, Array]:
    """The corrections of all updates, as likely as they are."""
    factors, overheads = zip(*(update.corrections(update.weights, crowd) for update in updates), strict=True)
    return np.tensordot(likely, np.array(factors), 1), np.tensordot(likely, np.array(overheads), 1)


def _kinship(devices: Sequence[str]) -> Array:
    kinds = [d if d.startswith(("rpc:", "tracker:")) else d.partition(":")[0] for d in devices]  # servers may differ
    return np.array([[1.0 if a == b else OTHER_KIND for b in kinds] for a in kinds])


def _collapsed(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
    """One row for all devices where they are all alike, which plans faster."""
    return rows[:1] if len(set(rows)) == 1 else rows
