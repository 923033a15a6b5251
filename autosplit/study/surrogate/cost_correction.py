"""Costs corrected by what was measured: op times and stage overheads as the posterior expects them."""

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
    Rows,
    Update,
    crowded,
    kinship_of,
    weighed,
)

_Row = TypeVar("_Row")

LEAST = 0.05  # no op is corrected below this share of its profiled time
REMEMBERED = (
    96  # measured stages that the update looks at: half of the best trials, half of the latest
)


@dataclass(frozen=True)
class Measured:
    """One measured split: the time of each stage, the period and the latency, in ms; 0 for a latency not known."""

    number: int
    stages: Stages
    stage_ms: tuple[float, ...]
    period_ms: float
    latency_ms: float = 0.0


@dataclass(frozen=True)
class Corrected:
    """Costs after the update: ``costs`` with corrected times and overheads, ``error`` and ``noise`` as found.

    ``crowd`` are the costs by how many stages are not empty, ``costs`` those where none is. ``ratio`` is the usual period
    over its slowest stage: what hand-over and waiting add.
    """

    crowd: ContentionCosts
    error: float
    noise: float
    ratio: float
    _prior: CostModel
    _updates: tuple[Update, ...]
    _likely: Array

    @property
    def costs(self) -> CostModel:
        """The costs where every device runs a stage."""
        return self.crowd.costs[-1]

    def stage_deviations(self, stages: Stages) -> tuple[float, ...]:
        """For each stage of a split the standard deviation of its time, in ms, under the posterior."""
        return self._updates[int(self._likely.argmax())].deviations(stages)

    def draw(self, rng: np.random.Generator) -> ContentionCosts:
        """Costs drawn from the posterior, error and noise too: what may be true, as likely as it is."""
        update = self._updates[int(rng.choice(len(self._updates), p=self._likely))]
        shares = _shares(len(self.crowd.costs), len(update.times))
        return ContentionCosts(
            tuple(_with(self._prior, update.times, *found) for found in update.draw(rng, shares))
        )

    def period(self, stages: Stages, deviations: float = 0.0) -> float:
        """The period expected of a split, in ms, each stage taken ``deviations`` standard deviations faster."""
        loads = evaluate(self.crowd.at(sum(map(bool, stages))), stages, allow_empty=True).loads
        if deviations:
            loads = tuple(
                t - deviations * s
                for t, s in zip(loads, self.stage_deviations(stages), strict=True)
            )
        return self.ratio * max(loads)


def correct(
    costs: CostModel, devices: Sequence[str], measured: Sequence[Measured], empty: bool = False
) -> Corrected:
    """Update ``costs`` (times in ms; a row a device, or one for all) by what was measured, in any number of trials.

    ``empty``: whether stages may be empty, so that their number differs.
    """
    recent = [m for m in measured if len(m.stage_ms) == len(m.stages) == len(devices)]
    recent = _telling(recent, max(2, REMEMBERED // len(devices)))
    times = np.array(
        [costs.times[d if len(costs.times) > 1 else 0] for d in range(len(devices))],
        dtype=np.float64,
    )
    times = np.where(np.isfinite(times), times, 0.0)
    rows = _rows(costs, times, recent)
    updates, likely = weighed(times, kinship_of(devices), rows)
    shares = _shares(len(devices) if empty and recent else 1, len(devices))
    crowd = ContentionCosts(
        tuple(_with(costs, times, *_expected(updates, likely, share)) for share in shares)
    )
    ratios = [m.period_ms / max(m.stage_ms) for m in recent if max(m.stage_ms) > 0]
    ratio = min(max(float(np.median(ratios)), 0.5), 2.0) if ratios else 1.0
    error, noise = (
        math.exp(float(likely @ np.log(x)))
        for x in zip(*((u.error, u.noise) for u in updates), strict=True)
    )
    return Corrected(crowd, error, noise, ratio, costs, updates, likely)


def _shares(models: int, devices: int) -> tuple[float, ...]:
    """For each number of stages that run at once how crowded that is; for a single model as crowded as can be."""
    return tuple(crowded(used, devices) for used in range(1, models + 1)) if models > 1 else (1.0,)


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
            tuple(t if b < math.inf else b for t, b in zip(*pair, strict=True))
            for pair in zip(rows, own, strict=True)
        )
    base = [costs.overheads[d if len(costs.overheads) > 1 else 0] for d in range(len(new))]
    return replace(
        costs,
        times=_collapsed(rows),
        overheads=_collapsed(
            tuple(max(0.0, b + o) for b, o in zip(base, overheads.tolist(), strict=True))
        ),
    )


def _rows(costs: CostModel, times: Array, measured: Sequence[Measured]) -> Rows:
    """A row a stage that ran ops; an empty one tells nothing."""
    own = [
        (s, members, load, seen, crowded(sum(map(bool, m.stages)), len(times)))
        for m in measured
        for s, (members, load, seen) in enumerate(
            zip(
                m.stages, evaluate(costs, m.stages, allow_empty=True).loads, m.stage_ms, strict=True
            )
        )
        if members
    ]
    ops = np.zeros((len(own), times.shape[1]))
    for row, (s, members, *_) in enumerate(own):
        ops[row, list(members)] = times[s, list(members)]
    device, _, prior, seen, crowd = zip(*own, strict=True) if own else ((), (), (), (), ())
    return Rows(
        ops, np.array(device, dtype=np.int64), np.array(crowd), np.array(prior), np.array(seen)
    )


def _expected(updates: Sequence[Update], likely: Array, crowd: float) -> tuple[Array, Array]:
    """The corrections of all updates, as likely as they are."""
    factors, overheads = zip(
        *(update.corrections(update.weights, crowd) for update in updates), strict=True
    )
    shares = likely[:, None]  # a matrix product would round rows that are alike each in its own way
    return (shares[:, None] * factors).sum(axis=0), (shares * overheads).sum(axis=0)


def _collapsed(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
    """One row for all devices where they are all alike, which plans faster."""
    return rows[:1] if len(set(rows)) == 1 else rows
