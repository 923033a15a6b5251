"""Deployments as a study moves between them, and batches of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosplit.cuts import TooManyDownsets, downsets
from autosplit.cuts.stages import Stages, stages_between
from autosplit.planner.batch.evaluation import BatchEvaluator, Shape
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import shares, sharing, useful_replicas
from autosplit.planner.problem.evaluation import evaluate


@dataclass(frozen=True)
class DeployedSplit:
    """A split of the ops with the replicas of each stage and the threads of one replica of it."""

    stages: Stages
    replicas: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def cores(self) -> int:
        """How many cores it uses."""
        return sum(r * w for r, w in zip(self.replicas, self.threads, strict=True))

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

    def reshaped(self, cores: int, thread_counts: Sequence[int]) -> Iterator[DeployedSplit]:
        """The same stages on so many cores with other threads or replicas of one or two stages."""
        replicas, threads = self.replicas, self.threads
        free = cores - self.cores
        for taker in range(len(threads)):
            for count in thread_counts:
                fewer = max(1, replicas[taker] * threads[taker] // count)
                yield replace(
                    self,
                    replicas=_with(replicas, taker, fewer),
                    threads=_with(threads, taker, count),
                )
            more = free // threads[taker]
            if more:
                yield replace(self, replicas=_with(replicas, taker, replicas[taker] + more))
            for giver in range(len(threads)):
                more = (free + threads[giver]) // threads[taker]
                if giver != taker and replicas[giver] > 1 and more:
                    rest = _with(replicas, giver, replicas[giver] - 1)
                    yield replace(self, replicas=_with(rest, taker, rest[taker] + more))

    def merged(self) -> Iterator[DeployedSplit]:
        """Two stages that follow each other as one, with the cores of both."""
        stages, replicas, threads = self.stages, self.replicas, self.threads
        for place in range(len(stages) - 1):
            cores = [replicas[s] * threads[s] for s in (place, place + 1)]
            both = tuple(sorted((*stages[place], *stages[place + 1])))
            yield DeployedSplit(
                (*stages[:place], both, *stages[place + 2 :]),
                (*replicas[:place], sum(cores) // threads[place], *replicas[place + 2 :]),
                (*threads[: place + 1], *threads[place + 2 :]),
            )


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def loads_in(
    costs: CostModel,
    deployment: DeployedSplit,
    thread_counts: Sequence[int],
    runtimes: Sequence[str] = (),
) -> tuple[float, ...]:
    """The loads of a replica of each stage in some runtimes, without any in the fastest."""
    rows = [thread_counts.index(threads) for threads in deployment.threads]
    model = costs.on_devices(rows)
    if runtimes:
        model = model.in_runtimes(runtimes)
    return evaluate(model, deployment.stages).loads


class DeploymentEvaluator(BatchEvaluator[DeployedSplit]):
    """Makes batches of deployments; row i of ``costs`` is for ``thread_counts[i]`` threads."""

    def __init__(self, costs: CostModel, thread_counts: Sequence[int]) -> None:
        super().__init__(costs)
        self._row = {threads: row for row, threads in enumerate(thread_counts)}

    def shape(self, candidate: DeployedSplit) -> Shape:
        """See BatchEvaluator."""
        rows = map(self._row.__getitem__, candidate.threads)
        parts = list(zip(rows, candidate.stages, strict=True))
        return Shape(parts, candidate.shares(self.costs), candidate.cores)


def two_stage_periods(
    costs: CostModel, cores: int, thread_counts: Sequence[int], most: int = 2_000
) -> dict[int, float]:
    """For each legal cut the least period of a deployment of two stages there, if it fits.

    Empty where there are more than ``most`` cuts.
    """
    contraction = costs.contraction
    try:
        legal = list(map(contraction.expand, downsets(contraction, most)[1:-1]))
    except TooManyDownsets:
        return {}
    splits = [stages_between(costs, [cut]) for cut in legal]
    candidates = [DeployedSplit(s, (1, 1), (w, w)) for s in splits for w in thread_counts]
    batch = DeploymentEvaluator(costs, thread_counts).batch(candidates)
    loads = batch.times(costs).reshape(len(splits), -1, 2)
    best = np.full(len(splits), math.inf)
    has_state = np.array([list(map(costs.has_state, split)) for split in splits])
    for first in range(1, cores):
        sides = []
        for side, count in enumerate((first, cores - first)):
            replicas = count // np.array(thread_counts)
            # So few cores hold no replica with so many threads.
            divisors = sharing(np.maximum(replicas, 1), costs.streams, has_state[:, side, None])
            each = np.where(replicas > 0, loads[:, :, side] / divisors, math.inf)
            sides.append(each.min(axis=1))
        best = np.minimum(best, np.maximum(*sides))
    memory = batch.memory.reshape(len(splits), -1).min(axis=1, initial=math.inf)
    best[memory > min(costs.memory)] = math.inf
    periods = dict(zip(legal, best.tolist(), strict=True))
    return {cut: period for cut, period in periods.items() if period < math.inf}
