"""The space of a study: legal splits into K stages, and how a trial of Optuna stands for one.

The parameters of a trial are the share of the profiled cost before each cut, ``cut_1`` to
``cut_K-1``, and ``branch``, the layout of parallel branches. Where stages may stay empty there is
also ``used``, the share of the devices that get a stage. Any values decode to a legal split. Not
every split is the nearest to some values, so a trial also has its exact split as ``key``.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autosplit.cuts import bitset, members, topological
from autosplit.cuts.stages import Stages, cuts_between, stages_between
from autosplit.errors import ConfigError
from autosplit.lazy import cached_property
from autosplit.planner import CostModel, Plan, decode, evaluate, k_best, plan, shares_of
from autosplit.planner.batch import stage_table
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.batch.neighbourhood import CutNeighbourhood
from autosplit.planner.batch.stage_table import StageTable
from autosplit.planner.placement import device_subsets
from autosplit.planner.placement.canonical import CanonicalPlacement, largest_stages
from autosplit.planner.placement.device_order import kinds_of
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.evaluation import check_stages
from autosplit.study.space.candidate_space import SpaceOf
from autosplit.study.space.enumeration import all_splits, count_all
from autosplit.study.space.keys import key_of, other_space, stages_of_key, without_runtimes

RANDOM_DRAWS = 100  # random splits, until one fits the devices
NEAR_CUTS = 1_000  # cuts near some splits, where there are too many cuts for a table of all
SHOWN_CUTS = 2_000  # legal cuts that a report shows
LISTED = 20_000  # splits that are listed at most


@dataclass(frozen=True, eq=False)
class Space(SpaceOf[Stages]):
    """All legal splits into ``stages`` stages; ``costs`` are those of the profile.

    With ``empty`` stages may be empty and leave their device unused, so a split has any number of
    stages up to ``stages``; it is written as ``CanonicalPlacement`` says. Raises ConfigError where
    there are fewer ops than stages that need one.
    """

    costs: CostModel
    stages: int
    empty: bool = False

    def __post_init__(self) -> None:
        most = len(self.costs.contraction.groups)
        if not self.empty and self.stages > most:
            raise ConfigError(
                f"stages is {self.stages}, but '{self.costs.name}' supports at most {most} stages; "
                "use fewer stages"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial, all from 0 to 1; none for a single stage."""
        if self.stages == 1:
            return ()
        cut_names = tuple(f"cut_{i}" for i in range(1, self.stages))
        return (*cut_names, "branch", "used") if self.empty else (*cut_names, "branch")

    @cached_property
    def placement(self) -> CanonicalPlacement:
        """The devices, of which some may be equal."""
        return CanonicalPlacement(kinds_of(self.costs, self.stages))

    @cached_property
    def stage_counts(self) -> Sequence[int]:
        """How many stages that are not empty a split may have, the most first."""
        most = min(self.stages, len(self.costs.contraction.groups))
        return range(most, 0, -1) if self.empty else (self.stages,)

    def parameters(self, stages: Stages) -> dict[str, float]:
        """The parameters of a split.

        ``branch`` is such that they decode to the split, where one of the plain layouts does.
        """
        if self.stages == 1:
            return {}
        shares = [min(1.0, share) for share in shares_of(self.costs, cuts_between(stages))]
        used = [sum(map(bool, stages)) / self.stages] if self.empty else []
        layouts: list[dict[str, float]] = []
        for branch in (0.0, 1.0, 0.5):
            values = map(float, (*shares, branch, *used))
            layouts.append(dict(zip(self.names, values, strict=True)))
            if self.decode(layouts[-1]) == stages:
                return layouts[-1]
        return layouts[0]

    def shape_text(self, stages: Stages) -> str:
        """See SpaceOf."""
        return key_of(stages)

    def parse(self, key: str) -> Stages:
        """See SpaceOf."""
        split, _ = without_runtimes(key)
        stages = stages_of_key(self.costs, split)
        if len(stages) != self.stages:
            raise other_space(key)
        check_stages(self.costs, stages, self.empty)
        if self._canonical(stages) != stages:
            raise other_space(key)
        return stages

    def _canonical(self, stages: Stages) -> Stages:
        return self.placement.canonical(stages) if self.empty else stages

    def decode(self, parameters: Mapping[str, float]) -> Stages:
        """The legal split nearest to some parameters; those of the cuts may be in any order."""
        if self.stages == 1:
            return (tuple(range(len(self.costs.names))),)
        shares = [parameters[f"cut_{i}"] for i in range(1, self.stages)]
        branch = parameters["branch"]
        if not self.empty:
            return stages_between(self.costs, decode(self.costs, shares, branch))
        used = max(1, math.ceil(parameters["used"] * self.stages - 1e-9))
        devices, shares = largest_stages(shares, min(self.stage_counts[0], used))
        parts = stages_between(self.costs, decode(self.costs, shares, branch))
        return self._canonical(self.placement.assign(parts, devices))

    def stages_of(self, stages: Stages) -> Stages:
        """The split itself."""
        return stages

    def evaluate(self, stages: Stages, costs: CostModel | ContentionCosts | None = None) -> Plan:
        """What a split costs under ``costs``, by default those of the profile."""
        model = costs_at(costs or self.costs, sum(map(bool, stages)))
        return evaluate(model, stages, allow_empty=self.empty)

    def fits(self, stages: Stages) -> bool:
        """Whether each device can run its ops and has the memory for them."""
        if self._always_fits:
            return True
        plan = self.evaluate(stages)
        limits = self.costs.memory
        if len(limits) == 1:
            limits = limits * len(plan.memory)
        fits_memory = all(map(operator.le, plan.memory, limits))
        return plan.period < math.inf and fits_memory

    @cached_property
    def _always_fits(self) -> bool:
        """Whether every device can run all ops and hold all their weights and tensors."""
        costs = self.costs
        tensor_bytes = sum(t.bytes for t in costs.tensors) if costs.activations else 0.0
        if min(costs.memory) < sum(costs.sizes) + 2 * tensor_bytes:
            return False
        # Where runtimes compete, one that can run everything is enough.
        return any(
            not runtime.groups and all(max(row) < math.inf for row in runtime.times)
            for runtime in costs.each_runtime
        )

    def random(self, rng: np.random.Generator) -> Stages | None:
        """A random split that fits; None where none was drawn."""
        for _ in range(RANDOM_DRAWS):
            most = self.stage_counts[0]
            used = int(rng.integers(1, most + 1)) if self.empty else self.stages
            stages = random_stages(self.costs, rng, used)
            if self.empty:
                devices = sorted(rng.choice(self.stages, used, replace=False).tolist())
                stages = self._canonical(self.placement.assign(stages, devices))
            if self.fits(stages):
                return stages
        return None

    @cached_property
    def cut_neighbourhood(self) -> CutNeighbourhood:
        """The cuts near other cuts."""
        return CutNeighbourhood(self.costs)

    def neighbours(self, stages: Stages) -> Iterator[Stages]:
        """The legal splits one move away.

        A move takes a group of ops to the stage before or after its own; where stages may be empty,
        also a whole stage there, or a stage to a device of another kind that is unused now.
        """
        for near in self.cut_neighbourhood.moves(stages, self.empty):
            neighbour = self._canonical(near)
            if neighbour != stages and self.fits(neighbour):
                yield neighbour
        if self.empty:
            yield from filter(self.fits, self.placement.on_another_kind(stages))

    def plan(self) -> Stages:
        """The best split under the profile. Raises Infeasible where none fits the devices."""
        return self._plan

    @cached_property
    def _plan(self) -> Stages:
        return self.planned_under(self.costs)[0]

    def planned_under(self, costs: CostModel) -> tuple[Stages, float]:
        """See SpaceOf."""
        best = plan(costs, self.stages, allow_empty=self.empty)
        return self.placement.canonical(best.stages), best.period

    @cached_property
    def whole_model(self) -> Stages | None:
        """The model as one stage, on the best device for it; None where that is no split."""
        if not self.empty and self.stages > 1:
            return None
        ops = tuple(range(len(self.costs.names)))
        splits = [self.placement.assign([ops], d) for d in self.placement.device_choices(1)]
        fitting = [stages for stages in splits if self.fits(stages)]
        return min(fitting, key=lambda stages: self.evaluate(stages).period, default=None)

    @property
    def alone(self) -> Stages | None:
        """The whole model, where stages may be empty.

        How much stages slow each other down shows beside a stage that runs alone.
        """
        return self.whole_model if self.empty else None

    def best(
        self,
        costs: CostModel | ContentionCosts,
        count: int,
        seconds: float = 10.0,
        limit: float = math.inf,
    ) -> list[Stages]:
        """The ``count`` best splits under ``costs``, best first, with a period within ``limit``.

        They are fewer where there are no more, or where the ``seconds`` are over. Raises Infeasible
        where no split fits the devices.
        """
        end = time.monotonic() + seconds

        def is_late() -> bool:
            return time.monotonic() > end

        if not self.empty:
            return self._best_full(costs_at(costs, self.stages), count, is_late, limit)
        if isinstance(costs, ContentionCosts) and costs.varies:
            most = self.stage_counts[0]
            splits = device_subsets.best_splits_under_contention(
                self.placement, costs, most, count, is_late
            )
        else:
            model = costs_at(costs, self.stages)
            splits = device_subsets.best_splits(self.placement, model, count, is_late)
        return [s for s in splits if limit == math.inf or self.evaluate(s, costs).period <= limit]

    def _best_full(
        self, costs: CostModel, count: int, is_late: Callable[[], bool], limit: float
    ) -> list[Stages]:
        """``best`` where no stage is empty."""
        # The table was made with these transfers.
        has_table = costs.send is self.costs.send and costs.receive is self.costs.receive
        if has_table and self.stage_table is not None:
            splits = self.stage_table.best(costs, count, limit)
            if splits or limit < math.inf:
                return splits
        plans = k_best(costs, self.stages, count, deadline=is_late)
        return [p.stages for p in plans if p.period <= limit]

    def best_of_each(
        self, costs: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """The best split under each of some costs; None where its period exceeds the limit."""
        if not self.empty and self.stage_table is not None:
            models = [costs_at(c, self.stages) for c in costs]
            return self.stage_table.best_of_each(models, limits)
        best: list[Stages | None] = []
        for model, limit in zip(costs, limits, strict=True):
            best.append(next(iter(self.best(model, 1, limit=limit)), None))
        return best

    @cached_property
    def stage_table(self) -> StageTable | None:
        """All stages at once; None where the cuts are too many."""
        return stage_table.all_stages(self.costs, self.stages)

    def cut_periods(self) -> Mapping[int, float]:
        """For each legal cut the predicted period of the best split that has it.

        Empty where there are too many cuts to look at.
        """
        if not 2 <= self.stages <= len(self.costs.contraction.groups):
            return {}
        table = self.stage_table
        if table is None or len(table.cuts) > SHOWN_CUTS:
            return {}
        return table.cut_periods(self.costs, self.empty)

    def table_near(self, splits: Sequence[Stages]) -> StageTable:
        """The stages between the cuts near some splits, for spaces without a table of all."""
        most = min(NEAR_CUTS, stage_table.most_cuts(self.costs, self.stages))
        cuts = self.cut_neighbourhood.around(splits, most)
        return stage_table.stages_between(self.costs, self.stages, cuts)

    @cached_property
    def evaluator(self) -> BatchEvaluator[Stages]:
        """What times many splits of this space at once."""
        return BatchEvaluator(self.costs)

    @cached_property
    def size(self) -> int | None:
        """How many splits there are, also ones that do not fit; None where there are too many."""
        return count_all(self.costs, self.stage_counts, self.placement if self.empty else None)

    @cached_property
    def listed(self) -> tuple[Stages, ...]:
        """All splits that fit, best first under the profile.

        Raises ConfigError where they are too many to list.
        """
        if self.size is None or self.size > LISTED:
            count = "very many" if self.size is None else self.size
            raise ConfigError(
                f"sampler 'exhaustive': '{self.costs.name}' has {count} splits into "
                f"{self.stages} stages, more than {LISTED}; use sampler 'planner'"
            )
        placement = self.placement if self.empty else None
        fitting = filter(self.fits, all_splits(self.costs, self.stage_counts, placement))
        return tuple(sorted(fitting, key=lambda s: (self.evaluate(s).period, self.key(s))))


def random_stages(costs: CostModel, rng: np.random.Generator, count: int) -> Stages:
    """``count`` stages between random places of a random order of the ops."""
    contraction = costs.contraction
    groups = len(contraction.groups)
    rank: list[float] = rng.random(groups).tolist()

    def rank_of(group: int, _: int) -> float:
        return rank[group]

    order = topological(contraction.predecessors, rank_of)
    ends = (0, *sorted(1 + rng.choice(groups - 1, count - 1, replace=False)), groups)
    stage_groups = [bitset(order[first:last]) for first, last in pairwise(ends)]
    return tuple(tuple(members(contraction.expand(g))) for g in stage_groups)
