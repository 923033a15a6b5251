"""Ways to search for a split on simulated hardware, each as the splits it measures, in its order.

What a way would end with after n trials is judged alike for all: the best measured few compete once
more, as at the end of a study, and the winner's true period is set against the true optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

import optuna

from autosplit.cuts import members
from autosplit.cuts.stages import Stages
from autosplit.hardware.bench.interface import deployed
from autosplit.hardware.bench.simulated import SimulatedBench, Simulation, graph_of
from autosplit.planner import CostModel, plan
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import generator, history_of
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.comparison import finalists
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.run import run_study
from autosplit.study.progress import Progress
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured

NEAR = 0.01  # of the true optimum: found
ERROR, NOISE = 0.35, 0.02  # of the known costs, and of a measured stage time
THRESHOLD = 0.01  # of the slowest stage: where Coral's bisection ends
CORAL_LIMIT = 3000  # candidates after which it is stopped


@lru_cache(maxsize=2)
def space_of(costs: CostModel, stages: int) -> Space:
    """The space of a graph, one for all seeds: what is known before anything is measured depends on
    none.
    """
    return Space(costs, stages)


@dataclass(frozen=True, eq=False)
class Case:
    """A graph to be split into ``stages`` stages, its true costs hidden and drawn from ``seed``."""

    costs: CostModel
    stages: int
    seed: int
    _losses: dict[Stages, float] = field(default_factory=dict)

    @cached_property
    def bench(self) -> SimulatedBench:
        devices = [f"cores:{i}" for i in range(self.stages)]
        simulation = Simulation(error=ERROR, noise=NOISE, seed=self.seed)
        return SimulatedBench(graph_of(self.costs), self.costs, devices, simulation)

    @cached_property
    def space(self) -> Space:
        return space_of(self.costs, self.stages)

    @cached_property
    def optimum(self) -> float:
        """The least true period."""
        if self.space.stage_table is None:
            return plan(self.bench.true, self.stages).period
        return self.space.evaluate(self.space.best(self.bench.true, 1)[0], self.bench.true).period

    def loss(self, stages: Stages) -> float:
        """How far the true period of a split is above the optimum, relative."""
        if stages not in self._losses:
            self._losses[stages] = self.bench.truth(stages).period / self.optimum - 1
        return self._losses[stages]

    def measure(self, number: int, stages: Stages) -> Measured:
        measurement = self.bench.measure(deployed(self.bench, stages))
        return Measured(number, stages, measurement.stage_ms, measurement.period_ms.median)

    def choose(self, measured: Sequence[Measured]) -> Stages:
        """The split that a study of these trials ends with."""
        corrected = corrected_costs(self.space, tuple(measured))
        best = [m.stages for m in finalists(corrected, measured)]
        candidates = [deployed(self.bench, stages) for stages in best]
        measurements = self.bench.compare_interleaved(candidates, ())[0]
        periods = [measurement.period_ms.median for measurement in measurements]
        return best[periods.index(min(periods))]


@dataclass(frozen=True)
class Found:
    """What a search found: after how many ``trials`` it would first end within 1 % of the optimum,
    infinite for never.

    ``settled``: from which trial on it always would. ``measured``: all its trials, after which it
    is ``loss`` above the optimum.
    """

    trials: float
    settled: float
    measured: int
    loss: float


def judge(case: Case, measured: Sequence[Measured]) -> Found:
    """Look at what a search would have ended with after each of its trials."""
    first = settled = loss = math.inf
    least = math.inf
    for n in range(1, len(measured) + 1):
        least = min(least, case.loss(measured[n - 1].stages))
        if least > NEAR and n < len(measured):
            continue
        loss = case.loss(case.choose(measured[:n]))
        if loss > NEAR:
            settled = math.inf
        elif settled == math.inf:
            first, settled = min(first, n), n
    return Found(first, settled, len(measured), loss)


def planner(case: Case, trials: int) -> list[Measured]:
    """The trials of a study with the default sampler, up to its own end or ``trials``."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    search = {"trials": trials, "seed": case.seed}
    config = StudyConfig.model_validate(
        {"name": "search", "runtime": "simulated", "stages": case.stages, "search": search}
    )
    run_study(OpenStudy(study, "memory://", config, case.bench, case.space), Progress())
    return list(history_of(case.space, study.trials).measured)


def tpe_on_indices(case: Case, trials: int) -> list[Measured]:
    """Optuna's TPE on K-1 places in the model's order of the ops, sorted.

    Places that coincide or do not fit are pruned.
    """
    groups = case.costs.contraction.groups
    downsets = [0, *accumulate(groups, int.__or__)]

    def split(trial: optuna.Trial) -> Stages | None:
        places = sorted(
            trial.suggest_int(f"cut_{i}", 1, len(groups) - 1) for i in range(1, case.stages)
        )
        ends = [downsets[p] for p in (0, *places, len(groups))]
        stages = tuple(tuple(members(b & ~a)) for a, b in pairwise(ends))
        return stages if all(stages) and case.space.fits(stages) else None

    return _optimize(case, trials, optuna.samplers.TPESampler(seed=case.seed), split)


def tpe_on_shares(case: Case, trials: int) -> list[Measured]:
    """Optuna's TPE on the shares of the known cost before each cut, the plan enqueued as its first
    trial.
    """

    def split(trial: optuna.Trial) -> Stages | None:
        stages = case.space.decode(
            {name: trial.suggest_float(name, 0.0, 1.0) for name in case.space.names}
        )
        return stages if case.space.fits(stages) else None

    first = case.space.parameters(case.space.plan())
    return _optimize(case, trials, optuna.samplers.TPESampler(seed=case.seed), split, first)


def randomly(case: Case, trials: int) -> list[Measured]:
    """Random splits."""
    rng = generator(case.seed, 0)
    measured_splits = (case.space.random(rng) for _ in range(trials))
    return [case.measure(n, stages) for n, stages in enumerate(s for s in measured_splits if s)]


def plan_alone(case: Case) -> list[Measured]:
    """The best split for the known costs, no other measured."""
    return [case.measure(0, case.space.plan())]


def coral(case: Case) -> Found:
    """Coral's profiling partitioner (libcoral, partition_with_profiling): a bisection on the time
    of the slowest stage.

    It starts between the fastest and the slowest stage of an even split. For a target each stage
    but the last is cut shorter, op by op, until it meets it; if the last then does too, the target
    is lowered, else raised. Each new length is a partition that is built and measured whole; what
    is known of any of its stages is not measured again. Found is what it ends with and how many
    partitions it measured; when it was near is not looked at.
    """
    search = _Coral(case)
    best = search.run()
    loss = case.loss(search.split(best))
    count = len(search.measured)
    return Found(count if loss <= NEAR else math.inf, math.inf, count, loss)


def _optimize(
    case: Case,
    trials: int,
    by: optuna.samplers.BaseSampler,
    split: Callable[[optuna.Trial], Stages | None],
    first: dict[str, float] | None = None,
) -> list[Measured]:
    """Up to ``trials`` measured splits, or twice as many tries.

    One measured before is told again at no cost.
    """
    study = optuna.create_study(sampler=by)
    if first:
        study.enqueue_trial(first)
    measured_splits: dict[Stages, Measured] = {}
    for _ in range(2 * trials):
        trial = study.ask()
        stages = split(trial)
        if stages is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        if stages not in measured_splits:
            measured_splits[stages] = case.measure(len(measured_splits), stages)
        study.tell(trial, measured_splits[stages].period_ms)
        if len(measured_splits) == trials:
            break
    return list(measured_splits.values())


class _Coral:
    """The bisection of one case along the model's order of its groups of ops.

    A partition is how many a stage has.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.stages = case, case.stages
        self.downsets = [0, *accumulate(case.costs.contraction.groups, int.__or__)]
        self.size = len(case.costs.contraction.groups)
        self.known: dict[tuple[int, int], float] = {}
        self.measured: list[Measured] = []

    def run(self) -> list[int]:
        """The partition it ends with."""
        best = [
            self.size * (n + 1) // self.stages - self.size * n // self.stages
            for n in range(self.stages)
        ]
        times = [self.time(best, s) for s in range(self.stages)]
        low, high = min(times), max(times)
        while high - low > THRESHOLD * high and len(self.measured) < CORAL_LIMIT:
            target = (low + high) / 2
            partition = self.shorten(
                [self.size - self.stages + 1] + [1] * (self.stages - 1), 0, target, set()
            )
            last = self.time(partition, self.stages - 1) if partition else math.inf
            if partition and last < high:
                best = partition
            low, high = (low, target) if last < target else (target, min(high, last))
        return best

    def shorten(
        self, partition: list[int], stage: int, target: float, dead: set[tuple[int, int]]
    ) -> list[int] | None:
        """The partition whose stages from ``stage`` on, but for the last, are as long as the target
        lets them be.
        """
        if stage == self.stages - 1:
            return partition
        start = sum(partition[:stage])
        if (stage, start) in dead:
            return None
        after = (
            self.stages - 2 - stage
        )  # stages that get one group for now; the next gets what this one gives up
        for count in range(self.size - start - after - 1, 0, -1):
            tried = [*partition[:stage], count, self.size - start - count - after, *[1] * after]
            if self.time(tried, stage) <= target and (
                measured_splits := self.shorten(tried, stage + 1, target, dead)
            ):
                return measured_splits
        dead.add((stage, start))
        return None

    def time(self, partition: list[int], stage: int) -> float:
        """The measured time of a stage of a partition."""
        starts = [0, *accumulate(partition)]
        key = (starts[stage], partition[stage])
        if key not in self.known:
            measurement = self.case.measure(len(self.measured), self.split(partition))
            self.measured.append(measurement)
            self.known.update(
                zip(zip(starts, partition, strict=False), measurement.stage_ms, strict=True)
            )
        return self.known[key]

    def split(self, partition: list[int]) -> Stages:
        ends = [self.downsets[p] for p in (0, *accumulate(partition))]
        return tuple(tuple(members(b & ~a)) for a, b in pairwise(ends))
