"""Which split to measure next where the latency of one item counts instead of the period.

The planner lists candidates that may have the least latency under the corrected costs. Of those not
yet measured the next one is that with the least expected latency.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import CostModel, least_latency
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.batch.evaluation import Batch
from autosplit.planner.partition.problem import Array
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import FEWEST_MEASURED, History
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.deployment_space import DeploymentSpace
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Corrected, Measured

CENTRES = 3  # splits whose neighbours are weighed too
SECONDS = 2.0  # that a plan may take


@dataclass(frozen=True, eq=False)
class LatencyOutlook:
    """Splits that may have the least latency under the corrected costs.

    ``latency_ratio``: the usual latency over the sum of its stages.
    """

    space: CandidateSpace
    history: History
    corrected: Corrected
    latency_ratio: float
    splits: Batch[Any]

    @cached_property
    def free(self) -> tuple[Any, ...]:
        """The splits that are not taken, most promising first."""
        return self._ranked(self.corrected.contention_costs)

    @property
    def margin(self) -> float:
        """The gain that is worth a trial, relative: half the noise."""
        return self.corrected.noise / 2

    @cached_property
    def converged(self) -> bool:
        """Whether no free split is expected to beat the measured ones by the margin."""
        if not self.free or not self.history.tells_errors:
            return not self.free
        measured = self.space.evaluator.batch(m.candidate for m in self.history.measured)
        costs = self.corrected.contention_costs
        limit = (1 - self.margin) * self._latencies(measured, costs).min()
        free = self._latencies(self.space.evaluator.batch(self.free), costs)
        return bool((free >= limit).all())

    @property
    def explores(self) -> bool:
        """Whether enough is known of the costs to draw them."""
        return bool(self.history.measured)

    @property
    def promising(self) -> Any:
        """The free split of least expected latency."""
        return self.free[0]

    def guess(self, rng: np.random.Generator) -> Any | None:
        """The split to measure next if the costs were as drawn from what is known of them."""
        return next(iter(self._ranked(self.corrected.draw(rng))), None)

    def _latencies(self, splits: Batch[Any], costs: ContentionCosts) -> Array:
        """The expected latency of each of some splits."""
        return np.asarray(self.latency_ratio * splits.times(costs).sum(axis=1))

    def _ranked(self, costs: ContentionCosts) -> tuple[Any, ...]:
        """The free splits by their expected latency."""
        taken, corrected = self.history.taken, self.corrected.contention_costs
        is_free = [self.space.key(s, corrected) not in taken for s in self.splits.stages]
        free = self.splits.only(np.array(is_free, dtype=bool))
        if not free.stages:
            return ()
        order = np.argsort(self._latencies(free, costs), kind="stable")
        return tuple(free.stages[n] for n in order)


@lru_cache(maxsize=4)
def latency_outlook(space: CandidateSpace, history: History) -> LatencyOutlook:
    """Correct the costs by all that was measured, and list what may have the least latency.

    The planner is asked again when the number of measured trials has doubled; splits around the
    best are listed each time.
    """
    measured = history.measured
    last_listing = len(measured)
    if last_listing > FEWEST_MEASURED:
        last_listing = 1 << last_listing.bit_length() - 1
    corrected = corrected_costs(space, measured)
    timed = [m for m in measured if sum(m.stage_ms) > 0 and m.latency_ms > 0]
    # Hand-overs make an item take longer than its stages together.
    ratio = float(np.median([m.latency_ms / sum(m.stage_ms) for m in timed])) if timed else 1.0
    splits = dict.fromkeys(_listed(space, measured[:last_listing]))
    view = LatencyOutlook(space, history, corrected, ratio, space.evaluator.batch(splits))
    for candidate in [*view.free[:CENTRES], *(m.candidate for m in measured[-CENTRES:])]:
        splits.update(dict.fromkeys(space.neighbours(candidate)))
    return replace(view, splits=space.evaluator.batch(splits))


@lru_cache(maxsize=2)
def _listed(space: CandidateSpace, measured: tuple[Measured, ...]) -> tuple[Any, ...]:
    """The candidates that the planner names for the costs corrected by the ``measured`` trials."""
    costs = corrected_costs(space, measured).contention_costs
    others: Iterator[Any]
    if isinstance(space, Space):
        others = _splits(space, costs)
    else:
        others = _deployments(cast("DeploymentSpace", space), costs)
    return tuple(dict.fromkeys([*space.whole_models, *others]))


def _deployments(space: DeploymentSpace, costs: ContentionCosts) -> Iterator[DeployedSplit]:
    # Threads shorten the latency at the cost of the period, so each least number has its best one.
    planned = set()
    for (threads, kind), row in space.rows.items():
        if threads not in planned:  # as for another kind of cores
            planned.add(threads)
            yield from space.planned(costs, space.sizes, threads, SECONDS)
        most = min(space.sizes[kind] // threads, space.most_stages)
        for stages in _quickest(costs.all_busy.on_devices([row]), most, True):
            yield space.pipeline(stages, threads, kind)


def _splits(space: Space, costs: ContentionCosts) -> Iterator[Stages]:
    for used in space.stage_counts if costs.varies else [space.stages]:
        for stages in _quickest(costs.at(used), space.stages, space.empty):
            yield space.placement.canonical(stages)


def _quickest(costs: CostModel, stages: int, empty: bool) -> list[Stages]:
    """The split of least latency, whatever its period; none where no split fits the devices."""
    with contextlib.suppress(Infeasible):
        limits: dict[str, Any] = {"deadline": _deadline(), "allow_empty": empty}
        return [least_latency(costs, stages, math.inf, **limits).stages]
    return []


def _deadline() -> Callable[[], bool]:
    """Whether SECONDS from now have passed."""
    end = time.monotonic() + SECONDS
    return lambda: time.monotonic() > end
