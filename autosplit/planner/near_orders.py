"""Graphs with too many downsets to list: the exact search over small tables of them.

Each round the table holds the cuts of the best split so far, cuts around them, and cuts along
random topological orders. The search over a table can only improve the split; it proves nothing
about the other cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from random import Random

from autosplit.cuts import bitset, members, successors
from autosplit.cuts.orders import random_order
from autosplit.planner.exact.downset_table import Words, merge, to_words
from autosplit.planner.exact.search import search
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, Problem

_ROWS = 6000
_CENTRES = 32  # cuts near those of the best split whose neighbours are searched too
_CLOSE = 1e-4  # a gap not worth another round


def improve(
    problem: Problem, best: Plan | None, bound: float, deadline: Deadline | None, rounds: int
) -> Plan | None:
    """The best split until the deadline, a closed gap, or ``rounds`` in a row without a better one.

    ``bound`` of the period is proven.
    """
    random, idle_rounds = Random(0), 0
    while idle_rounds < rounds and not (deadline is not None and deadline()):
        if best is not None and best.period <= bound * (1 + _CLOSE):
            break
        plan = search(problem, rows_around(problem, best, random), best, deadline).plan
        better = plan is not None and (best is None or plan.period < best.period)
        best, idle_rounds = plan, 0 if better else idle_rounds + 1
    return best


def rows_around(problem: Problem, best: Plan | None, random: Random, size: int = _ROWS) -> Words:
    """Cuts of the best split, cuts along random orders, and some near the former.

    About ``size`` cuts.
    """
    before = problem.contraction.predecessors
    cuts = problem.group_cuts(best) if best is not None else []
    downsets = {0, problem.whole, *cuts}
    for n in range(max(4, size // (2 * problem.size))):
        # By turns through the best cuts and anywhere.
        order = _order_through(before, cuts if n % 2 else [], random)
        downsets.update(accumulate((1 << g for g in order), int.__or__))
    once = _sample(_exchanged(before, cuts), size // 3, random)
    twice = _exchanged(before, _sample(once, _CENTRES, random))
    downsets.update(once, _sample(twice, size // 3, random))
    return merge(to_words(sorted(downsets), problem.size))


def _exchanged(before: Sequence[int], cuts: Sequence[int]) -> list[int]:
    """The cuts with one group more, one fewer, or one instead of another."""
    after = [bitset(groups) for groups in successors(before)]
    near: set[int] = set()
    for cut in cuts:
        last = [g for g in members(cut) if not after[g] & cut]
        for fewer in (cut, *(cut ^ 1 << g for g in last)):
            outside = members(cut ^ (1 << len(before)) - 1)
            near.update(fewer | 1 << g for g in outside if not before[g] & ~fewer)
            near.add(fewer)
    return sorted(near)


def _sample(cuts: list[int], count: int, random: Random) -> list[int]:
    return random.sample(cuts, min(count, len(cuts)))


def _order_through(before: Sequence[int], cuts: Sequence[int], random: Random) -> list[int]:
    """A random order that passes through nested cuts, half of the time but for one of them."""
    if not cuts:
        return random_order(before, random)
    skipped = random.randrange(len(cuts)) if random.random() < 0.5 else -1
    ends = [0, *(c for n, c in enumerate(cuts) if n != skipped), (1 << len(before)) - 1]
    order: list[int] = []
    for lower, upper in pairwise(ends):
        between = list(members(upper & ~lower))
        place = {g: n for n, g in enumerate(between)}
        # The part of the graph between two cuts, renumbered.
        producers = [members(before[g] & upper & ~lower) for g in between]
        inner = [bitset(map(place.__getitem__, groups)) for groups in producers]
        order += [between[n] for n in random_order(inner, random)]
    return order
