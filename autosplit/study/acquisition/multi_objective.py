"""Which split to measure next where other values count than the period alone.

They are latency, memory, or several objectives at once. The planner lists candidates that may lie
on the Pareto front of the corrected costs (``front_candidates``). Of those not yet measured the
next one is that which is expected to enlarge the volume dominated by the measured ones most
(Ponweiser, Wagner, Biermann and Vincze, Multiobjective optimization on a limited budget of
evaluations using model-assisted S-metric selection, PPSN 2008). For a single objective that volume
is a length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from autosplit.planner.batch.evaluation import Batch
from autosplit.planner.dominance import Point, at_least_as_good, front, volume_gain
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.front_candidates import LISTED, listed
from autosplit.study.acquisition.history import FEWEST_MEASURED, History
from autosplit.study.config.objectives import objective_values
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.surrogate.cost_correction import Corrected

CENTRES = 3  # splits whose neighbours are weighed too
WORTHWHILE_MEMORY = 0.01  # share of the memory that is worth a trial where time counts too


@dataclass(frozen=True, eq=False)
class Prospects:
    """Splits that may be worth a trial under the corrected costs, and their expected values.

    ``latency_ratio``: the usual latency over the sum of its stages.
    """

    space: CandidateSpace
    history: History
    objectives: tuple[str, ...]
    corrected: Corrected
    latency_ratio: float
    splits: Batch[Any]

    @cached_property
    def free(self) -> tuple[Any, ...]:
        """The splits that are not taken, most promising first."""
        return self._ranked(self.corrected.contention_costs)

    @cached_property
    def margins(self) -> tuple[float, ...]:
        """The gain that is worth a trial in each objective, relative: half the noise for times."""
        of_times = self.corrected.noise / 2
        of_memory = WORTHWHILE_MEMORY if len(self.objectives) > 1 else 0.0
        return tuple(of_memory if name == "memory" else of_times for name in self.objectives)

    @cached_property
    def converged(self) -> bool:
        """Whether no free split is expected to be beyond the measured ones by the margins."""
        needs_times = self.objectives != ("memory",)
        if not self.history.measured or (needs_times and not self.history.tells_errors):
            return not self.free
        factors = 1 - np.array(self.margins)
        # A split has to be better than a measured one by the margin in some objective.
        limits = [tuple((factors * point).tolist()) for point in self._measured_front()]

        def is_within(point: Point) -> bool:
            return any(at_least_as_good(limit, point) for limit in limits)

        return all(map(is_within, self._expected(self.space.evaluator.batch(self.free))))

    @property
    def explores(self) -> bool:
        """Whether enough is known of the costs to draw them."""
        return bool(self.history.measured)

    @property
    def promising(self) -> Any:
        """The free split that is expected to extend the front most."""
        return self.free[0]

    def guess(self, rng: np.random.Generator) -> Any | None:
        """The split to measure next if the costs were as drawn from what is known of them."""
        return next(iter(self._ranked(self.corrected.draw(rng))), None)

    def _measured_front(self, costs: Any = None) -> list[Point]:
        """The front of the measured splits, by what is expected of them."""
        batch = self.space.evaluator.batch(m.candidate for m in self.history.measured)
        points = self._expected(batch, costs)
        return [points[n] for n in front(points)][:LISTED]

    def _expected(self, splits: Batch[Any], costs: Any = None) -> list[Point]:
        """What each objective is expected to be for some splits."""
        if not splits.stages:
            return []
        costs = costs or self.corrected.contention_costs
        # The longest stage sets the pace; the ratio is what handing over adds.
        periods = self.corrected.ratio * splits.periods(costs)
        latencies = self.latency_ratio * splits.times(costs).sum(axis=1)
        rows = zip(periods.tolist(), latencies.tolist(), splits.memory.tolist(), strict=True)
        return [tuple(objective_values(self.objectives, *row)) for row in rows]

    def _ranked(self, costs: Any) -> tuple[Any, ...]:
        """The free splits by the volume that they gain, then by their distance to the front."""
        taken, corrected = self.history.taken, self.corrected.contention_costs
        is_free = [self.space.key(s, corrected) not in taken for s in self.splits.stages]
        free = self.splits.only(np.array(is_free, dtype=bool))
        expected, measured = self._expected(free, costs), self._measured_front(costs)
        if not expected:
            return ()
        worst = np.max([*expected, *measured], axis=0)
        # A little beyond the worst of all, so that the ends of the front dominate some volume too.
        reference = tuple(np.where(worst > 0, 1.1 * worst, 1.0).tolist())
        scores: list[tuple[float, float, Point, int]] = []
        for n, point in enumerate(expected):
            gain = volume_gain(point, measured, reference) if measured else 0.0
            # Many gain nothing: of those the nearest to the front may, once the costs are known
            # better.
            scores.append((-gain, _distance(point, measured), tuple(point), n))
        return tuple(free.stages[n] for *_, n in sorted(scores))


def _distance(point: Point, front_points: Sequence[Point]) -> float:
    """The largest ratio in any objective to the nearest of some points; 0 without any."""
    distances: list[float] = []
    for other in front_points:
        pairs = zip(point, other, strict=True)
        distances.append(max(x / y if y > 0 else 1.0 + x for x, y in pairs))
    return min(distances, default=0.0)


@lru_cache(maxsize=4)
def prospects(space: CandidateSpace, objectives: tuple[str, ...], history: History) -> Prospects:
    """Correct the costs by all that was measured, and list what may lie on the front under them.

    The planner is asked again when the number of measured trials has doubled; splits around the
    front are listed each time.
    """
    measured = history.measured
    last_listing = len(measured)
    if last_listing > FEWEST_MEASURED:
        last_listing = 1 << last_listing.bit_length() - 1
    corrected = corrected_costs(space, measured)
    timed = [m for m in measured if sum(m.stage_ms) > 0 and m.latency_ms > 0]
    # Hand-overs make an item take longer than its stages together.
    ratio = float(np.median([m.latency_ms / sum(m.stage_ms) for m in timed])) if timed else 1.0
    splits = dict.fromkeys(listed(space, objectives, measured[:last_listing]))
    batch = space.evaluator.batch(splits)
    view = Prospects(space, history, objectives, corrected, ratio, batch)
    for candidate in [*view.free[:CENTRES], *(m.candidate for m in measured[-CENTRES:])]:
        splits.update(dict.fromkeys(space.neighbours(candidate)))
    return replace(view, splits=space.evaluator.batch(splits))
