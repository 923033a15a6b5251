"""What a study asks of the space of its candidates, whether they are splits or deployments.

The parameters of a trial, all from 0 to 1, are the share of the profiled cost before each cut,
``cut_1`` and so on, and ``branch``, the layout of parallel branches. Where stages may stay unused
there is also ``used``, the share of those that are. Any values decode to a legal candidate. Not
every candidate is the nearest to some values, so a trial also has its exact one as ``key``: the
text of its shape, then the runtimes of its stages if several compete.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from autosplit.cuts import bitset, members, topological
from autosplit.cuts.stages import Stages, cuts_between, stages_between
from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.planner import CostModel, Plan, decode, shares_of
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.planner.batch.neighbourhood import CutNeighbourhood
from autosplit.planner.placement.canonical import largest_stages
from autosplit.study.space.keys import without_runtimes
from autosplit.study.surrogate.cost_correction import Corrected, Measured

C = TypeVar("C")
WORTH_A_TRIAL = 1.5  # times the period of the best runtime's own plan
RANDOM_DRAWS = 100  # random candidates, until one fits the devices


class SpaceOf(ABC, Generic[C]):
    """A space of candidates, which are ``Stages`` or ``DeployedSplit``."""

    costs: CostModel  # of the profile

    @property
    @abstractmethod
    def most_stages(self) -> int:
        """The stages that a candidate may have, empty ones too."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial."""

    @property
    @abstractmethod
    def evaluator(self) -> BatchEvaluator[C]:
        """What times many candidates at once."""

    @property
    @abstractmethod
    def whole_models(self) -> Sequence[C]:
        """The model as one stage, as far as that is a candidate and fits."""

    @abstractmethod
    def shape_text(self, candidate: C, /) -> str:
        """The canonical text of a candidate, without its runtimes."""

    @abstractmethod
    def parse(self, key: str) -> C:
        """The candidate of a key. Raises SplitError where it is none of the space."""

    @abstractmethod
    def stages_of(self, candidate: C, /) -> Stages:
        """The ops of each stage of a candidate."""

    @abstractmethod
    def evaluate(self, candidate: C, /, costs: Any = None) -> Plan:
        """What a candidate costs under ``costs``, by default those of the profile."""

    @abstractmethod
    def fits(self, candidate: C, /) -> bool:
        """Whether the devices can run it and have the memory for it."""

    @abstractmethod
    def cut_periods(self) -> Mapping[int, float]:
        """For each legal cut the predicted period of the best candidate with two stages there.

        Empty where there are too many cuts to look at.
        """

    @abstractmethod
    def decode(self, parameters: Mapping[str, float]) -> C:
        """The legal candidate nearest to some parameters; those of cuts may be in any order."""

    @abstractmethod
    def planned_under(self, costs: CostModel) -> tuple[C, Plan]:
        """The best one under some costs. Raises Infeasible where none fits."""

    @abstractmethod
    def best(self, costs: Any, count: int, seconds: float = ...) -> Sequence[C]:
        """Up to ``count`` of the best under some costs, best first.

        ``seconds``: after which there may be fewer. Raises Infeasible where none fits.
        """

    @abstractmethod
    def best_of_each(self, costs: Sequence[Any], limits: Sequence[float]) -> Sequence[C | None]:
        """The best one under each of some costs; it may be None where it is above the limit."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> C:
        """A random one, which may not fit."""

    @abstractmethod
    def neighbours(self, candidate: C, /) -> Iterable[C]:
        """Those one move away that fit."""

    @abstractmethod
    def corrected(self, measured: Sequence[Measured]) -> Corrected:
        """The costs corrected by what was measured."""

    @property
    def size(self) -> int | None:
        """How many candidates there are, also ones that do not fit; None where that is unknown."""
        return None

    @property
    def listed(self) -> Sequence[C]:
        """All that fit, best first under the profile. Raises ConfigError for too many."""
        raise ConfigError("sampler 'exhaustive' lists no deployments; use sampler 'planner'")

    @property
    def alone(self) -> C | None:
        """One that shows costs without contention, if such a one has to be measured."""
        return None

    def plan(self) -> C:
        """The best one under the profile. Raises Infeasible where none fits."""
        return self._plan[0]

    @property
    def best_plan(self) -> Plan:
        """What ``plan`` costs, with the proven bound of every period. Raises as ``plan``."""
        return self._plan[1]

    @cached_property
    def _plan(self) -> tuple[C, Plan]:
        return self.planned_under(self.costs)

    def parameters(self, candidate: C) -> dict[str, float]:
        """The parameters of a candidate.

        ``branch`` is such that they decode to it, where one of the plain layouts does.
        """
        values = self._parameters(candidate)
        if "branch" not in values:
            return values
        for branch in (0.0, 1.0, 0.5):
            values["branch"] = branch
            if self.decode(values) == candidate:
                return values
        return {**values, "branch": 0.0}

    def _parameters(self, candidate: C, /) -> dict[str, float]:
        """The parameters but for ``branch``."""
        stages, values = self.stages_of(candidate), dict.fromkeys(self.names, 0.0)
        # Stages that are not used lie behind the last one and have no share of the cost.
        shares = [*shares_of(self.costs, cuts_between(stages)), *[1.0] * self.most_stages]
        for stage in range(1, self.most_stages):
            values[f"cut_{stage}"] = min(1.0, shares[stage - 1])
        if "used" in values:
            values["used"] = sum(map(bool, stages)) / self.most_stages
        return values

    def _used_stages(self, parameters: Mapping[str, float]) -> tuple[list[int], Stages]:
        """The places of the stages that parameters use, and the ops of each."""
        most = self.most_stages
        # Rounding of what ``parameters`` wrote must not add a stage.
        used = max(1, math.ceil(parameters.get("used", 1.0) * most - 1e-9))
        shares = [parameters[f"cut_{stage}"] for stage in range(1, most)]
        places, shares = largest_stages(shares, min(used, len(self.costs.contraction.groups)))
        cuts = decode(self.costs, shares, parameters.get("branch", 0.0))
        return places, stages_between(self.costs, cuts)

    def _random_stages(self, rng: np.random.Generator, count: int) -> Stages:
        """``count`` stages between random places of a random order of the ops."""
        contraction = self.costs.contraction
        groups = len(contraction.groups)
        rank: list[float] = rng.random(groups).tolist()
        order = topological(contraction.predecessors, lambda group, _: rank[group])
        ends = (0, *sorted(1 + rng.choice(groups - 1, count - 1, replace=False)), groups)
        stage_groups = [bitset(order[first:last]) for first, last in pairwise(ends)]
        return tuple(tuple(members(contraction.expand(g))) for g in stage_groups)

    def random(self, rng: np.random.Generator) -> C | None:
        """A random one that fits; None where none was drawn."""
        # Rejection: with a tight memory limit most draws do not fit.
        draws = (self.draw(rng) for _ in range(RANDOM_DRAWS))
        return next(filter(self.fits, draws), None)

    @cached_property
    def cut_neighbourhood(self) -> CutNeighbourhood:
        """The cuts near other cuts."""
        return CutNeighbourhood(self.costs)

    def memory(self, candidate: C) -> float:
        """The bytes of its largest stage, of one replica: weights and tensors at its borders."""
        return max(self.evaluate(candidate).memory)

    def key(self, candidate: C, costs: Any = None, runtime: str = "") -> str:
        """The canonical text of a candidate.

        Where runtimes compete, the one of each stage follows: ``runtime``, or else that in which it
        is fastest under ``costs``, by default those of the profile.
        """
        text = self.shape_text(candidate)
        if not self.costs.runtimes:
            return text
        if runtime:
            names = [runtime if ops else "" for ops in self.stages_of(candidate)]
        else:
            names = list(self.evaluate(candidate, costs).runtimes)
        return f"{text}:{','.join(names)}"

    @property
    def unsplit_keys(self) -> Mapping[str, str]:
        """The keys of the candidates that are baselines too, by the names of these."""
        return {}

    def split(self, key: str) -> C:
        """As ``parse``, once for each key."""
        if key not in self._candidates:
            self._candidates[key] = self.parse(key)
        return self._candidates[key]

    def runtimes_of(self, key: str) -> tuple[str, ...]:
        """The runtime of each stage of a key; none where only one competes.

        A key by hand may name none: then they are the fastest by the profile. Raises SplitError
        for an unknown one.
        """
        candidate = self.split(key)
        if not self.costs.runtimes:
            return ()
        _, runtimes = without_runtimes(key)
        if not runtimes:
            return self.evaluate(candidate).runtimes
        known = {"", *(runtime.name for runtime in self.costs.runtimes)}
        if len(runtimes) != len(self.stages_of(candidate)) or not known.issuperset(runtimes):
            raise SplitError(
                f"'{key[:60]}' does not name a runtime for each stage; "
                f"use {', '.join(sorted(known))}"
            )
        return runtimes

    @cached_property
    def keys_in_one_runtime(self) -> tuple[str, ...]:
        """Where runtimes compete, the best candidate held to each that may be worth a trial."""
        periods: dict[str, float] = {}
        for runtime in self.costs.runtimes if len(self.costs.runtimes) > 1 else ():
            # Errors of a profile differ between runtimes, so each gets its best plan measured.
            with contextlib.suppress(Infeasible):
                candidate, plan = self.planned_under(self.costs.in_runtime(runtime.name))
                periods[self.key(candidate, runtime=runtime.name)] = plan.period
        limit = WORTH_A_TRIAL * min(periods.values(), default=0.0)
        return tuple(key for key, period in periods.items() if period <= limit)

    @cached_property
    def _candidates(self) -> dict[str, C]:
        """The keys read so far: the history of a study is read again for every trial."""
        return {}


CandidateSpace = SpaceOf[Any]
