"""The canonical text of a split, by which a study knows it.

It is the number of stages, then each cut as the hexadecimal bitset of the ops before it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autosplit.cuts import full
from autosplit.cuts.stages import Stages, cuts_between, stages_between
from autosplit.errors import Infeasible, SplitError
from autosplit.planner import CostModel, Plan

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

C = TypeVar("C")
WORTH_A_TRIAL = 1.5  # times the period of the best runtime's own plan


def key_of(stages: Stages) -> str:
    """The key of a split."""
    return f"{len(stages)}:" + ".".join(f"{cut:x}" for cut in cuts_between(stages))


def stages_of_key(costs: CostModel, key: str) -> Stages:
    """The stages of a key, some of which may be empty.

    Raises SplitError where it is no key, or its cuts are not nested cuts of these ops.
    """
    count, _, text = key.partition(":")
    try:
        cuts = [int(digits, 16) for digits in text.split(".")] if text else []
    except ValueError:
        raise SplitError(
            f"'{key[:60]}' is not the key of a split; keys are made by Space.key"
        ) from None
    ends: Sequence[int] = (0, *cuts, full(costs))
    are_nested = all(a >= 0 and not a & ~b for a, b in pairwise(ends))
    if count != str(len(cuts) + 1) or not are_nested:
        raise other_space(key)
    return stages_between(costs, cuts)


def without_runtimes(key: str) -> tuple[str, tuple[str, ...]]:
    """A key without the runtimes that may follow it, and their names."""
    parts = key.split(":")
    names = tuple(parts[2].split(",")) if len(parts) > 2 else ()
    return ":".join(parts[:2]), names


def check_runtimes(costs: CostModel, key: str, names: Sequence[str], stages: int) -> None:
    """Raise SplitError where names in a key are not one known runtime a stage."""
    known = {"", *(runtime.name for runtime in costs.runtimes)}
    if len(names) != stages or not known.issuperset(names):
        raise SplitError(
            f"'{key[:60]}' does not name a runtime for each stage; use {', '.join(sorted(known))}"
        )


def other_space(key: str) -> SplitError:
    """The error for a key of another space."""
    return SplitError(
        f"'{key[:60]}' is not a candidate of this space; read it with the space it was made in"
    )


class KeyedSpace(ABC, Generic[C]):
    """The keys of a space's candidates: the text of a shape, then the runtimes that compete."""

    costs: CostModel

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial, all from 0 to 1."""

    @abstractmethod
    def shape_text(self, candidate: C) -> str:
        """The canonical text of a candidate, without its runtimes."""

    @abstractmethod
    def parse(self, key: str) -> C:
        """The candidate of a key. Raises SplitError where it is none of the space."""

    @abstractmethod
    def stages_of(self, candidate: C) -> Stages:
        """The ops of each stage of a candidate."""

    @abstractmethod
    def planned_under(self, costs: CostModel) -> tuple[C, float]:
        """The best candidate under some costs and its period. Raises Infeasible without any."""

    @abstractmethod
    def evaluate(self, candidate: C, costs: Any = None) -> Plan:
        """What a candidate costs under ``costs``, by default those of the profile."""

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
