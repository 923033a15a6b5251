"""Ways to search for a split on simulated hardware, each as the splits it measures, in its order.

What a way would end with after n trials is judged alike for all: the best measured few compete once
more, as at the end of a study, and the winner's true period is set against the true optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import optuna

from autosplit.deployment import Option, Stage
from autosplit.planner import CostModel
from autosplit.study.acquisition import generator
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.history import TrialReader
from autosplit.study.loop.comparison import finalists
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.run import run_study
from autosplit.study.space import Candidate, Space
from autosplit.study.surrogate.correction import Measured, correct
from studies.benchmarks.planned_baselines import bisection
from studies.simulation.bench import SimulatedBench, Simulation, graph_of, on_devices

NEAR = 0.01  # of the true optimum: found
ERROR, NOISE = 0.35, 0.02  # of the known costs, and of a measured stage time


@lru_cache(maxsize=2)
def space_of(costs: CostModel, stages: int) -> Space:
    """The space of a graph, one for all seeds: what is known before anything is measured depends on
    none.
    """
    devices = [f"cores:{i}" for i in range(stages)]
    names = [kind.name for kind in costs.kinds]
    kinds = [names[n % len(names)] for n in range(stages)]
    return Space(costs, on_devices(costs, devices), tuple(zip(kinds, devices, strict=True)))


@dataclass(frozen=True, eq=False)
class Case:
    """A graph to be split into ``stages`` stages, its true costs hidden and drawn from ``seed``."""

    costs: CostModel
    stages: int
    seed: int
    _losses: dict[Candidate, float] = field(default_factory=dict)

    @cached_property
    def bench(self) -> SimulatedBench:
        devices = [f"cores:{i}" for i in range(self.stages)]
        simulation = Simulation(error=ERROR, noise=NOISE, seed=self.seed)
        question = on_devices(self.costs, devices)
        return SimulatedBench(graph_of(self.costs), self.costs, question, devices, simulation)

    @cached_property
    def space(self) -> Space:
        return space_of(self.bench.costs, self.stages)

    @cached_property
    def optimum(self) -> float:
        """The least true period."""
        return self.bench.optimum().period

    def candidate(self, stages: Sequence[tuple[int, ...]]) -> Candidate:
        """A split as a candidate."""
        rows = [costs.row for costs in self.bench.costs.rows]
        pairs = enumerate(stages)
        return tuple(Stage(ops, (Option(rows[n % len(rows)]),)) for n, ops in pairs)

    def loss(self, candidate: Candidate) -> float:
        """How far the true period of a split is above the optimum, relative."""
        if candidate not in self._losses:
            self._losses[candidate] = self.bench.truth(candidate).period / self.optimum - 1
        return self._losses[candidate]

    def measure(self, number: int, candidate: Candidate) -> Measured:
        measurement = self.bench.measure(self.space.deployment(candidate))
        return Measured(number, candidate, measurement.stage_ms, measurement.period_ms.median)

    def choose(self, measured: Sequence[Measured]) -> Candidate:
        """The split that a study of these trials ends with."""
        corrected = correct(self.space.evaluator, measured)
        best = [m.stages for m in finalists(corrected, measured)]
        deployments = [self.space.deployment(candidate) for candidate in best]
        measurements = self.bench.compare_interleaved(deployments, ())[0]
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
    study = optuna.create_study()
    search = {"trials": trials, "seed": case.seed}
    config = StudyConfig.model_validate(
        {"name": "search", "model": "net.onnx", "stages": case.stages, "search": search}
    )
    run_study(OpenStudy(study, "memory://", config, case.bench, case.space))
    return list(TrialReader(case.space).history(study.trials).measured)


def tpe(case: Case, trials: int) -> list[Measured]:
    """Optuna's TPE on the parameters of the space, the plan enqueued as its first trial."""
    ranges = case.space.moves.ranges

    def split(trial: optuna.Trial) -> Candidate | None:
        values = {name: trial.suggest_int(name, r[0], r[-1]) for name, r in ranges.items()}
        candidate = case.space.moves.decode(values)
        return candidate if case.space.fits(candidate) else None

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=case.seed))
    study.enqueue_trial(case.space.moves.encode(case.space.plan.stages))
    measured_splits: dict[Candidate, Measured] = {}
    # Up to twice as many tries: one measured before is told again at no cost.
    for _ in range(2 * trials):
        trial = study.ask()
        candidate = split(trial)
        if candidate is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        if candidate not in measured_splits:
            measured_splits[candidate] = case.measure(len(measured_splits), candidate)
        study.tell(trial, measured_splits[candidate].period_ms)
        if len(measured_splits) == trials:
            break
    return list(measured_splits.values())


def randomly(case: Case, trials: int) -> list[Measured]:
    """Random splits."""
    rng = generator(case.seed, 0)
    moves = case.space.moves
    candidates = filter(case.space.fits, (moves.useful(moves.random(rng)) for _ in range(trials)))
    return [case.measure(n, candidate) for n, candidate in enumerate(candidates)]


def plan_alone(case: Case) -> list[Measured]:
    """The best split for the known costs, no other measured."""
    return [case.measure(0, case.space.plan.stages)]


def coral(case: Case) -> Found:
    """Coral's profiling partitioner (libcoral, partition_with_profiling) on the true costs.

    It builds and measures one stage after another; how many is its number of trials.
    """
    names = [kind.name for kind in case.costs.kinds]
    kinds = [names[n % len(names)] for n in range(case.stages)]
    ended = bisection(case.bench.true_costs(case.stages), kinds)
    loss = case.loss(ended.plan.stages) if ended.plan else math.inf
    count = ended.candidates or 0
    return Found(count if loss <= NEAR else math.inf, math.inf, count, loss)
