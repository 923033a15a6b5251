"""The splits users know, from the same cost model: what the plan is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autosplit.cuts import members, successors
from autosplit.planner.exact.downset_table import prefixes, to_words
from autosplit.planner.exact.search import search
from autosplit.planner.exact.stage_loads import Side, loads
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan, value
from autosplit.planner.problem.problem import Array, Deadline, Problem, pose, scale

_THRESHOLD = 0.01  # of the period: where a bisection on measured times stops


@dataclass(frozen=True)
class Baseline:
    """A simple way to split; ``plan`` is None where it gives no split that fits, and ``note`` says why.

    ``candidates``: how many stages it would have to build and measure, where it works by measuring.
    """

    name: str
    plan: Plan | None
    candidates: int | None = None
    note: str = ""


def baselines(
    costs: CostModel, stages: int, *, deadline: Deadline | None = None
) -> tuple[Baseline, ...]:
    """All baselines along the model's own order of ops; groups of ops stay together in all of them."""
    problem = pose(costs, stages, FREE)
    sums = problem.times[np.isfinite(problem.times).all(axis=1)]
    times = [float(t) for t in (sums.mean(axis=0) if len(sums) else np.zeros(problem.size))]
    weighed: tuple[tuple[str, Sequence[float]], ...] = (
        ("equal op count", [float(g.bit_count()) for g in problem.contraction.groups]),
        ("equal parameters", [float(s) for s in problem.sizes]),
        (
            "equal FLOPs",
            [sum(costs.flops[i] for i in members(g)) for g in problem.contraction.groups],
        ),
    )
    found = [_equal(problem, name, weights) for name, weights in weighed]
    found.append(
        _checked(problem, "block partition by time", _places(_blocks(times, stages), problem.size))
    )
    order = prefixes(range(problem.size), problem.size)
    single = to_words(sorted(_single_tensor(problem)), problem.size)
    for name, words in (("best over one order", order), ("single-tensor cuts", single)):
        best = search(problem, words, None, deadline)
        found.append(Baseline(name, best.plan, None, "" if best.plan else "no such split fits"))
    return (*found, _bisection(problem))


def _equal(problem: Problem, name: str, weights: Sequence[float]) -> Baseline:
    """Cuts where the running sum of weights is nearest to equal shares."""
    if not sum(weights):
        return Baseline(name, None, None, "unknown for this graph")
    running = np.cumsum([0.0, *weights])
    shares = [running[-1] * n / problem.stages for n in range(1, problem.stages)]
    return _checked(
        problem, name, _places([int(np.abs(running - s).argmin()) for s in shares], problem.size)
    )


def _places(places: Sequence[int], size: int) -> list[int]:
    """Places along the order, moved apart so that no stage is empty."""
    spread: list[int] = []
    for n, place in enumerate(places):
        lowest = spread[-1] + 1 if spread else 1
        spread.append(min(max(place, lowest), size - len(places) + n))
    return spread


def _checked(
    problem: Problem, name: str, places: Sequence[int], candidates: int | None = None
) -> Baseline:
    plan = problem.plan(tuple((1 << p) - 1 for p in places))
    if any(held > value(problem.costs.memory, d) for d, held in enumerate(plan.memory)):
        return Baseline(name, None, candidates, "exceeds the memory of a device")
    if plan.period == math.inf:
        return Baseline(name, None, candidates, "puts an op on a device that cannot run it")
    return Baseline(name, plan, candidates)


def _blocks(times: Sequence[float], count: int) -> list[int]:
    """Block partition of a sequence (Bárány and Grinberg, 2015), which torchgpipe balances by: the ends of the blocks.

    Sums end up within one largest element of each other: an element moves towards the smallest block from the side of the
    largest until they are.
    """
    n = len(times)
    ends = [n * b // count for b in range(count + 1)]
    running = np.cumsum([0.0, *times])
    step = max(times, default=0.0) * (1 + 1e-12)
    for _ in range(n * n * count):
        sums = [float(running[b] - running[a]) for a, b in pairwise(ends)]
        largest = max(range(count), key=sums.__getitem__)
        least = min(sums)
        if sums[largest] <= least + step:
            break
        smallest = min(
            (q for q in range(count) if sums[q] == least), key=lambda q: abs(q - largest)
        )
        if largest < smallest:
            ends[smallest] -= 1
        else:
            ends[smallest + 1] += 1
    return ends[1:-1]


def _single_tensor(problem: Problem) -> set[int]:
    """Cuts that only one tensor crosses: what lies on its producer's side when the tensor is taken away."""
    readers = successors(problem.contraction.predecessors)
    links = [
        set(members(p)) | set(r)
        for p, r in zip(problem.contraction.predecessors, readers, strict=True)
    ]
    found = {0, (1 << problem.size) - 1}
    several = {
        (p, c)
        for p, c, n in zip(problem.producer, problem.consumers, problem.number, strict=True)
        if n > 1
    }
    for producer, consumers in zip(problem.producer, problem.consumers, strict=True):
        if producer < 0 or (producer, consumers) in several:
            continue
        side = _reach(links, producer, consumers)
        if not side & consumers and all(
            not problem.contraction.predecessors[i] & ~side for i in members(side)
        ):
            ends = zip(problem.producer, problem.consumers, strict=True)
            if sum(p >= 0 and side >> p & 1 and bool(c & ~side) for p, c in ends) == 1:
                found.add(side)
    return found


def _reach(links: Sequence[set[int]], start: int, without: int) -> int:
    """The groups connected with ``start`` when its links to ``without`` are taken away."""
    side, work = 1 << start, [start]
    while work:
        node = work.pop()
        for other in links[node]:
            if not side >> other & 1 and not (node == start and without >> other & 1):
                side |= 1 << other
                work.append(other)
    return side


def _bisection(problem: Problem) -> Baseline:
    """Coral's profiling partitioner: a bisection on the target time, and for each stage one on where it ends.

    Each probe of a stage is one that has to be compiled and run; a stage that was probed before is not counted again.
    """
    name = "Coral bisection"
    tables = [_line(problem, d) for d in range(problem.stages)]
    probed: set[tuple[int, int, int]] = set()

    def probe(stage: int, start: int, end: int) -> float:
        probed.add((stage, start, end))
        return float(tables[stage][start, end])

    low, high = 0.0, scale(problem, math.inf).top
    best: list[int] | None = None
    while high - low > _THRESHOLD * high:
        target = (low + high) / 2
        places = _greedy(problem, target, probe)
        last = places[-1] if places else 0
        if probe(problem.stages - 1, last, problem.size) <= target:
            best, high = places, target
        else:
            low = target
    if best is None:
        return Baseline(name, None, len(probed), "no target time was met")
    return _checked(problem, name, best, len(probed))


def _greedy(problem: Problem, target: float, probe: Callable[[int, int, int], float]) -> list[int]:
    """Each stage but the last as long as its time stays within the target, by bisection."""
    places: list[int] = []
    for stage in range(problem.stages - 1):
        start = places[-1] if places else 0
        low, high = start + 1, problem.size - (problem.stages - 1 - stage)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if probe(stage, start, middle) <= target else (low, middle - 1)
            )
        places.append(low)
    return places


def _line(problem: Problem, device: int) -> Array:
    """Loads of all stages along the model's order on a device: from prefix i to prefix j."""
    scaled = scale(problem, math.inf)
    side = Side(scaled, prefixes(range(problem.size), problem.size), device)
    table = np.full((problem.size + 1, problem.size + 1), math.inf)
    for block in loads(scaled, device, side, side, math.inf):
        table[block.left, block.right] = block.load * scaled.unit
    return table
