"""The ways in which people split a model today, as plans along its own order of ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autosplit.cuts import members
from autosplit.cuts.stages import stages_between
from autosplit.deployment import Option, Stage
from autosplit.planner import CostModel, Plan, Question, evaluate, fits
from autosplit.planner.bound import weights_of
from autosplit.planner.cut_set import Words, to_words
from autosplit.planner.moves import spread_places
from autosplit.planner.problem import Problem, problems
from autosplit.planner.search import Search
from autosplit.planner.stage_loads import StageLoads

_BISECTION_GAP = 0.01  # of the period: where a bisection on measured times stops


def planned_baselines(costs: CostModel, stages: int) -> dict[str, Plan | None]:
    """All ways on devices of the one kind of the costs, by name; None where no split of it fits.

    Groups of ops stay together in each. Empty where there are fewer groups than stages.
    """
    if len(costs.contraction.groups) < stages:
        return {}  # some stages are empty, which none of these splits has
    (problem,) = problems(costs, Question.of_split(stages, costs.kinds[0].name))
    asked, groups = _Asked(costs, stages, problem), problem.contraction.groups
    weights = {
        "equal op count": [float(ops.bit_count()) for ops in groups],
        "equal parameters": [float(size) for size in problem.sizes],
        "equal FLOPs": [sum(map(costs.flops.__getitem__, members(ops))) for ops in groups],
    }
    places = {name: _equal_shares(asked, values) for name, values in weights.items()}
    runnable = problem.times[np.isfinite(problem.times).all(axis=1)]
    times = runnable.mean(axis=0).tolist() if len(runnable) else [0.0] * problem.size
    places["block partition by time"] = block_partition(times, stages)
    plans = {name: asked.plan(at) for name, at in places.items()}
    plans["best over one order"] = asked.best_of_order()
    plans["Coral bisection"] = asked.plan(_bisection(asked))
    return plans


@dataclass(frozen=True)
class _Asked:
    """Costs, a number of stages, and their contracted problem."""

    costs: CostModel
    stages: int
    problem: Problem

    def best_of_order(self) -> Plan | None:
        """The best split along the order of the groups."""
        search = Search(self.problem, _prefixes(self.problem), weights_of(self.problem), None)
        return search.least_period(search.weights.bound, math.inf)

    def plan(self, places: Sequence[int] | None) -> Plan | None:
        """The split near some places along the order of the groups; None where it does not fit."""
        if places is None:
            return None
        spread = spread_places(places, self.problem.size)
        cuts = [self.problem.contraction.expand((1 << place) - 1) for place in spread]
        option = Option(self.costs.rows[0].row)
        plan = evaluate(
            self.costs, [Stage(ops, (option,)) for ops in stages_between(self.costs, cuts)]
        )
        return plan if plan.period < math.inf and fits(self.costs, plan) else None


def _prefixes(problem: Problem) -> Words:
    """The cuts along the order of the groups."""
    return to_words([(1 << place) - 1 for place in range(problem.size + 1)], problem.size)


def _equal_shares(asked: _Asked, weights: Sequence[float]) -> list[int] | None:
    """Cuts where the running sum of weights is nearest to equal shares; None without weights."""
    if not sum(weights):
        return None
    running = np.cumsum([0.0, *weights])
    shares = [running[-1] * n / asked.stages for n in range(1, asked.stages)]
    return [int(np.abs(running - share).argmin()) for share in shares]


def block_partition(times: Sequence[float], count: int) -> list[int]:
    """Block partition of a sequence: the ends of the blocks but the last.

    By Bárány and Grinberg (2015), as in torchgpipe. Sums end up within one largest element of each
    other: an element moves towards the smallest block from the side of the largest until they are.
    """
    size = len(times)
    ends = [size * b // count for b in range(count + 1)]
    running = np.cumsum([0.0, *times])
    step = max(times, default=0.0) * (1 + 1e-12)
    for _ in range(size * size * count):
        sums = [float(running[b] - running[a]) for a, b in pairwise(ends)]
        largest = max(range(count), key=sums.__getitem__)
        least = min(sums)
        if sums[largest] <= least + step:
            break
        # Of several smallest blocks the nearest, so that few blocks change.
        smallest_blocks = [block for block in range(count) if sums[block] == least]
        smallest = min(smallest_blocks, key=lambda block: abs(block - largest))
        if largest < smallest:
            ends[smallest] -= 1
        else:
            ends[smallest + 1] += 1
    return ends[1:-1]


def _bisection(asked: _Asked) -> list[int] | None:
    """Coral's profiling partitioner: a bisection on the target time and on each stage's end."""
    problem = asked.problem
    loads = StageLoads(problem, _prefixes(problem), weights_of(problem))
    every = np.arange(len(loads))
    table = loads.loads(0, every, every)

    def probe(start: int, end: int) -> float:
        return float(table[start, end])

    low, high = 0.0, loads.top
    best: list[int] | None = None
    # The target moves down while the last stage meets it.
    while high - low > _BISECTION_GAP * high:
        target = (low + high) / 2
        places = _longest_stages(asked, target, probe)
        if probe(places[-1] if places else 0, problem.size) <= target:
            best, high = places, target
        else:
            low = target
    return best


def _longest_stages(asked: _Asked, target: float, probe: Callable[[int, int], float]) -> list[int]:
    """Each stage but the last as long as its time stays within the target, by bisection."""
    places: list[int] = []
    for stage in range(asked.stages - 1):
        start = places[-1] if places else 0
        low, high = start + 1, asked.problem.size - (asked.stages - 1 - stage)
        while low < high:
            middle = (low + high + 1) // 2
            if probe(start, middle) <= target:
                low = middle
            else:
                high = middle - 1
        places.append(low)
    return places
