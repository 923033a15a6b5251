"""A search for graphs with too many downsets to list: the exact search over a small table of them, again and again.

Each round the table holds the cuts of the best split so far, cuts around them, and cuts along random topological orders. The
exact search over a table can only improve the split; a bound that needs no table says how far it can be from the best.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from random import Random

from autosplit.cuts import members
from autosplit.planner.exact.downset_table import Words, merge, to_words
from autosplit.planner.exact.search import Found, search
from autosplit.planner.large import orders
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, Problem

_ROWS = 6000
_CLOSE = 1e-4  # a gap not worth another round


def improve(
    problem: Problem,
    first: Found,
    bound: float,
    cheap: Collection[int],
    deadline: Deadline | None,
    rounds: int,
    seed: int = 0,
) -> Found:
    """The best split found until the deadline, the gap closed, or a number of ``rounds`` without a better one.

    ``bound`` is proven; ``cheap`` are downsets with few or small live tensors, to cut at or near.
    """
    random = Random(seed)
    best, idle = first.plan, 0
    while idle < rounds and not (deadline is not None and deadline()):
        if best is not None and best.period <= bound * (1 + _CLOSE):
            break
        found = search(problem, _table(problem, best, sorted(cheap), random), best, deadline)
        better = found.plan is not None and (best is None or found.plan.period < best.period)
        best, idle = found.plan, 0 if better else idle + 1
    return Found(best, bound, best is not None and best.period <= bound)


def _table(problem: Problem, best: Plan | None, cheap: list[int], random: Random) -> Words:
    """Cuts around those of the best split and cheap ones, and along random orders, some of them joined and met."""
    before = problem.contraction.predecessors
    cuts = _own_cuts(problem, best)
    found = {0, (1 << problem.size) - 1, *cuts}
    tries = max(4, _ROWS // (2 * problem.size))
    for n in range(tries):
        order = _order(before, (cuts, _nested(cheap, random), [])[n % 3], random)
        done = 0
        for g in order:
            done |= 1 << g
            found.add(done)
    for a, b in _pairs(sorted(found), cuts, random):
        found |= {a | b, a & b}
    return merge(to_words(sorted(found), problem.size))


def _own_cuts(problem: Problem, best: Plan | None) -> list[int]:
    """The cuts of a plan as bitsets of groups."""
    if best is None:
        return []
    groups = problem.contraction.groups
    return [sum(1 << g for g, ops in enumerate(groups) if ops & cut) for cut in best.cuts]


def _nested(cheap: list[int], random: Random) -> list[int]:
    """A random chain of nested cheap cuts."""
    chain: list[int] = []
    for cut in random.sample(cheap, len(cheap)):
        if all(not cut & ~c or not c & ~cut for c in chain):
            chain.append(cut)
    return sorted(chain, key=int.bit_count)


def _order(before: Sequence[int], cuts: Sequence[int], random: Random) -> list[int]:
    """A random order that passes through nested cuts, now and then but for one of them."""
    if not cuts:
        return orders.random_order(before, random)
    skipped = {random.randrange(len(cuts)) if random.random() < 0.5 else -1}
    ends = [0, *(c for n, c in enumerate(cuts) if n not in skipped), (1 << len(before)) - 1]
    order: list[int] = []
    for a, b in pairwise(ends):
        inside = list(members(b & ~a))
        place = {g: n for n, g in enumerate(inside)}
        own = [sum(1 << place[p] for p in members(before[g] & b & ~a)) for g in inside]
        order += [inside[n] for n in orders.random_order(own, random)]
    return order


def _pairs(found: Sequence[int], cuts: Sequence[int], random: Random) -> list[tuple[int, int]]:
    """Some pairs of cuts of like size, at least one of them near a cut of the best split."""
    if not cuts:
        return []
    sized = sorted(found, key=int.bit_count)
    sizes = [d.bit_count() for d in sized]
    pairs = []
    for _ in range(_ROWS // 8):
        cut = random.choice(list(cuts))
        near = _near(sizes, cut.bit_count(), random)
        pairs.append((sized[near], sized[_near(sizes, cut.bit_count(), random)]))
    return pairs


def _near(sizes: Sequence[int], size: int, random: Random) -> int:
    from bisect import bisect_left

    spread = max(8, len(sizes) // 64)
    place = bisect_left(sizes, size) + random.randint(-spread, spread)
    return min(max(place, 0), len(sizes) - 1)
