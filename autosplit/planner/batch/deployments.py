"""Deployments as a study moves between them, and batches of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, repeat
from typing import TypeVar

import numpy as np

from autosplit.cuts import TooManyDownsets, downsets
from autosplit.cuts.stages import Stages, stages_between
from autosplit.planner.batch.evaluation import BatchEvaluator, Shape
from autosplit.planner.partition.problem import Array
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import row_numbers, shares, sharing, useful_replicas

T = TypeVar("T")
_MOST_CUTS = 2_000  # of which the periods of all deployments are computed


@dataclass(frozen=True)
class DeployedSplit:
    """A split of the ops with the replicas of each stage and the threads of one replica of it.

    ``kinds``: of the cores of each stage; none where all cores are of one kind.
    """

    stages: Stages
    replicas: tuple[int, ...]
    threads: tuple[int, ...]
    kinds: tuple[int, ...] = ()

    @property
    def cores(self) -> int:
        """How many cores it uses."""
        return sum(r * w for r, w in zip(self.replicas, self.threads, strict=True))

    def cores_of(self, kind: int) -> int:
        """How many cores of a kind it uses."""
        parts = zip(self.replicas, self.shapes, strict=True)
        return sum(r * w for r, (w, k) in parts if k == kind)

    @property
    def shapes(self) -> Iterator[tuple[int, int]]:
        """The threads of a replica of each stage, and their kind of cores."""
        return zip(self.threads, self.kinds or repeat(0, len(self.threads)), strict=True)

    def shares(self, costs: CostModel) -> list[float]:
        """What the replicas of each stage divide its load by."""
        return shares(costs, self.stages, self.replicas)

    def with_useful_replicas(self, costs: CostModel) -> DeployedSplit:
        """The same without the replicas of stages with states that streams are too few for."""
        useful = [
            useful_replicas(count, costs.streams) if costs.has_state(ops) else count
            for ops, count in zip(self.stages, self.replicas, strict=True)
        ]
        return replace(self, replicas=tuple(useful))

    def reshaped(
        self, cores: Sequence[int], thread_counts: tuple[int, ...]
    ) -> Iterator[DeployedSplit]:
        """The same stages with other threads, replicas or cores of one or two of them.

        ``cores``: how many there are of each kind.
        """
        replicas, shapes = self.replicas, list(self.shapes)
        free = [most - self.cores_of(kind) for kind, most in enumerate(cores)]
        for taker, (threads, kind) in enumerate(shapes):
            for count, other in row_numbers(thread_counts):
                room = replicas[taker] * threads if other == kind else free[other]
                yield self._with(taker, max(1, room // count), count, other)
            more = free[kind] // threads
            if more:
                yield self._with(taker, replicas[taker] + more)
            for giver, (width, other) in enumerate(shapes):
                if other != kind:
                    yield self._with(taker, replicas[giver], width, other)._with(
                        giver, replicas[taker], threads, kind
                    )
                    continue
                more = (free[kind] + width) // threads
                if giver != taker and replicas[giver] > 1 and more:
                    fewer = self._with(giver, replicas[giver] - 1)
                    yield fewer._with(taker, replicas[taker] + more)

    def _with(
        self, stage: int, replicas: int, threads: int | None = None, kind: int = 0
    ) -> DeployedSplit:
        """The same with other replicas of a stage, and with other threads of a kind."""
        changed = replace(self, replicas=_with(self.replicas, stage, replicas))
        if threads is None:
            return changed
        kinds = _with(self.kinds, stage, kind) if self.kinds else ()
        return replace(changed, threads=_with(self.threads, stage, threads), kinds=kinds)

    def merged(self) -> Iterator[DeployedSplit]:
        """Two stages that follow each other as one, with the cores of both if they are of a kind.

        Else with those of either.
        """
        shapes = list(self.shapes)
        for first in range(len(self.stages) - 1):
            pair = first, first + 1
            both = tuple(sorted((*self.stages[first], *self.stages[first + 1])))
            is_one_kind = shapes[first][1] == shapes[first + 1][1]
            for place in pair[:1] if is_one_kind else pair:
                cores = [self.replicas[s] * shapes[s][0] for s in pair]
                usable = sum(cores) if is_one_kind else cores[place - first]
                whole = self._with(place, usable // shapes[place][0])
                other = first + 1 if place == first else first
                yield DeployedSplit(
                    _without(_with(self.stages, place, both), other),
                    _without(whole.replicas, other),
                    _without(self.threads, other),
                    _without(self.kinds, other),
                )


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _without(values: tuple[T, ...], place: int) -> tuple[T, ...]:
    return values[:place] + values[place + 1 :]


class DeploymentEvaluator(BatchEvaluator[DeployedSplit]):
    """Makes batches of deployments; row i of ``costs`` is for ``thread_counts[i]`` threads."""

    def __init__(self, costs: CostModel, thread_counts: Sequence[int]) -> None:
        super().__init__(costs)
        self._row = row_numbers(tuple(thread_counts))

    def shape(self, candidate: DeployedSplit) -> Shape:
        """See BatchEvaluator."""
        rows = map(self._row.__getitem__, candidate.shapes)
        parts = list(zip(rows, candidate.stages, strict=True))
        return Shape(parts, candidate.shares(self.costs), candidate.cores)


def two_stage_periods(
    costs: CostModel, cores: Sequence[int], thread_counts: Sequence[int]
) -> dict[int, float]:
    """For each legal cut the least period of a deployment of two stages there, if it fits.

    ``cores``: of each kind. Empty where there are too many cuts.
    """
    contraction = costs.contraction
    try:
        legal = list(map(contraction.expand, downsets(contraction, _MOST_CUTS)[1:-1]))
    except TooManyDownsets:
        return {}
    if not legal:
        return {}
    splits = [stages_between(costs, [cut]) for cut in legal]
    shapes = list(row_numbers(tuple(thread_counts)))
    candidates = [DeployedSplit(s, (1, 1), (w, w), (k, k)) for s in splits for w, k in shapes]
    batch = DeploymentEvaluator(costs, thread_counts).batch(candidates)
    loads = batch.times(costs).reshape(len(splits), -1, 2)
    limits = [costs.memory[row % len(costs.memory)] for row in range(len(shapes))]
    memory = batch.memory.reshape(len(splits), -1)
    loads[memory > limits] = math.inf
    best = np.full(len(splits), math.inf)
    has_state = np.array([list(map(costs.has_state, split)) for split in splits])
    counts, kinds = (np.array(column) for column in zip(*shapes, strict=True))

    def least(side: int, kind: int, number: int) -> Array:
        """The least period of that stage of each split on so many cores of a kind."""
        replicas = number // counts
        # So few cores hold no replica with so many threads.
        divisors = sharing(np.maximum(replicas, 1), costs.streams, has_state[:, side, None])
        each = np.where((replicas > 0) & (kinds == kind), loads[:, :, side] / divisors, math.inf)
        return np.asarray(each.min(axis=1))

    for first, second in product(range(len(cores)), repeat=2):
        for number in range(1, cores[first] + (first != second)):
            rest = cores[second] if first != second else cores[first] - number
            both = np.maximum(least(0, first, number), least(1, second, rest))
            best = np.minimum(best, both)
    periods = dict(zip(legal, best.tolist(), strict=True))
    return {cut: period for cut, period in periods.items() if period < math.inf}
