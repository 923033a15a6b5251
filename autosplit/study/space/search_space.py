"""The space of a study: legal splits into K stages, and how a trial of Optuna stands for one.

A trial's parameters are the share of the profiled cost that lies before each cut, ``cut_1`` to ``cut_K-1``, and
``branch``, how parallel branches are laid out; where stages may stay empty also ``used``, the share of the devices that
get a stage. Any values decode to a legal split. Not every split is the nearest to some values, so a trial also carries
its exact split as the attribute ``key``, which is what counts where it is set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from autosplit.cuts import bitset, full, members, topological
from autosplit.cuts.stages import Stages
from autosplit.errors import ConfigError, SplitError
from autosplit.planner import CostModel, Plan, decode, evaluate, k_best, plan, shares_of
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.batch.neighbourhood import CutNeighbourhood
from autosplit.planner.batch.stage_table import StageTable, all_stages, most_cuts, stages_between
from autosplit.planner.placement import device_subsets
from autosplit.planner.placement.canonical import CanonicalPlacement, largest_stages
from autosplit.planner.placement.device_order import kinds_of
from autosplit.planner.problem.contention import ContentionCosts, costs_at
from autosplit.planner.problem.evaluation import check_stages
from autosplit.study.space import enumeration

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RANDOM_DRAWS = 100  # random splits, until one fits the devices
NEAR = 1_000  # cuts near some splits that are held where there are too many to hold all


@dataclass(frozen=True, eq=False)
class Space:
    """All legal splits of ``costs`` into ``stages`` stages; ``costs`` are those of the profile.

    With ``empty`` stages may be empty and leave their device unused, so that any number of stages up to ``stages`` is
    there; a split is written as ``CanonicalPlacement`` says. Raises ConfigError where there are fewer ops than stages that need one.
    """

    costs: CostModel
    stages: int
    empty: bool = False

    def __post_init__(self) -> None:
        if not self.empty and self.stages > (most := len(self.costs.contraction.groups)):
            raise ConfigError(
                f"stages is {self.stages}, but '{self.costs.name}' has {most} ops that can be parted; use fewer stages"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial, all from 0 to 1; none for a single stage."""
        if self.stages == 1:
            return ()
        return (
            *(f"cut_{i}" for i in range(1, self.stages)),
            "branch",
            *(["used"] if self.empty else []),
        )

    @cached_property
    def places(self) -> CanonicalPlacement:
        """Which devices are alike."""
        return CanonicalPlacement(kinds_of(self.costs, self.stages))

    @property
    def most(self) -> int:
        """The largest number of stages that are not empty."""
        return min(self.stages, len(self.costs.contraction.groups))

    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters with their ranges, for ``study.ask``."""
        import optuna

        return {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in self.names}

    def parameters(self, stages: Stages) -> dict[str, float]:
        """The parameters of a split, ``branch`` such that they decode to it where one of the plain layouts does."""
        if self.stages == 1:
            return {}
        cuts = tuple(accumulate(map(bitset, stages[:-1]), int.__or__))
        shares = [min(1.0, share) for share in shares_of(self.costs, cuts)]
        used = [sum(map(bool, stages)) / self.stages] if self.empty else []
        tried = (
            dict(zip(self.names, map(float, (*shares, b, *used)), strict=True))
            for b in (0.0, 1.0, 0.5)
        )
        first = next(tried)
        return next((found for found in (first, *tried) if self.decode(found) == stages), first)

    def key(self, stages: Stages) -> str:
        """The canonical text of a split: the number of stages, then each cut as the hexadecimal bitset of its ops."""
        cuts = accumulate(map(bitset, stages[:-1]), int.__or__)
        return f"{len(stages)}:" + ".".join(f"{cut:x}" for cut in cuts)

    def split(self, key: str) -> Stages:
        """The split of a key. Raises SplitError where the text is no key of a legal split of this space."""
        if key not in self._split:
            self._split[key] = self._read(key)
        return self._split[key]

    @cached_property
    def _split(self) -> dict[str, Stages]:
        """The keys read so far: the history of a study is read again for every trial."""
        return {}

    def _read(self, key: str) -> Stages:
        head, _, tail = key.partition(":")
        try:
            cuts = [int(text, 16) for text in tail.split(".")] if tail else []
        except ValueError:
            raise SplitError(
                f"'{key[:60]}' is no key of a split; keys are made by Space.key"
            ) from None
        ends = (0, *cuts, full(self.costs))
        told = f"'{key[:60]}' is no split into {self.stages} stages; decode it with the space it was made in"
        if (
            head != str(self.stages)
            or len(cuts) != self.stages - 1
            or any(a & ~b or a < 0 for a, b in pairwise(ends))
        ):
            raise SplitError(told)
        stages = self.parts(cuts)
        check_stages(self.costs, stages, self.empty)
        if self.empty and self.places.canonical(stages) != stages:
            raise SplitError(told)
        return stages

    def parts(self, cuts: Iterable[int]) -> Stages:
        """The stages between some nested cuts, bitsets of ops."""
        return tuple(
            tuple(members(after & ~before))
            for before, after in pairwise((0, *cuts, full(self.costs)))
        )

    def decode(self, parameters: Mapping[str, float]) -> Stages:
        """The legal split nearest to some parameters; the cuts' may stand in any order."""
        if self.stages == 1:
            return (tuple(range(len(self.costs.names))),)
        shares, branch = (
            [parameters[f"cut_{i}"] for i in range(1, self.stages)],
            parameters["branch"],
        )
        if not self.empty:
            return self.parts(decode(self.costs, shares, branch))
        used = min(self.most, max(1, math.ceil(parameters["used"] * self.stages - 1e-9)))
        devices, shares = largest_stages(shares, used)
        return self.places.canonical(
            self.places.assign(self.parts(decode(self.costs, shares, branch)), devices)
        )

    def evaluate(self, stages: Stages, costs: CostModel | ContentionCosts | None = None) -> Plan:
        """What a split costs under ``costs``, by default those of the profile."""
        return evaluate(
            costs_at(costs or self.costs, sum(map(bool, stages))), stages, allow_empty=self.empty
        )

    def memory(self, stages: Stages) -> float:
        """The bytes that the largest stage holds: its weights and the tensors at its borders."""
        return max(self.evaluate(stages).memory)

    def fits(self, stages: Stages) -> bool:
        """Whether each device can run its ops and hold what they need."""
        if self._roomy:
            return True
        plan = self.evaluate(stages)
        limits = self.costs.memory
        return plan.period < math.inf and all(
            held <= limits[d if len(limits) > 1 else 0] for d, held in enumerate(plan.memory)
        )

    @cached_property
    def _roomy(self) -> bool:
        """Whether every device can run all ops and hold them with all tensors, so that every split fits."""
        costs = self.costs
        most = sum(costs.sizes) + (
            2 * sum(t.bytes for t in costs.tensors) if costs.activations else 0.0
        )
        return min(costs.memory) >= most and all(max(row) < math.inf for row in costs.times)

    def random(self, rng: np.random.Generator) -> Stages | None:
        """A random split that fits; None where none was found."""
        for _ in range(RANDOM_DRAWS):
            used = int(rng.integers(1, self.most + 1)) if self.empty else self.stages
            stages = self._random_stages(rng, used)
            if self.empty:
                devices = sorted(rng.choice(self.stages, used, replace=False).tolist())
                stages = self.places.canonical(self.places.assign(stages, devices))
            if self.fits(stages):
                return stages
        return None

    def _random_stages(self, rng: np.random.Generator, used: int) -> Stages:
        """``used`` stages between random places of a random order of the ops."""
        contraction = self.costs.contraction
        groups = len(contraction.groups)
        rank: list[float] = rng.random(groups).tolist()

        def rank_of(group: int, _: int) -> float:
            return rank[group]

        order = topological(contraction.predecessors, rank_of)
        ends = (0, *sorted(1 + rng.choice(groups - 1, used - 1, replace=False)), groups)
        stage_groups = [bitset(order[first:last]) for first, last in pairwise(ends)]
        return tuple(tuple(members(contraction.expand(g))) for g in stage_groups)

    @cached_property
    def moves(self) -> CutNeighbourhood:
        """The cuts near other cuts."""
        return CutNeighbourhood(self.costs)

    def neighbours(self, stages: Stages) -> Iterator[Stages]:
        """The legal splits that have one group of ops on the stage before or after its own, a whole stage there, or a stage
        on another device that stays empty now.
        """
        ends = (0, *accumulate(map(bitset, stages), int.__or__))
        for c, (lower, cut, upper) in enumerate(zip(ends, ends[1:], ends[2:], strict=False)):
            moves: Iterable[int] = self.moves.adjacent(cut)
            if self.empty:
                moves = dict.fromkeys((lower, upper, *moves))
            for moved in moves:
                if (
                    lower & ~moved
                    or moved & ~upper
                    or moved == cut
                    or (not self.empty and moved in (lower, upper))
                ):
                    continue
                parts = tuple(members(moved & ~lower)), tuple(members(upper & ~moved))
                found = (*stages[:c], *parts, *stages[c + 2 :])
                found = self.places.canonical(found) if self.empty else found
                if found != stages and self.fits(found):
                    yield found
        if self.empty:
            yield from filter(self.fits, self.places.on_another_kind(stages))

    def plan(self) -> Stages:
        """The best split under the profile. Raises Infeasible where none fits the devices."""
        return self._plan

    @cached_property
    def _plan(self) -> Stages:
        return self.places.canonical(plan(self.costs, self.stages, allow_empty=self.empty).stages)

    @cached_property
    def alone(self) -> Stages | None:
        """The whole model as one stage, on the best device that can have it; None where none can or stages must be more."""
        if not self.empty and self.stages > 1:
            return None
        whole = tuple(range(len(self.costs.names)))
        found = [self.places.assign([whole], places) for places in self.places.device_choices(1)]
        fitting = [stages for stages in found if self.fits(stages)]
        return min(fitting, key=lambda stages: self.evaluate(stages).period, default=None)

    def best(
        self,
        costs: CostModel | ContentionCosts,
        count: int,
        seconds: float = 10.0,
        limit: float = math.inf,
    ) -> list[Stages]:
        """The ``count`` best splits under ``costs``, best first; fewer where there are no more or the time is up.

        Only those with a period within ``limit``. Raises Infeasible where none fits the devices.
        """
        end = time.monotonic() + seconds

        def late() -> bool:
            return time.monotonic() > end

        if not self.empty:
            return self._best(costs_at(costs, self.stages), count, late, limit)
        if not isinstance(costs, ContentionCosts) or len(costs.costs) == 1:
            found = device_subsets.best_splits(
                self.places, costs_at(costs, self.stages), count, late
            )
        else:
            found = device_subsets.best_splits_under_contention(
                self.places, costs, self.most, count, late
            )
        return [s for s in found if limit == math.inf or self.evaluate(s, costs).period <= limit]

    def _best(
        self, costs: CostModel, count: int, late: Callable[[], bool], limit: float
    ) -> list[Stages]:
        alike = (
            costs.send is self.costs.send and costs.receive is self.costs.receive
        )  # what the lattice was made of
        if self.lattice is not None and alike:
            found = self.lattice.best(costs, count, limit)
            if found or limit < math.inf:
                return found
        plans = k_best(costs, self.stages, count, deadline=late)
        return [p.stages for p in plans if p.period <= limit]

    def best_of_each(
        self, costs: Sequence[ContentionCosts], limits: Sequence[float]
    ) -> list[Stages | None]:
        """The best split under each of some costs; None where its period is not below the limit of the costs."""
        if self.empty or self.lattice is None:
            found = [self.best(c, 1, limit=limit) for c, limit in zip(costs, limits, strict=True)]
            return [next(iter(splits), None) for splits in found]
        return self.lattice.best_of_each([costs_at(c, self.stages) for c in costs], limits)

    @cached_property
    def lattice(self) -> StageTable | None:
        """All stages at once; None where the cuts are too many to hold them."""
        return all_stages(self.costs, self.stages)

    def near(self, splits: Sequence[Stages]) -> StageTable:
        """The stages between the cuts near some splits, for spaces that have no lattice of all."""
        cuts = self.moves.around(splits, min(NEAR, most_cuts(self.costs, self.stages)))
        return stages_between(self.costs, self.stages, cuts)

    @cached_property
    def placing(self) -> BatchEvaluator:
        """What makes arrays of many splits of this space."""
        return BatchEvaluator(self.costs)

    @cached_property
    def size(self) -> int | None:
        """How many splits there are (memory and devices aside); None where counting them takes too long."""
        return enumeration.size(self)

    @cached_property
    def listed(self) -> tuple[Stages, ...]:
        """All splits that fit, best first under the profile. Raises ConfigError where they are too many to list."""
        return enumeration.listed(self)
