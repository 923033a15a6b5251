"""The space of a study over cores: deployments of all shapes.

A deployment has some stages, each with replicas and threads: a whole model with replicas, a whole
model with threads, a plain pipeline, and everything between. The parameters of a trial, all from 0
to 1, are those of a split where stages may stay empty, and for each stage ``cores``, its share of
the cores, and ``threads``, its place among the numbers of threads of each kind of cores. Any values
decode to a legal deployment on these cores. The ``key`` of a trial is that of its split, then
replicas, threads and where there are several the kind of cores.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from autosplit.cuts.stages import Stages, cuts_between, stages_between
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.lazy import cached_property
from autosplit.planner import (
    CostModel,
    PlannedDeployment,
    decode,
    evaluate_deployment,
    plan_cores,
    shares_of,
)
from autosplit.planner.batch.deployments import (
    DeployedSplit,
    DeploymentEvaluator,
    two_stage_periods,
)
from autosplit.planner.batch.neighbourhood import CutNeighbourhood
from autosplit.planner.placement.canonical import largest_stages
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.deployment import row_numbers
from autosplit.planner.problem.runtime_costs import of_device
from autosplit.study.space.candidate_space import SpaceOf
from autosplit.study.space.core_room import fit_to_cores
from autosplit.study.space.keys import key_of, other_space, stages_of_key, without_runtimes
from autosplit.study.space.search_space import RANDOM_DRAWS, random_stages

LEAST_SPEEDUP = 1.1  # of more threads, below which no deployment has as many
STEPS_A_SECOND = 20_000_000  # of a plan for cores of several kinds


@dataclass(frozen=True, eq=False)
class DeploymentSpace(SpaceOf[DeployedSplit]):
    """All deployments on ``cores``, which are named by their numbers.

    Row i of ``costs``, those of the profile, is for a replica with ``thread_counts[i]`` threads.
    Memory limits hold for each replica. Where not all cores are equal, ``kind_sizes`` of them are
    of each kind, in their order; then rows are as in ``kinds_of_rows``.
    """

    costs: CostModel
    cores: tuple[int, ...]
    thread_counts: tuple[int, ...]
    runtime: str = "tvm"
    kind_sizes: tuple[int, ...] = ()

    @classmethod
    def of_profile(
        cls,
        costs: CostModel,
        cores: tuple[int, ...],
        thread_counts: Sequence[int],
        runtime: str,
        kind_sizes: tuple[int, ...] = (),
    ) -> DeploymentSpace:
        """The space without the numbers of threads that are of no use: they hardly save time."""
        times = [sum(of_device(costs.times, row)) for row in range(len(thread_counts))]
        rows: list[int] = []
        for row, threads in enumerate(thread_counts):
            # One thread is always of use: it makes the most replicas.
            if threads == 1 or times[row] * LEAST_SPEEDUP < times[rows[-1]]:
                rows.append(row)
        useful = tuple(thread_counts[row] for row in rows)
        return cls(costs.on_devices(rows), cores, useful, runtime, kind_sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cores there are of each kind."""
        return self.kind_sizes or (len(self.cores),)

    @property
    def rows(self) -> Mapping[tuple[int, int], int]:
        """The row of the costs for a number of threads and a kind of cores."""
        return row_numbers(self.thread_counts)

    @cached_property
    def most_stages(self) -> int:
        """As many stages as there are cores and groups of ops for."""
        return min(len(self.cores), len(self.costs.contraction.groups))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial."""
        stages = range(1, self.most_stages + 1)
        cuts = [f"cut_{i}" for i in stages[:-1]]
        shapes = [f"{name}_{i}" for i in stages for name in ("cores", "threads")]
        return (*cuts, "branch", "used", *shapes)

    def parameters(self, deployment: DeployedSplit) -> dict[str, float]:
        """The parameters of a deployment.

        ``branch`` is such that they decode to it, where one of the plain layouts does.
        """
        count, most = len(deployment.stages), self.most_stages
        cuts = cuts_between(deployment.stages)
        values = dict.fromkeys(self.names, 0.0)
        # The stages that are not used lie behind the last one and have no share of the cost.
        shares = [*shares_of(self.costs, cuts), *[1.0] * (most - count)]
        for stage, share in enumerate(shares[: most - 1], 1):
            values[f"cut_{stage}"] = min(1.0, share)
        values["used"] = count / most
        shapes = zip(deployment.replicas, deployment.shapes, strict=True)
        for stage, (replicas, shape) in enumerate(shapes, 1):
            values[f"cores_{stage}"] = replicas * shape[0] / len(self.cores)
            place = self.rows[shape]
            # The middle of the part of 0 to 1 that stands for it, so that rounding cannot leave it.
            values[f"threads_{stage}"] = (place + 0.5) / len(self.thread_counts)
        for branch in (0.0, 1.0, 0.5):
            values["branch"] = branch
            if self.decode(values) == deployment:
                return values
        return {**values, "branch": 0.0}

    def decode(self, parameters: Mapping[str, float]) -> DeployedSplit:
        """The legal deployment nearest to some parameters."""
        most = self.most_stages
        # Rounding of what ``parameters`` wrote must not add a stage.
        count = max(1, math.ceil(parameters["used"] * most - 1e-9))
        shares = [parameters[f"cut_{i}"] for i in range(1, most)]
        places, shares = largest_stages(shares, min(most, count))
        stages = stages_between(self.costs, decode(self.costs, shares, parameters["branch"]))
        rows, replicas = [], []
        for place in places:
            row = int(parameters[f"threads_{place + 1}"] * len(self.thread_counts))
            rows.append(min(row, len(self.thread_counts) - 1))
            cores = parameters[f"cores_{place + 1}"] * len(self.cores)
            replicas.append(max(1, round(cores / self.thread_counts[rows[-1]])))
        fit_to_cores(rows, replicas, list(self.rows), self.sizes)
        return self._in_rows(stages, replicas, rows).with_useful_replicas(self.costs)

    def _in_rows(
        self, stages: Stages, replicas: Sequence[int], rows: Sequence[int]
    ) -> DeployedSplit:
        threads, kinds = zip(*map(list(self.rows).__getitem__, rows), strict=True)
        return DeployedSplit(stages, tuple(replicas), threads, kinds if self.kind_sizes else ())

    def pipeline(self, stages: Stages, threads: int = 1, kind: int | None = None) -> DeployedSplit:
        """A replica of each stage that is not empty, by default on the cores in their order."""
        used = tuple(filter(None, stages))
        kinds = self._core_kinds[: len(used)] if kind is None else (kind,) * len(used)
        return self._in_rows(used, (1,) * len(used), [self.rows[threads, k] for k in kinds])

    @cached_property
    def _core_kinds(self) -> tuple[int, ...]:
        """The kind of each core."""
        return tuple(kind for kind, size in enumerate(self.sizes) for _ in range(size))

    def shape_text(self, deployment: DeployedSplit) -> str:
        """See SpaceOf.

        A pipeline of one core a stage has the text of its split; for any other the replicas and
        threads of each stage follow.
        """
        text = key_of(deployment.stages)
        parts: Iterable[tuple[int, ...]] = zip(deployment.replicas, deployment.threads, strict=True)
        if self.kind_sizes:
            parts = zip(deployment.replicas, deployment.threads, deployment.kinds, strict=True)
        shapes = ["x".join(map(str, part)) for part in parts]
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
        """The ops of each stage."""
        return deployment.stages

    def evaluate(
        self, deployment: DeployedSplit, costs: CostModel | ContentionCosts | None = None
    ) -> PlannedDeployment:
        """What a deployment costs under ``costs``, by default those of the profile."""
        # The more cores are busy, the slower each of them is.
        model = costs_at(costs or self.costs, deployment.cores)
        parts = deployment.stages, deployment.replicas, deployment.threads
        return evaluate_deployment(model, *parts, self.thread_counts, deployment.kinds)

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

    @cached_property
    def evaluator(self) -> DeploymentEvaluator:
        """What times many deployments of this space at once."""
        return DeploymentEvaluator(self.costs, self.thread_counts)

    def deployment(self, deployment: DeployedSplit, runtimes: Sequence[str] = ()) -> Deployment:
        """The deployment on the cores in their order, one replica after the other."""
        shape = deployment.stages, deployment.replicas, deployment.threads
        names = runtimes or [self.runtime] * len(deployment.stages)
        free = iter(self.cores)
        by_kind = [tuple(islice(free, size)) for size in self.sizes]
        return Deployment.on_cores(*shape, names, by_kind, deployment.kinds)

    def plan(self) -> DeployedSplit:
        """The best deployment under the profile. Raises Infeasible where none fits."""
        return _deployed(self._plan)

    def cut_periods(self) -> Mapping[int, float]:
        """For each legal cut the predicted period of the best deployment of two stages there.

        Empty where there are too many cuts to look at.
        """
        return two_stage_periods(self.costs, self.sizes, self.thread_counts)

    @property
    def lower_bound(self) -> float:
        """The proven bound of every period under the profile."""
        return self._plan.lower_bound

    @cached_property
    def _plan(self) -> PlannedDeployment:
        return self._planned(self.costs)

    def _planned(self, costs: CostModel) -> PlannedDeployment:
        return plan_cores(costs, self.sizes, self.thread_counts)

    def planned_under(self, costs: CostModel) -> tuple[DeployedSplit, float]:
        """See SpaceOf."""
        best = self._planned(costs)
        return _deployed(best), best.period

    def best(
        self, costs: CostModel | ContentionCosts, count: int, seconds: float = 2.0
    ) -> list[DeployedSplit]:
        """Up to ``count`` of the best deployments under some costs, best first.

        The planner finds the best one on all cores, the whole model has one for each number of
        threads, and the others are around these. ``seconds``: for the planner.
        """
        candidates = dict.fromkeys(self.whole_models)
        numbers = [self.sizes]
        if count > 1 and isinstance(costs, ContentionCosts) and len(self.cores) > 1:
            # Fewer cores are better only where cores slow each other down much.
            numbers.append(tuple(max(1, size // 2) for size in self.sizes))
        for cores in numbers:
            candidates.update(dict.fromkeys(self.planned(costs, cores, 1, seconds)))
        if count > 1:
            for deployment in list(candidates):
                candidates.update(dict.fromkeys(self.neighbours(deployment)))
        if not candidates:
            raise Infeasible(f"no deployment of '{self.costs.name}' fits {len(self.cores)} cores")
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
                steps=int(STEPS_A_SECOND * seconds),
            )
            return [_deployed(plan)]
        return []

    def best_of_each(
        self, costs: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[DeployedSplit]:
        """The best deployment under each of some costs; the limits are not needed to be quick."""
        return [self.best(drawn, 1)[0] for drawn in costs]

    @property
    def alone(self) -> None:
        """None: contention is learned from the deployments that may be the best."""

    @property
    def size(self) -> None:
        """Unknown: deployments are not counted."""

    @property
    def listed(self) -> list[DeployedSplit]:
        """Raises ConfigError: deployments are not listed."""
        raise ConfigError("sampler 'exhaustive' lists no deployments; use sampler 'planner'")

    @cached_property
    def whole_models(self) -> list[DeployedSplit]:
        """The model as one stage, with as many replicas as there are cores for; by threads."""
        ops = tuple(range(len(self.costs.names)))
        shapes = self.rows.items()
        return self._fitting(
            self._in_rows((ops,), (self.sizes[kind] // w,), [row]) for (w, kind), row in shapes
        )

    def random(self, rng: np.random.Generator) -> DeployedSplit | None:
        """A random deployment that fits; None where none was drawn."""
        # Rejection: with a tight memory limit most draws do not fit.
        for _ in range(RANDOM_DRAWS):
            count = int(rng.integers(1, self.most_stages + 1))
            stages = random_stages(self.costs, rng, count)
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
            fitting = self._fitting([self._in_rows(stages, replicas, rows)])
            if fitting:
                return fitting[0]
        return None

    def neighbours(self, deployment: DeployedSplit) -> list[DeployedSplit]:
        """The deployments one move away that fit.

        A move takes a group of ops to the next stage, changes the threads of a stage, gives a
        replica's cores to another stage, uses free cores, or makes one stage of two.
        """
        moves = self._cut_neighbourhood.moves(deployment.stages)
        near = [
            *(replace(deployment, stages=stages) for stages in moves),
            *deployment.reshaped(self.sizes, self.thread_counts),
            *deployment.merged(),
        ]
        return self._fitting(dict.fromkeys(near))

    @cached_property
    def _cut_neighbourhood(self) -> CutNeighbourhood:
        return CutNeighbourhood(self.costs)


def _deployed(plan: PlannedDeployment) -> DeployedSplit:
    return DeployedSplit(plan.stages, plan.replicas, plan.threads, plan.kinds)
