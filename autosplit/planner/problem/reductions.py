"""Reductions: a smaller problem whose best split is as good, made before any cut is listed.

An op that takes no time can always be on the stage of a neighbour, if that makes no load, no memory
and no sum of bytes larger in any split. The rules below find such ops, so some best split remains.
The stage that such an op leaves may become empty, so the reduced problem allows empty stages.

Branches with equal costs may be swapped, so only splits with their first ops in order remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import bitset, closures, members, successors
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.problem import Array, Problem, pose


def reduced(problem: Problem) -> Problem | None:
    """The problem with fewer cuts, None where no rule applies.

    If ops were moved it allows empty stages; a best split of it without any solves the problem.
    """
    pinned = any(problem.inside[:-1]) or any(problem.outside[1:])
    limits = (problem.live_tensors, problem.live_bytes)
    if pinned or problem.required or problem.empty_last or min(limits) < math.inf:
        return None
    smaller = problem
    while True:
        view = View(smaller)
        costs = with_moves(smaller, (*view.to_producers(), *view.to_consumers()))
        if costs is smaller.costs:
            break
        # Groups that were joined may be followed by others.
        smaller = pose(costs, problem.stages, FREE, allow_empty=True)
    costs = with_order(smaller)
    if costs.predecessors != smaller.costs.predecessors:
        smaller = pose(costs, problem.stages, FREE, allow_empty=smaller.allow_empty)
    return None if smaller is problem else smaller


@dataclass(frozen=True)
class Move:
    """Groups that go to the stage of ``target``, all of them or none."""

    groups: frozenset[int]
    target: int


def with_moves(problem: Problem, moves: Iterable[Move]) -> CostModel:
    """The costs with the groups of each move kept with its target.

    Moves of a group that is itself a target, or to a group that moves, are left out.
    """
    moving: set[int] = set()
    targets: set[int] = set()
    together = []
    for move in moves:
        if not move.groups & (moving | targets) and move.target not in moving:
            moving |= move.groups
            targets.add(move.target)
            together.append(problem.contraction.expand(bitset({*move.groups, move.target})))
    groups = (*problem.costs.groups, *together)
    return replace(problem.costs, groups=groups) if together else problem.costs


def with_order(problem: Problem) -> CostModel:
    """The costs with the first ops of equal branches in order."""
    predecessors = list(problem.costs.predecessors)
    for branches in View(problem).equal_branches():
        first_ops = [next(members(problem.contraction.groups[group])) for group in branches]
        for earlier, later in pairwise(sorted(first_ops)):
            predecessors[later] |= 1 << earlier
    return replace(problem.costs, predecessors=tuple(predecessors))


class View:
    """The groups of a problem with what they read and make, as the rules need it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.reads: list[list[int]] = [[] for _ in range(problem.size)]
        self.makes: list[list[int]] = [[] for _ in range(problem.size)]
        self.readers = [list(members(consumers)) for consumers in problem.consumers]
        for t, (producer, readers) in enumerate(zip(problem.producer, self.readers, strict=True)):
            if producer >= 0:
                self.makes[producer].append(t)
            for reader in readers:
                self.reads[reader].append(t)
        # What a tensor may cost a stage: a row a device each, and bytes moved.
        self.costs = np.vstack([problem.send, problem.receive, problem.bytes])
        self.free: NDArray[np.bool_] = self.costs.max(axis=0, initial=0.0) == 0

    @cached_property
    def below(self) -> list[int]:
        """For each group the bitset of what it needs, itself included."""
        return closures(self.problem.contraction.predecessors)

    @cached_property
    def successors(self) -> list[list[int]]:
        """For each group those that read from it."""
        return successors(self.problem.contraction.predecessors)

    @cached_property
    def movable(self) -> list[bool]:
        """Which groups take no time anywhere, and no memory where that is limited."""
        p = self.problem
        takes = np.zeros(p.size, dtype=bool)
        for runtime in p.runtimes:
            takes |= runtime.times.any(axis=0)
            for groups in runtime.together:
                takes[list(members(groups))] = True
        if p.memory.min() < p.largest_memory:
            takes |= (p.sizes > 0) | p.costs.activations
        return [not t for t in takes.tolist()]

    def to_producers(self) -> Iterator[Move]:
        """Moves of groups to the one that makes what they read.

        That sends their results instead of what they read: these must cost no more together. A
        group without costly results moves by itself.
        """
        for group in range(self.problem.size):
            if self._costs_of(self.makes[group]).any():
                continue
            for target in members(self.problem.contraction.predecessors[group]):
                if self._may_follow_producer(group, target):
                    yield Move(frozenset({group}), target)
                    break
        for t, target in enumerate(self.problem.producer):
            readers = self.readers[t]
            results = list(chain.from_iterable(self.makes[reader] for reader in readers))
            if target < 0 or not self._at_most(results, [t]):
                continue
            if all(self._may_follow_producer(reader, target) for reader in readers):
                yield Move(frozenset(readers), target)

    def to_consumers(self) -> Iterator[Move]:
        """Moves of groups to the one that reads what they make.

        That receives what they read instead of their results: this must cost no more.
        """
        for group, targets in enumerate(self.successors):
            # Every other one that reads their results lies on the same stage or later.
            first = [t for t in targets if all(self.below[other] >> t & 1 for other in targets)]
            if not first or not self.movable[group]:
                continue
            target = first[0]
            shared = [t for t in self.makes[group] if self.readers[t] != [target]]
            inputs = [t for t in self.reads[group] if target not in self.readers[t]]
            results = [t for t in self.makes[group] if self.readers[t] == [target]]
            if self.free[shared].all() and self._at_most(inputs, results):
                yield Move(frozenset({group}), target)

    def equal_branches(self) -> Iterator[list[int]]:
        """The first groups of chains that cost the same between the same tensors and readers."""
        branches: dict[object, list[int]] = {}
        for group in range(self.problem.size):
            branches.setdefault(self._branch(group), []).append(group)
        yield from (groups for groups in branches.values() if len(groups) > 1)

    def _branch(self, first: int) -> object:
        """A key of the chain from a group on: equal for chains that may be swapped."""
        branch, predecessors = [first], self.problem.contraction.predecessors
        while len(self.makes[branch[-1]]) == len(self.successors[branch[-1]]) == 1:
            follower = self.successors[branch[-1]][0]
            if predecessors[follower] != 1 << branch[-1] or len(self.reads[follower]) != 1:
                break
            branch.append(follower)
        ends = sorted((tuple(self.readers[t]), self._column(t)) for t in self.makes[branch[-1]])
        costs = [self._group_key(group) for group in branch]
        between = [self._column(self.makes[group][0]) for group in branch[:-1]]
        after = tuple(self.successors[branch[-1]])
        start = tuple(self.reads[first]), predecessors[first]
        return start, tuple(costs), tuple(between), tuple(ends), after

    def _group_key(self, group: int) -> object:
        p = self.problem
        times = [tuple(runtime.times[:, group].tolist()) for runtime in p.runtimes]
        together = [next((sets for sets in r.together if sets >> group & 1), 0) for r in p.runtimes]
        return tuple(times), float(p.sizes[group]), tuple(together)

    def _column(self, t: int) -> tuple[float, ...]:
        return (*self.costs[:, t].tolist(), float(self.problem.tensor_counts[t]))

    def _may_follow_producer(self, group: int, target: int) -> bool:
        """Whether a group may lie on the stage of a producer, and nothing it reads costs more."""
        predecessors = self.problem.contraction.predecessors[group]
        if not self.movable[group] or predecessors & ~self.below[target]:
            return False
        here = {*self.makes[target], *self.reads[target]}
        return all(self.free[t] or t in here for t in self.reads[group])

    def _at_most(self, tensors: list[int], others: list[int]) -> bool:
        """Whether some tensors cost no more than others, on any device."""
        return bool((self._costs_of(tensors) <= self._costs_of(others)).all())

    def _costs_of(self, tensors: list[int]) -> Array:
        costs: Array = self.costs[:, tensors].sum(axis=1)
        return costs
