"""Which split to measure next where not the period alone counts: latency, memory, or several objectives at once.

The planner lists splits that may lie on the Pareto front of the corrected costs; of those not yet measured the one is next
that is expected to enlarge the volume dominated by the measured ones most (Ponweiser, Wagner, Biermann and Vincze,
Multiobjective optimization on a limited budget of evaluations using model-assisted S-metric selection, PPSN 2008).
A single objective is the case where that volume is a length.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import Constraints, CostModel, least_latency, pareto_front, plan
from autosplit.planner.batch.evaluation import SplitBatch
from autosplit.planner.dominance import Point, at_least_as_good, front, volume_gain
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import FEWEST_MEASURED, History
from autosplit.study.acquisition.proposals import EXPLORATION, unmeasured_whole
from autosplit.study.config.objectives import objective_values
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import AHEAD, nearest_free
from autosplit.study.surrogate.cost_correction import Corrected, Measured

LISTED = 60  # splits of a front that are weighed at most
BOUNDS = 6  # limits of memory that are planned for where a front cannot be listed
SECONDS = 2.0  # that listing a front may take
AROUND = 3  # splits whose neighbours are weighed too
SAVED = 0.01  # share of the memory that is worth a trial where time counts too

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prospects:
    """Splits that may be worth a trial under the corrected costs, and how good each is expected to be.

    ``latency_ratio``: the usual latency over the sum of its stages.
    """

    space: Space
    history: History
    objectives: tuple[str, ...]
    corrected: Corrected
    latency_ratio: float
    pool: SplitBatch

    @cached_property
    def free(self) -> tuple[Stages, ...]:
        """The splits that are not taken, most promising first."""
        return self._ranked(self.corrected.crowd)

    @cached_property
    def margins(self) -> tuple[float, ...]:
        """The gain that is worth a trial in each objective, relative: half the noise for times."""
        timed, several = self.corrected.noise / 2, len(self.objectives) > 1
        return tuple(
            (SAVED if several else 0.0) if name == "memory" else timed for name in self.objectives
        )

    @cached_property
    def settled(self) -> bool:
        """Whether no free split is expected to lie beyond the measured ones by more than the margins."""
        times_count = self.objectives != ("memory",)
        if not self.history.measured or (times_count and not self.history.tells_errors):
            return not self.free
        near = [
            tuple(x * (1 - m) for x, m in zip(p, self.margins, strict=True))
            for p in self._measured()
        ]
        expected = self._expected(self.space.placing.batch(self.free), self.corrected.crowd)
        return all(any(at_least_as_good(q, p) for q in near) for p in expected)

    def guess(self, rng: np.random.Generator) -> Stages | None:
        """The split to measure next if the costs were as drawn from what is known of them."""
        return next(iter(self._ranked(self.corrected.draw(rng))), None)

    def _measured(self, costs: ContentionCosts | None = None) -> list[Point]:
        found = self._expected(
            self.space.placing.batch(m.stages for m in self.history.measured), costs
        )
        return [found[n] for n in front(found)][:LISTED]

    def _expected(self, pool: SplitBatch, costs: ContentionCosts | None = None) -> list[Point]:
        """What each objective is expected to be for the splits of a pool."""
        if not pool.stages:
            return []
        loads = pool.times(costs or self.corrected.crowd)
        periods = self.corrected.ratio * loads.max(axis=1)
        latencies = self.latency_ratio * loads.sum(axis=1)
        rows = zip(periods.tolist(), latencies.tolist(), pool.memory.tolist(), strict=True)
        return [tuple(objective_values(self.objectives, *row)) for row in rows]

    def _ranked(self, costs: ContentionCosts) -> tuple[Stages, ...]:
        """The free splits by the volume they gain; among those that gain none the nearest to the front come first."""
        taken = self.history.taken
        free = self.pool.only(
            np.array([self.space.key(s) not in taken for s in self.pool.stages], dtype=bool)
        )
        expected, known = self._expected(free, costs), self._measured(costs)
        if not expected:
            return ()
        worst = np.max([*expected, *known], axis=0)
        reference = tuple(np.where(worst > 0, 1.1 * worst, 1.0).tolist())
        scored = sorted(
            (-volume_gain(p, known, reference) if known else 0.0, _distance(p, known), tuple(p), n)
            for n, p in enumerate(expected)
        )
        return tuple(free.stages[n] for *_, n in scored)


def _distance(point: Point, known: Sequence[Point]) -> float:
    """How far a point is from the nearest of the known ones, as the largest ratio in any objective."""
    ratios = (
        max(x / y if y > 0 else 1.0 + x for x, y in zip(point, k, strict=True)) for k in known
    )
    return min(ratios, default=0.0)


def planned(
    space: Space,
    devices: tuple[str, ...],
    objectives: tuple[str, ...],
    history: History,
    rng: np.random.Generator,
) -> Stages | None:
    """The free split that is expected to extend the front most; now and then the one that would for costs as drawn."""
    if history.taken and (whole := unmeasured_whole(space, history)) is not None:
        return whole
    view = prospects(space, devices, objectives, history)
    if history.measured and rng.random() < EXPLORATION and (guess := view.guess(rng)) is not None:
        return guess
    if view.free:
        return view.free[0]
    return nearest_free(space, history.measured[-1].stages if history.measured else None, history)


@lru_cache(maxsize=4)
def prospects(
    space: Space, devices: tuple[str, ...], objectives: tuple[str, ...], history: History
) -> Prospects:
    """Correct the costs by all that was measured, and list what may lie on the front under them.

    The planner is asked anew when the number of measured trials has doubled; what lies around the front is listed always.
    """
    count = len(history.measured)
    asked = (
        history.measured[: 1 << count.bit_length() - 1]
        if count > FEWEST_MEASURED
        else history.measured
    )
    corrected = corrected_costs(space, devices, history.measured)
    ratios = [
        m.latency_ms / sum(m.stage_ms)
        for m in history.measured
        if sum(m.stage_ms) > 0 and m.latency_ms > 0
    ]
    ratio = float(np.median(ratios)) if ratios else 1.0
    splits = dict.fromkeys(_listed(space, devices, objectives, asked))
    view = Prospects(space, history, objectives, corrected, ratio, space.placing.batch(splits))
    centres = [*view.free[:AROUND], *(m.stages for m in history.measured[-AROUND:])]
    for stages in centres:
        splits.update(dict.fromkeys(space.neighbours(stages)))
    return replace(view, pool=space.placing.batch(splits))


@lru_cache(maxsize=2)
def _listed(
    space: Space,
    devices: tuple[str, ...],
    objectives: tuple[str, ...],
    measured: tuple[Measured, ...],
) -> tuple[Stages, ...]:
    """The splits that the planner names for each objective, and those on the front of several."""
    costs = corrected_costs(space, devices, measured).crowd
    count = 2 * len(measured) + AHEAD
    splits: list[Stages] = [space.alone] if space.alone is not None else []
    for name in objectives:
        if name == "throughput":
            splits += _best(space, costs, count)
        elif name == "memory":
            splits += _best(space, memory_costs(space.costs), count)
        else:
            for model in costs.costs:
                splits += _quickest(space, model)
    if len(objectives) > 1:
        with contextlib.suppress(Infeasible):
            splits += _front(space, costs.costs[-1])
    return tuple(dict.fromkeys(splits))


def _best(space: Space, costs: CostModel | ContentionCosts, count: int) -> list[Stages]:
    """The best splits under some costs; none where no split fits the devices."""
    try:
        return space.best(costs, count, SECONDS)
    except Infeasible:
        return []


def memory_costs(costs: CostModel) -> CostModel:
    """Costs whose load of a stage is the bytes it holds, so that the planner finds the splits of least memory."""
    moved = tuple(t.bytes if costs.activations else 0.0 for t in costs.tensors)
    times = tuple(
        tuple(size if t < math.inf else math.inf for t, size in zip(row, costs.sizes, strict=True))
        for row in costs.times
    )
    return replace(costs, times=times, send=(moved,), receive=(moved,), overheads=(0.0,))


def _quickest(space: Space, costs: CostModel) -> list[Stages]:
    """The split of least latency, whatever its period; none where no split fits the devices."""
    try:
        quickest = least_latency(
            costs, space.stages, math.inf, deadline=_deadline(), allow_empty=space.empty
        )
    except Infeasible:
        return []
    return [space.places.canonical(quickest.stages)]


def _front(space: Space, costs: CostModel) -> list[Stages]:
    """Splits on the front of period, latency and memory.

    Where it cannot be listed, the fastest under some limits of memory. Raises Infeasible where no
    split fits the devices.
    """
    stages, empty = space.stages, space.empty
    listed = pareto_front(costs, stages, deadline=_deadline(), allow_empty=empty)
    step = max(1, len(listed.plans) // LISTED)
    splits = [space.places.canonical(p.stages) for p in listed.plans[::step]]
    if listed.complete:
        return splits
    least = plan(memory_costs(costs), stages, deadline=_deadline(), allow_empty=empty).period
    most = max(listed.plans[0].memory)
    for limit in np.linspace(least, most, BOUNDS, endpoint=False).tolist():
        bound = Constraints(memory=(math.nextafter(limit, math.inf),))
        fastest = plan(costs, stages, deadline=_deadline(), constraints=bound, allow_empty=empty)
        splits.append(space.places.canonical(fastest.stages))
    return splits


def _deadline() -> Callable[[], bool]:
    """Whether SECONDS from now have passed."""
    end = time.monotonic() + SECONDS
    return lambda: time.monotonic() > end
