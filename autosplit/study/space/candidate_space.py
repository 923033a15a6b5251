"""What a study asks of the space of its candidates, whether they are splits or deployments.

The key of a candidate is the text of its shape, then the runtimes of its stages if several compete.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import CostModel, Plan
from autosplit.planner.batch.evaluation import BatchEvaluator
from autosplit.study.space.keys import check_runtimes, without_runtimes

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

C = TypeVar("C")
WORTH_A_TRIAL = 1.5  # times the period of the best runtime's own plan


class SpaceOf(ABC, Generic[C]):
    """A space of candidates, which are ``Stages`` or ``DeployedSplit``."""

    costs: CostModel  # of the profile

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial, all from 0 to 1."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many candidates there are, also ones that do not fit; None where that is unknown."""

    @property
    @abstractmethod
    def listed(self) -> Sequence[C]:
        """All that fit, best first under the profile. Raises ConfigError for too many."""

    @property
    @abstractmethod
    def evaluator(self) -> BatchEvaluator[C]:
        """What times many candidates at once."""

    @property
    @abstractmethod
    def alone(self) -> C | None:
        """One that shows costs without contention, if such a one has to be measured."""

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
        """For each legal cut the predicted period of the best candidate that has it, if known."""

    @abstractmethod
    def parameters(self, candidate: C, /) -> dict[str, float]:
        """The parameters of a candidate."""

    @abstractmethod
    def decode(self, parameters: Mapping[str, float]) -> C:
        """The legal candidate nearest to some parameters."""

    @abstractmethod
    def plan(self) -> C:
        """The best one under the profile. Raises Infeasible where none fits."""

    @abstractmethod
    def planned_under(self, costs: CostModel) -> tuple[C, float]:
        """The best one under some costs and its period. Raises Infeasible where none fits."""

    @abstractmethod
    def best(self, costs: Any, count: int) -> Sequence[C]:
        """Up to ``count`` of the best under some costs, best first.

        Raises Infeasible where none fits.
        """

    @abstractmethod
    def best_of_each(self, costs: Sequence[Any], limits: Sequence[float]) -> Sequence[C | None]:
        """The best one under each of some costs; None where its period is above the limit."""

    @abstractmethod
    def random(self, rng: np.random.Generator) -> C | None:
        """A random one that fits; None where none was drawn."""

    @abstractmethod
    def neighbours(self, candidate: C, /) -> Iterable[C]:
        """Those one move away that fit."""

    def memory(self, candidate: C) -> float:
        """The bytes of its largest stage, of one replica: weights and tensors at its borders."""
        return max(self.evaluate(candidate).memory)

    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters with their ranges."""
        import optuna

        return {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in self.names}

    def key(self, candidate: C, costs: Any = None) -> str:
        """The canonical text of a candidate.

        Where runtimes compete, the one of each stage follows: that in which it is fastest under
        ``costs``, by default those of the profile.
        """
        text = self.shape_text(candidate)
        if not self.costs.runtimes:
            return text
        return f"{text}:{','.join(self.evaluate(candidate, costs).runtimes)}"

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
        plan = self.evaluate(self.split(key))
        _, runtimes = without_runtimes(key)
        if not self.costs.runtimes or not runtimes:
            return plan.runtimes
        check_runtimes(self.costs, key, runtimes, len(plan.stages))
        return runtimes

    @cached_property
    def keys_in_one_runtime(self) -> tuple[str, ...]:
        """Where runtimes compete, the best candidate held to each that may be worth a trial."""
        periods: dict[str, float] = {}
        for runtime in self.costs.runtimes if len(self.costs.runtimes) > 1 else ():
            # Errors of a profile differ between runtimes, so each gets its best plan measured.
            with contextlib.suppress(Infeasible):
                candidate, period = self.planned_under(self.costs.in_runtime(runtime.name))
                names = (runtime.name if ops else "" for ops in self.stages_of(candidate))
                periods[f"{self.shape_text(candidate)}:{','.join(names)}"] = period
        limit = WORTH_A_TRIAL * min(periods.values(), default=0.0)
        return tuple(key for key, period in periods.items() if period <= limit)

    @cached_property
    def _candidates(self) -> dict[str, C]:
        """The keys read so far: the history of a study is read again for every trial."""
        return {}


CandidateSpace = SpaceOf[Any]
