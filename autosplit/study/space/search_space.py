"""The space of splits into stages along given devices, some of which may stay unused."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import ConfigError
from autosplit.lazy import cached_property
from autosplit.planner import CostModel, Plan, evaluate, k_best, plan
from autosplit.planner.batch import stage_table
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.batch.stage_table import StageTable
from autosplit.planner.placement import device_subsets
from autosplit.planner.placement.canonical import CanonicalPlacement
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.evaluation import check_stages
from autosplit.planner.problem.runtime_costs import of_device
from autosplit.planner.solve import kinds_of
from autosplit.study.space.candidate_space import SpaceOf
from autosplit.study.space.enumeration import all_splits, count_all
from autosplit.study.space.keys import key_of, other_space, stages_of_key, without_runtimes
from autosplit.study.surrogate.cost_correction import Corrected, Measured, correct

NEAR_CUTS = 1_000  # cuts near some splits, where there are too many cuts for a table of all
SHOWN_CUTS = 2_000  # legal cuts that a report shows
LISTED = 20_000  # splits that are listed at most


@dataclass(frozen=True, eq=False)
class Space(SpaceOf[Stages]):
    """All legal splits into ``stages`` stages; ``costs`` are those of the profile.

    With ``empty`` stages may be empty and leave their device unused, so a split has any number of
    stages up to ``stages``; it is written as ``CanonicalPlacement`` says. ``devices``: their names;
    without them all are of one kind. Raises ConfigError where there are fewer ops than stages that
    need one.
    """

    costs: CostModel
    stages: int
    empty: bool = False
    devices: Sequence[str] = ()

    def __post_init__(self) -> None:
        most = len(self.costs.contraction.groups)
        if not self.empty and self.stages > most:
            raise ConfigError(
                f"stages is {self.stages}, but '{self.costs.name}' supports at most {most} stages; "
                "use fewer stages"
            )

    @property
    def most_stages(self) -> int:
        """See SpaceOf."""
        return self.stages

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial; none for a single stage."""
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
        if self.placement.canonical(stages) != stages:
            raise other_space(key)
        return stages

    def decode(self, parameters: Mapping[str, float]) -> Stages:
        """See SpaceOf."""
        devices, parts = self._used_stages(parameters)
        return self._placed(parts, devices)

    def _placed(self, parts: Stages, devices: Sequence[int]) -> Stages:
        return self.placement.canonical(self.placement.assign(parts, devices))

    def stages_of(self, stages: Stages) -> Stages:
        """The split itself."""
        return stages

    def evaluate(self, stages: Stages, costs: CostModel | ContentionCosts | None = None) -> Plan:
        """See SpaceOf."""
        model = costs_at(costs or self.costs, sum(map(bool, stages)))
        return evaluate(model, stages, allow_empty=self.empty)

    @cached_property
    def evaluator(self) -> BatchEvaluator[Stages]:
        """See SpaceOf."""
        return BatchEvaluator(self.costs)

    def corrected(self, measured: Sequence[Measured]) -> Corrected:
        """See SpaceOf."""
        devices = self.devices or ("cores",) * self.stages
        return correct(self.costs, devices, measured, self.empty)

    def fits(self, stages: Stages) -> bool:
        """See SpaceOf."""
        if self._always_fits:
            return True
        plan = self.evaluate(stages)
        limits = self.costs.memory
        fits_memory = all(used <= of_device(limits, d) for d, used in enumerate(plan.memory))
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

    def draw(self, rng: np.random.Generator) -> Stages:
        """See SpaceOf."""
        if not self.empty:
            return self._random_stages(rng, self.stages)
        used = int(rng.integers(1, self.stage_counts[0] + 1))
        stages = self._random_stages(rng, used)
        devices = sorted(rng.choice(self.stages, used, replace=False).tolist())
        return self._placed(stages, devices)

    def neighbours(self, stages: Stages) -> Iterator[Stages]:
        """The legal splits one move away.

        A move takes a group of ops to the stage before or after its own; where stages may be empty,
        also a whole stage there, or a stage to a device of another kind that is unused now.
        """
        for near in self.cut_neighbourhood.moves(stages, self.empty):
            neighbour = self.placement.canonical(near)
            if neighbour != stages and self.fits(neighbour):
                yield neighbour
        if self.empty:
            yield from filter(self.fits, self.placement.on_another_kind(stages))

    def planned_under(self, costs: CostModel) -> tuple[Stages, Plan]:
        """See SpaceOf."""
        best = plan(costs, self.stages, allow_empty=self.empty)
        return self.placement.canonical(best.stages), best

    @cached_property
    def whole_models(self) -> list[Stages]:
        """The model as one stage on the best device for it, where that is a split."""
        if not self.empty and self.stages > 1:
            return []
        ops = tuple(range(len(self.costs.names)))
        splits = [self.placement.assign([ops], d) for d in self.placement.device_choices(1)]
        fitting = filter(self.fits, splits)
        return sorted(fitting, key=lambda stages: self.evaluate(stages).period)[:1]

    @property
    def alone(self) -> Stages | None:
        """The whole model, where stages may be empty.

        How much stages slow each other down shows beside a stage that runs alone.
        """
        return self.whole_models[0] if self.empty and self.whole_models else None

    def best(
        self, costs: CostModel | ContentionCosts, count: int, seconds: float = 10.0
    ) -> list[Stages]:
        """See SpaceOf."""
        end = time.monotonic() + seconds

        def is_late() -> bool:
            return time.monotonic() > end

        if not self.empty:
            return self._best_full(costs_at(costs, self.stages), count, is_late)
        if isinstance(costs, ContentionCosts) and costs.varies:
            most = self.stage_counts[0]
            return device_subsets.best_splits_under_contention(
                self.placement, costs, most, count, is_late
            )
        model = costs_at(costs, self.stages)
        return device_subsets.best_splits(self.placement, model, count, is_late)

    def _best_full(self, costs: CostModel, count: int, is_late: Callable[[], bool]) -> list[Stages]:
        """``best`` where no stage is empty."""
        # The table was made with these transfers.
        has_table = costs.send is self.costs.send and costs.receive is self.costs.receive
        if has_table and self.stage_table is not None:
            splits = self.stage_table.best(costs, count)
            if splits:
                return splits
        return [p.stages for p in k_best(costs, self.stages, count, deadline=is_late)]

    def best_of_each(
        self, costs: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """See SpaceOf."""
        if not self.empty and self.stage_table is not None:
            models = [costs_at(c, self.stages) for c in costs]
            return self.stage_table.best_of_each(models, limits)
        best: list[Stages | None] = []
        for model, limit in zip(costs, limits, strict=True):
            splits = self.best(model, 1)
            is_within = splits and self.evaluate(splits[0], model).period <= limit
            best.append(splits[0] if is_within else None)
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
    def size(self) -> int | None:
        """See SpaceOf. None where there are too many."""
        return count_all(self.costs, self.stage_counts, self.placement)

    @cached_property
    def listed(self) -> tuple[Stages, ...]:
        """See SpaceOf."""
        if self.size is None or self.size > LISTED:
            count = "very many" if self.size is None else self.size
            raise ConfigError(
                f"sampler 'exhaustive': '{self.costs.name}' has {count} splits into "
                f"{self.stages} stages, more than {LISTED}; use sampler 'planner'"
            )
        fitting = filter(self.fits, all_splits(self.costs, self.stage_counts, self.placement))
        return tuple(sorted(fitting, key=lambda s: (self.evaluate(s).period, self.key(s))))
