"""What a study asks of the space of its candidates, whether they are splits or deployments."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.planner import CostModel
from autosplit.planner.batch.evaluation import BatchEvaluator

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class CandidateSpace(Hashable, Protocol):
    """A space: a candidate is ``Stages`` or a ``DeployedSplit``, costs are those of its kind."""

    @property
    def costs(self) -> CostModel:
        """The costs of the profile."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial, all from 0 to 1."""

    @property
    def size(self) -> int | None:
        """How many candidates there are, also ones that do not fit; None where that is unknown."""

    @property
    def listed(self) -> Sequence[Any]:
        """All that fit, best first under the profile. Raises ConfigError for too many."""

    @property
    def evaluator(self) -> BatchEvaluator[Any]:
        """What times many candidates at once."""

    def cut_periods(self) -> Mapping[int, float]:
        """For each legal cut the predicted period of the best candidate that has it, if known."""

    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters with their ranges."""

    def parameters(self, candidate: Any, /) -> dict[str, float]:
        """The parameters of a candidate."""

    def decode(self, parameters: Mapping[str, float]) -> Any:
        """The legal candidate nearest to some parameters."""

    @property
    def keys_in_one_runtime(self) -> Sequence[str]:
        """Where runtimes compete, the best one held to each that may be worth a trial."""

    def key(self, candidate: Any, costs: Any = None, /) -> str:
        """The canonical text of a candidate, in the runtimes that are fastest under ``costs``."""

    def runtimes_of(self, key: str) -> tuple[str, ...]:
        """The runtime of each stage of a key; none where only one competes."""

    def split(self, key: str) -> Any:
        """The candidate of a key. Raises SplitError where it is none of the space."""

    def stages_of(self, candidate: Any, /) -> Stages:
        """The ops of each stage of a candidate."""

    def fits(self, candidate: Any, /) -> bool:
        """Whether the devices can run it and have the memory for it."""

    def memory(self, candidate: Any, /) -> float:
        """The bytes of its largest stage, of one replica."""

    @property
    def alone(self) -> Any | None:
        """One that shows costs without contention, if such a one has to be measured."""

    def best(self, costs: Any, count: int) -> Sequence[Any]:
        """Up to ``count`` of the best under some costs, best first.

        Raises Infeasible where none fits.
        """

    def best_of_each(self, costs: Sequence[Any], limits: Sequence[float], /) -> Sequence[Any]:
        """The best one under each of some costs; None where its period is above the limit."""

    def plan(self) -> Any:
        """The best one under the profile. Raises Infeasible where none fits."""

    def random(self, rng: np.random.Generator) -> Any | None:
        """A random one that fits; None where none was drawn."""

    def neighbours(self, candidate: Any, /) -> Iterable[Any]:
        """Those one move away that fit."""
