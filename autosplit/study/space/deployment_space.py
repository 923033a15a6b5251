"""The space of a study over cores: deployments of all shapes.

A deployment has some stages, each with replicas and threads: a whole model with replicas, a whole
model with threads, a plain pipeline, and everything between. A trial has two more parameters for
each stage: ``cores``, its share of the cores, and ``threads``, its place among the numbers of
threads of each kind of cores. Its ``key`` is that of its split, then replicas, threads and where
there are several the kind of cores.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.deployment import Deployment
from autosplit.errors import Infeasible, SplitError
from autosplit.hardware.measurement.baselines import baseline_name
from autosplit.lazy import cached_property
from autosplit.planner import CostModel, PlannedDeployment, evaluate_deployment, plan_cores
from autosplit.planner.batch.deployments import (
    DeployedSplit,
    DeploymentEvaluator,
    two_stage_periods,
)
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.deployment import row_numbers
from autosplit.planner.problem.runtime_costs import of_device
from autosplit.study.space.candidate_space import SpaceOf
from autosplit.study.space.core_room import fit_to_cores
from autosplit.study.space.keys import key_of, other_space, stages_of_key, without_runtimes
from autosplit.study.surrogate.cost_correction import Corrected, Measured, correct_deployments

LEAST_SPEEDUP = 1.1  # of more threads, below which no deployment has as many


@dataclass(frozen=True, eq=False)
class DeploymentSpace(SpaceOf[DeployedSplit]):
    """All deployments on ``cores``, the numbers of those of each kind.

    Row i of ``costs``, those of the profile, is for a replica with ``thread_counts[i]`` threads;
    with several kinds rows are as in ``kinds_of_rows``. Memory limits hold for each replica.
    """

    costs: CostModel
    cores: tuple[tuple[int, ...], ...]
    thread_counts: tuple[int, ...]
    runtime: str = "tvm"

    @classmethod
    def of_profile(
        cls,
        costs: CostModel,
        cores: tuple[tuple[int, ...], ...],
        thread_counts: Sequence[int],
        runtime: str,
    ) -> DeploymentSpace:
        """The space without the numbers of threads that are of no use: they hardly save time."""
        times = [sum(of_device(costs.times, row)) for row in range(len(thread_counts))]
        rows: list[int] = []
        for row, threads in enumerate(thread_counts):
            # One thread is always of use: it makes the most replicas.
            if threads == 1 or times[row] * LEAST_SPEEDUP < times[rows[-1]]:
                rows.append(row)
        useful = tuple(thread_counts[row] for row in rows)
        return cls(costs.on_devices(rows), cores, useful, runtime)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many cores there are of each kind."""
        return tuple(map(len, self.cores))

    @cached_property
    def core_count(self) -> int:
        """How many cores there are."""
        return sum(self.sizes)

    @cached_property
    def _core_kinds(self) -> tuple[int, ...]:
        """The kind of each core."""
        return tuple(chain.from_iterable([kind] * size for kind, size in enumerate(self.sizes)))

    @property
    def rows(self) -> Mapping[tuple[int, int], int]:
        """The row of the costs for a number of threads and a kind of cores."""
        return row_numbers(self.thread_counts)

    @cached_property
    def most_stages(self) -> int:
        """As many stages as there are cores and groups of ops for."""
        return min(self.core_count, len(self.costs.contraction.groups))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """See SpaceOf."""
        stages = range(1, self.most_stages + 1)
        cuts = [f"cut_{i}" for i in stages[:-1]]
        shapes = [f"{name}_{i}" for i in stages for name in ("cores", "threads")]
        return (*cuts, "branch", "used", *shapes)

    def _parameters(self, deployment: DeployedSplit, /) -> dict[str, float]:
        values = super()._parameters(deployment)
        shapes = zip(deployment.replicas, deployment.shapes, strict=True)
        for stage, (replicas, shape) in enumerate(shapes, 1):
            values[f"cores_{stage}"] = replicas * shape[0] / self.core_count
            # The middle of the part of 0 to 1 that stands for it, so that rounding cannot leave it.
            values[f"threads_{stage}"] = (self.rows[shape] + 0.5) / len(self.thread_counts)
        return values

    def decode(self, parameters: Mapping[str, float]) -> DeployedSplit:
        """See SpaceOf."""
        places, stages = self._used_stages(parameters)
        rows, replicas = [], []
        for place in places:
            row = int(parameters[f"threads_{place + 1}"] * len(self.thread_counts))
            rows.append(min(row, len(self.thread_counts) - 1))
            cores = parameters[f"cores_{place + 1}"] * self.core_count
            replicas.append(max(1, round(cores / self.thread_counts[rows[-1]])))
        fit_to_cores(rows, replicas, list(self.rows), self.sizes)
        return self._in_rows(stages, replicas, rows)

    def _in_rows(
        self, stages: Stages, replicas: Sequence[int], rows: Sequence[int]
    ) -> DeployedSplit:
        """The deployment with the threads and kinds of some rows, and no replica of no use."""
        threads, kinds = zip(*map(list(self.rows).__getitem__, rows), strict=True)
        deployment = DeployedSplit(
            stages, tuple(replicas), threads, kinds if len(self.cores) > 1 else ()
        )
        return deployment.with_useful_replicas(self.costs)

    def pipeline(self, stages: Stages, threads: int = 1, kind: int | None = None) -> DeployedSplit:
        """A replica of each stage that is not empty, by default on the cores in their order."""
        used = tuple(filter(None, stages))
        kinds = self._core_kinds[: len(used)] if kind is None else (kind,) * len(used)
        return self._in_rows(used, (1,) * len(used), [self.rows[threads, k] for k in kinds])

    def shape_text(self, deployment: DeployedSplit) -> str:
        """See SpaceOf.

        A pipeline of one core a stage has the text of its split; for any other the replicas and
        threads of each stage follow.
        """
        text = key_of(deployment.stages)
        columns = [deployment.replicas, deployment.threads]
        if len(self.cores) > 1:
            columns.append(deployment.kinds)
        shapes = ["x".join(map(str, part)) for part in zip(*columns, strict=True)]
        return text if set(shapes) == {"1x1"} else f"{text}@{'.'.join(shapes)}"

    def parse(self, key: str) -> DeployedSplit:
        """See SpaceOf."""
        shape, _ = without_runtimes(key)
        split, _, text = shape.partition("@")
        stages = stages_of_key(self.costs, split)
        shapes = (
            [shape.split("x") for shape in text.split(".")] if text else [["1", "1"]] * len(stages)
        )
        try:
            replicas, threads, *kinds = zip(*(map(int, part) for part in shapes), strict=True)
            deployment = DeployedSplit(stages, replicas, threads, *kinds)
            self.evaluate(deployment)
            is_same = self._has_room(deployment) and self.shape_text(deployment) == shape
        except (ValueError, TypeError, SplitError):
            raise other_space(key) from None
        if not is_same:
            raise other_space(key)
        return deployment

    def stages_of(self, deployment: DeployedSplit) -> Stages:
        """See SpaceOf."""
        return deployment.stages

    def evaluate(
        self, deployment: DeployedSplit, costs: CostModel | ContentionCosts | None = None
    ) -> PlannedDeployment:
        """See SpaceOf."""
        # The more cores are busy, the slower each of them is.
        model = costs_at(costs or self.costs, deployment.cores)
        parts = deployment.stages, deployment.replicas, deployment.threads
        return evaluate_deployment(model, *parts, self.thread_counts, deployment.kinds)

    @cached_property
    def evaluator(self) -> DeploymentEvaluator:
        """See SpaceOf."""
        return DeploymentEvaluator(self.costs, self.thread_counts)

    def corrected(self, measured: Sequence[Measured]) -> Corrected:
        """See SpaceOf."""
        return correct_deployments(self.costs, self.thread_counts, self.core_count, measured)

    def fits(self, deployment: DeployedSplit) -> bool:
        """Whether there are cores and memory for all replicas."""
        return bool(self._fitting([deployment]))

    def _fitting(self, deployments: Iterable[DeployedSplit]) -> list[DeployedSplit]:
        useful = dict.fromkeys(d.with_useful_replicas(self.costs) for d in deployments)
        batch = self.evaluator.batch(filter(self._has_room, useful))
        limit = min(self.costs.memory)
        pairs = zip(batch.stages, batch.memory.tolist(), strict=True)
        return [deployment for deployment, size in pairs if size <= limit]

    def _has_room(self, deployment: DeployedSplit) -> bool:
        return all(deployment.cores_of(kind) <= most for kind, most in enumerate(self.sizes))

    def deployment(self, deployment: DeployedSplit, runtimes: Sequence[str] = ()) -> Deployment:
        """The deployment on the cores in their order, one replica after the other."""
        shape = deployment.stages, deployment.replicas, deployment.threads
        names = runtimes or [self.runtime] * len(deployment.stages)
        return Deployment.of_shape(*shape, names, self.cores, deployment.kinds)

    def cut_periods(self) -> Mapping[int, float]:
        """See SpaceOf."""
        return two_stage_periods(self.costs, self.sizes, self.thread_counts)

    def planned_under(self, costs: CostModel) -> tuple[DeployedSplit, PlannedDeployment]:
        """See SpaceOf."""
        best = plan_cores(costs, self.sizes, self.thread_counts)
        return _deployed(best), best

    def best(
        self, costs: CostModel | ContentionCosts, count: int, seconds: float = 2.0
    ) -> list[DeployedSplit]:
        """See SpaceOf.

        The planner finds the best one on all cores, the whole model has one for each number of
        threads, and the others are around these.
        """
        candidates = dict.fromkeys(self.whole_models)
        numbers = [self.sizes]
        if count > 1 and isinstance(costs, ContentionCosts) and self.core_count > 1:
            # Fewer cores are better only where cores slow each other down much.
            numbers.append(tuple(max(1, size // 2) for size in self.sizes))
        for cores in numbers:
            candidates.update(dict.fromkeys(self.planned(costs, cores, 1, seconds)))
        if count > 1:
            for deployment in list(candidates):
                candidates.update(dict.fromkeys(self.neighbours(deployment)))
        if not candidates:
            raise Infeasible(f"no deployment of '{self.costs.name}' fits {self.core_count} cores")
        batch = self.evaluator.batch(candidates)
        order = np.argsort(batch.periods(costs), kind="stable")
        return [batch.stages[n] for n in order[:count]]

    def planned(
        self, costs: CostModel | ContentionCosts, cores: Sequence[int], threads: int, seconds: float
    ) -> list[DeployedSplit]:
        """The best deployment on so many cores of each kind with at least so many threads.

        None if none fits.
        """
        end = time.monotonic() + seconds
        with contextlib.suppress(Infeasible):
            plan = plan_cores(
                costs_at(costs, sum(cores)),
                cores,
                self.thread_counts,
                fewest_threads=threads,
                deadline=lambda: time.monotonic() > end,
            )
            return [_deployed(plan)]
        return []

    def best_of_each(
        self, costs: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[DeployedSplit]:
        """See SpaceOf. The limits are not needed to be quick."""
        return [self.best(drawn, 1)[0] for drawn in costs]

    @cached_property
    def whole_models(self) -> list[DeployedSplit]:
        """The model as one stage, with as many replicas as there are cores for; by threads."""
        ops = tuple(range(len(self.costs.names)))
        shapes = self.rows.items()
        return self._fitting(
            self._in_rows((ops,), (self.sizes[kind] // w,), [row]) for (w, kind), row in shapes
        )

    @cached_property
    def unsplit_keys(self) -> Mapping[str, str]:
        """See SpaceOf. A baseline is on cores of all kinds, so only equal cores have any."""
        keys: dict[str, str] = {}
        runtimes = [runtime.name for runtime in self.costs.runtimes] or [self.runtime]
        for model in self.whole_models if len(self.cores) == 1 else []:
            for runtime in runtimes:
                name = baseline_name(self.deployment(model, [runtime]))
                if name is not None:
                    keys[name] = self.key(model, runtime=runtime)
        return keys

    def draw(self, rng: np.random.Generator) -> DeployedSplit:
        """See SpaceOf."""
        count = int(rng.integers(1, self.most_stages + 1))
        stages = self._random_stages(rng, count)
        # Each stage has a core. Of the others each takes a random part of what is left.
        kinds = rng.permutation(self._core_kinds)[:count].tolist()
        free = [size - kinds.count(kind) for kind, size in enumerate(self.sizes)]
        rows, replicas = [], []
        for kind in kinds:
            cores = 1 + int(rng.integers(0, free[kind] + 1))
            free[kind] -= cores - 1
            counts = [w for w, k in self.rows if k == kind and w <= cores]
            rows.append(self.rows[int(rng.choice(counts)), kind])
            replicas.append(cores // self.thread_counts[rows[-1]])
        return self._in_rows(stages, replicas, rows)

    def neighbours(self, deployment: DeployedSplit) -> list[DeployedSplit]:
        """The deployments one move away that fit.

        A move takes a group of ops to the next stage, changes the threads of a stage, gives a
        replica's cores to another stage, uses free cores, or makes one stage of two.
        """
        near = [
            *(
                replace(deployment, stages=s)
                for s in self.cut_neighbourhood.moves(deployment.stages)
            ),
            *deployment.reshaped(self.sizes, self.thread_counts),
            *deployment.merged(),
        ]
        return self._fitting(near)


def _deployed(plan: PlannedDeployment) -> DeployedSplit:
    return DeployedSplit(plan.stages, plan.replicas, plan.threads, plan.kinds)
