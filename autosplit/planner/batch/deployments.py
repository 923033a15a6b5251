"""Many deployments at once: their periods under any costs as arrays.

As in ``evaluation``, each different stage is timed once. Its load depends on how many cores are
busy, so it is timed under the costs of one busy core and of all, and interpolated between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets, downsets, full, members
from autosplit.cuts.stages import Stages
from autosplit.planner.batch.evaluation import BatchEvaluator, StageBatch
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import evaluate
from autosplit.planner.problem.problem import Array, Index
from autosplit.planner.problem.runtime_costs import Rows, least_costs, of_device


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


@dataclass(frozen=True)
class CoreContention:
    """Costs by the number of busy cores, a row for each number of threads.

    ``alone`` are those where one core is busy, ``all_busy`` those where all ``cores`` are. They
    differ in times, between which any other number of busy cores is interpolated.
    """

    alone: CostModel
    all_busy: CostModel
    cores: int

    def level(self, busy: Array | int) -> Array:
        """From 0 for one busy core to 1 for all."""
        if self.cores == 1:
            return np.ones_like(busy, dtype=np.float64)
        return (np.asarray(busy, dtype=np.float64) - 1) / (self.cores - 1)

    def at(self, busy: int) -> CostModel:
        """The costs where ``busy`` cores are."""
        level = float(self.level(busy))
        if level == 1:
            return self.all_busy
        if not self.all_busy.runtimes:
            times = _between(self.alone.times, self.all_busy.times, level)
            return replace(self.all_busy, times=times)
        runtimes = []
        for alone, busy_costs in zip(self.alone.runtimes, self.all_busy.runtimes, strict=True):
            times = _between(alone.times, busy_costs.times, level)
            runtimes.append(replace(busy_costs, times=times))
        times, overheads = least_costs(runtimes)
        return replace(self.all_busy, times=times, overheads=overheads, runtimes=tuple(runtimes))


def _between(low: Rows, high: Rows, level: float) -> Rows:
    """Times between those of two tables."""
    rows = []
    for device in range(max(len(low), len(high))):
        pairs = zip(of_device(low, device), of_device(high, device), strict=True)
        # The difference of two infinite times would be none.
        rows.append(tuple(a if a == math.inf else a + level * (b - a) for a, b in pairs))
    return tuple(rows)


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


@dataclass(frozen=True, eq=False)
class DeploymentBatch:
    """Deployments on equal cores.

    A row of the arrays is a deployment, a column one of its stages. ``parts``: the place of the
    stage in the ``table``, -1 behind the last stage; ``replicas``: of the stage, 1 there.
    """

    stages: tuple[DeployedSplit, ...]
    parts: Index
    replicas: Array
    busy: Array
    table: StageBatch

    def times(self, costs: CostModel | CoreContention) -> Array:
        """The load of one replica of each stage; 0 behind the last stage."""
        if isinstance(costs, CostModel):
            return np.append(self.table.loads(costs), 0.0)[self.parts]
        low, high = self.table.loads(costs.alone), self.table.loads(costs.all_busy)
        low, high = np.append(low, 0.0)[self.parts], np.append(high, 0.0)[self.parts]
        with np.errstate(invalid="ignore"):
            loads = low + costs.level(self.busy)[:, None] * (high - low)
        return np.where(np.isinf(low), math.inf, loads)

    def periods(self, costs: CostModel | CoreContention) -> Array:
        """The period of each deployment; empty for an empty batch."""
        if not self.stages:
            return np.zeros(0)
        return np.asarray((self.times(costs) / self.replicas).max(axis=1))

    def only(self, chosen: NDArray[np.bool_]) -> DeploymentBatch:
        """The batch of those that are chosen."""
        return DeploymentBatch(
            tuple(compress(self.stages, chosen)),
            self.parts[chosen],
            self.replicas[chosen],
            self.busy[chosen],
            self.table,
        )

    @property
    def memory(self) -> Array:
        """Per deployment the bytes of a replica of its largest stage."""
        if not self.stages:
            return np.zeros(0)
        return np.asarray(np.append(self.table.memory, 0.0)[self.parts].max(axis=1))


class DeploymentEvaluator:
    """Makes batches of deployments; row i of ``costs`` is for ``thread_counts[i]`` threads."""

    def __init__(self, costs: CostModel, thread_counts: Sequence[int]) -> None:
        self._evaluator = BatchEvaluator(costs)
        self._row = {threads: row for row, threads in enumerate(thread_counts)}

    def batch(self, deployments: Iterable[DeployedSplit]) -> DeploymentBatch:
        """The deployments as a batch, in their order."""
        chosen = tuple(deployments)
        width = max((len(d.stages) for d in chosen), default=0)
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        parts = np.full((len(chosen), width), -1, dtype=np.intp)
        replicas = np.ones((len(chosen), width))
        for place, deployment in enumerate(chosen):
            rows = map(self._row.__getitem__, deployment.threads)
            for stage, part in enumerate(zip(rows, deployment.stages, strict=True)):
                parts[place, stage] = numbers.setdefault(part, len(numbers))
            replicas[place, : len(deployment.stages)] = deployment.replicas
        busy = np.array([deployment.cores for deployment in chosen], dtype=np.float64)
        return DeploymentBatch(chosen, parts, replicas, busy, self._evaluator.table(numbers))


def two_stage_periods(
    costs: CostModel, cores: int, thread_counts: Sequence[int], most: int = 2_000
) -> dict[int, float]:
    """For each legal cut the least period of a deployment of two stages there, if it fits.

    Empty where there are more than ``most`` cuts.
    """
    contraction, whole = costs.contraction, full(costs)
    try:
        legal = list(map(contraction.expand, downsets(contraction, most)[1:-1]))
    except TooManyDownsets:
        return {}
    splits = [tuple(tuple(members(ops)) for ops in (cut, whole & ~cut)) for cut in legal]
    candidates = [DeployedSplit(s, (1, 1), (w, w)) for s in splits for w in thread_counts]
    batch = DeploymentEvaluator(costs, thread_counts).batch(candidates)
    loads = batch.times(costs).reshape(len(splits), -1, 2)
    best = np.full(len(splits), math.inf)
    for first in range(1, cores):
        before = _least_period(loads[:, :, 0], first, thread_counts)
        after = _least_period(loads[:, :, 1], cores - first, thread_counts)
        best = np.minimum(best, np.maximum(before, after))
    memory = batch.memory.reshape(len(splits), -1).min(axis=1, initial=math.inf)
    best[memory > min(costs.memory)] = math.inf
    periods = dict(zip(legal, best.tolist(), strict=True))
    return {cut: period for cut, period in periods.items() if period < math.inf}


def _least_period(loads: Array, cores: int, thread_counts: Sequence[int]) -> Array:
    """The least period on some cores of stages with a load for each number of threads."""
    replicas = cores // np.array(thread_counts)
    periods = np.where(replicas > 0, loads / np.maximum(replicas, 1), math.inf)
    return np.asarray(periods.min(axis=1))
