"""The ways in which people split a model today, as plans along its own order of ops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from autosplit.cuts import members
from autosplit.cuts.stages import stages_between
from autosplit.deployment import Option, Stage
from autosplit.errors import Infeasible
from autosplit.planner import CostModel, Plan, Question, evaluate, fits, partition
from autosplit.planner.bound import weights_of
from autosplit.planner.cut_set import to_words
from autosplit.planner.moves import spread_places
from autosplit.planner.problem import Array, problems
from autosplit.planner.stage_loads import StageLoads

_BISECTION_GAP = 0.01  # of the period: where a bisection on measured times stops


def planned_or_none(costs: CostModel, question: Question, **options: Any) -> Plan | None:
    """The best plan, None where nothing fits; ``options`` of ``partition``."""
    try:
        return partition(costs, question, **options)
    except Infeasible:
        return None


def planned_baselines(costs: CostModel, stages: int) -> dict[str, Plan | None]:
    """All ways on devices of the one kind of the costs, by name; None where no split of it fits.

    Groups of ops stay together in each. Empty where there are fewer groups than stages.
    """
    groups = costs.contraction.groups
    if len(groups) < stages:
        return {}  # some stages are empty, which none of these splits has
    question = Question.of_split(stages, costs.kinds[0].name)
    (problem,) = problems(costs, question)
    along_order = to_words([(1 << place) - 1 for place in range(problem.size + 1)], problem.size)
    equal = [1.0] * stages
    runnable = problem.times[np.isfinite(problem.times).all(axis=1)]
    times = runnable.mean(axis=0).tolist() if len(runnable) else [0.0] * problem.size
    flops = [sum(map(costs.flops.__getitem__, members(ops))) for ops in groups]
    loads = StageLoads(problem, along_order, weights_of(problem))
    every = np.arange(len(loads))
    places = {
        "equal op count": _by_shares([float(ops.bit_count()) for ops in groups], equal),
        "equal parameters": _by_shares(problem.sizes.tolist(), equal),
        "equal FLOPs": _by_shares(flops, equal),
        "block partition by time": block_partition(times, stages),
        "Coral bisection": _bisection(loads.loads(0, every, every), stages, loads.top),
    }
    plans = {
        name: _ranges(costs, at, [0] * stages) for name, at in places.items() if at is not None
    }
    fitting = {name: plan for name, plan in plans.items() if fits(costs, plan)}
    best = planned_or_none(costs, question, cuts={problem.batch: along_order})
    return dict.fromkeys(places) | fitting | {"best over one order": best}


def unlike_baselines(costs: CostModel, speeds: Sequence[float]) -> dict[str, Plan]:
    """What rules of other programs give unlike devices, by name: each a range of ops.

    Device i has row and kind i of the costs, and speed i. The ranges follow the order of the
    devices, or the largest memory comes first. No rule looks at limits: a plan may exceed them.
    """
    groups = costs.contraction.groups
    counts = [float(ops.bit_count()) for ops in groups]
    bytes_of_groups = [sum(map(costs.sizes.__getitem__, members(ops))) for ops in groups]
    memory = [kind.memory for kind in costs.kinds]
    in_order = list(range(len(speeds)))
    largest_first = sorted(in_order, key=lambda device: -memory[device])
    rules = {
        "equal layer counts": (counts, [1.0] * len(speeds), in_order),
        "equal parameters": (bytes_of_groups, [1.0] * len(speeds), in_order),
        "layers by memory": (counts, memory, in_order),
        "layers by memory, largest first": (counts, memory, largest_first),
        "layers by speed": (counts, speeds, in_order),
    }
    plans = {}
    for name, (weights, shares, order) in rules.items():
        places = _by_shares(weights, [shares[device] for device in order])
        if places is not None:
            plans[name] = _ranges(costs, places, order)
    return plans


def _ranges(costs: CostModel, places: Sequence[int], devices: Sequence[int]) -> Plan:
    """A range of groups on each of some devices, cut near some places; none is empty."""
    spread = spread_places(places, len(costs.contraction.groups))
    cuts = [costs.contraction.expand((1 << place) - 1) for place in spread]
    pairs = zip(stages_between(costs, cuts), devices, strict=True)
    return evaluate(costs, [Stage(ops, (Option(costs.rows[device].row),)) for ops, device in pairs])


def _by_shares(weights: Sequence[float], shares: Sequence[float]) -> list[int] | None:
    """Cuts where the running sum of weights is nearest to these shares; None without weights."""
    if not sum(weights):
        return None
    running = np.cumsum([0.0, *weights])
    ends = running[-1] * np.cumsum(shares)[:-1] / sum(shares)
    return [int(np.abs(running - end).argmin()) for end in ends]


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


def _bisection(loads: Array, stages: int, longest: float) -> list[int] | None:
    """Coral's profiling partitioner: a bisection on the target time and on each stage's end.

    ``loads``: the time of a stage between two places along the order, the longest at most that.
    """
    low, high = 0.0, longest
    best: list[int] | None = None
    # The target moves down while the last stage meets it.
    while high - low > _BISECTION_GAP * high:
        target = (low + high) / 2
        places = _longest_stages(loads, stages, target)
        if loads[places[-1] if places else 0][-1] <= target:
            best, high = places, target
        else:
            low = target
    return best


def _longest_stages(loads: Array, stages: int, target: float) -> list[int]:
    """Each stage but the last as long as its time stays within the target, by bisection."""
    places: list[int] = []
    for left in range(stages - 1, 0, -1):
        start = places[-1] if places else 0
        low, high = start + 1, len(loads) - 1 - left
        while low < high:
            middle = (low + high + 1) // 2
            if loads[start][middle] <= target:
                low = middle
            else:
                high = middle - 1
        places.append(low)
    return places
