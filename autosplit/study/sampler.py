"""The samplers of a study, and the candidate of each trial.

``PlannerSampler`` and Optuna's own samplers choose the parameters of a trial; ``Assignment`` turns
them into a candidate that no other trial has. Neither keeps state that a resumed study would need:
choices follow from the trials in the storage and the seed, in any number of processes.

This module imports Optuna at its top; import it only where a study is opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial

from autosplit.errors import SplitError
from autosplit.study.acquisition import Acquisition, Goal, acquisition
from autosplit.study.history import HistoryReader
from autosplit.study.record import record_of, update
from autosplit.study.space import Candidate

PLANNER = "planner"
OTHERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "brute_force": lambda seed: optuna.samplers.BruteForceSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
}
_ATTEMPTS = 20  # choices of a candidate for a trial while other workers choose the same one
FIRST_WAIT = 0.05  # most seconds between the first two attempts; doubled for each further one


class PlannerSampler(BaseSampler):
    """Chooses the candidate that is expected to gain most, as parameters of its ``space``."""

    def __init__(self, reader: HistoryReader, goal: Goal) -> None:
        self.reader, self.space, self.goal = reader, reader.space, goal

    def view(self, trials: Sequence[FrozenTrial], exclude: int | None = None) -> Acquisition:
        """The acquisition after some trials, without the one numbered ``exclude``."""
        others = [trial for trial in trials if trial.number != exclude]
        return acquisition(self.space, self.goal, self.reader.history(others))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters."""
        ranges = self.space.moves.ranges
        return {name: IntDistribution(values[0], values[-1]) for name, values in ranges.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the candidate to measure; empty if no candidate is left."""
        candidate = self.view(study.get_trials(deepcopy=False), exclude=trial.number).best
        return {} if candidate is None else self.space.moves.encode(candidate)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        """The lowest value, for the parameters of stages that the candidate does not have."""
        return param_distribution.low


class Assignment:
    """Gives each trial of a study a candidate, which the sampler called ``name`` chooses."""

    def __init__(self, name: str, planner: PlannerSampler, seed: int = 0) -> None:
        self.name, self.planner, self.seed = name, planner, seed
        self.space, self.reader = planner.space, planner.reader

    def sampler(self, ordinal: int) -> BaseSampler:
        """Optuna's sampler for the trial at a place in its study.

        A seeded sampler repeats itself in every process, so each trial has a seed of its own.
        """
        seed = int(np.random.default_rng((self.seed, ordinal)).integers(1 << 31))
        return self.planner if self.name == PLANNER else OTHERS[self.name](seed)

    def assign(
        self, study: optuna.Study, trial: Trial, trials: Sequence[FrozenTrial]
    ) -> Candidate | None:
        """Choose and record the candidate of a running trial; None if no candidate is left.

        A trial that was enqueued with a candidate keeps it, unless an earlier trial has the same.
        ``trials``: all trials so far. Raises SplitError if an enqueued key is of no candidate.
        """
        key = record_of(trial).key
        if key and key not in self.reader.history(trials[: trial.number]).taken:
            return self.space.candidate(key)
        suggested = self._suggested(trial)
        # Parameters that a user enqueued, perhaps only some of them.
        if "fixed_params" in trials[trial.number].system_attrs:
            update(trial, key=self.space.key(suggested))
            return suggested
        return self._free(study, trial, suggested)

    def _suggested(self, trial: Trial) -> Candidate:
        """The candidate of the parameters that Optuna suggests and stores for the trial."""
        ranges = self.space.moves.ranges

        def suggest(name: str) -> int:
            return trial.suggest_int(name, ranges[name][0], ranges[name][-1])

        stages = suggest("stages") if "stages" in ranges else self.space.question.stages or 1
        try:
            names = self.space.moves.names(stages)
            return self.space.moves.decode({name: suggest(name) for name in names})
        except (IndexError, ValueError) as error:  # Optuna only warns of what is out of range
            raise SplitError("enqueued parameters are of no candidate; enqueue others") from error

    def _free(self, study: optuna.Study, trial: Trial, suggested: Candidate) -> Candidate | None:
        """Choose a candidate and record it, such that no two trials ever keep the same one.

        Each worker writes its choice and then reads those of the others. Of two workers with the
        same choice, the second to write sees the first, so not both keep it. A worker that sees a
        rival waits for a random time, in which the rival may choose again, and then chooses again.
        """
        for attempt in range(_ATTEMPTS):
            view = self.planner.view(study.get_trials(deepcopy=False), exclude=trial.number)
            candidate = view.best if self.name == PLANNER else view.nearest(suggested)
            if candidate is None:
                return None
            key = self.space.key(candidate)
            update(trial, key=key)
            # Read after writing: of two workers, at least one sees the other's claim.
            others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
            if key not in self.reader.history(others).taken:
                return candidate
            # Withdraw the claim, so that the trial holds no candidate if it fails.
            update(trial, key="")
            time.sleep(random() * min(1.0, FIRST_WAIT * 2**attempt))
        return None
