"""The samplers of a study, and the candidate of each trial.

The planner chooses a candidate, Optuna's own samplers choose parameters; ``Assignment`` makes a
candidate of them that no other trial has. It keeps nothing that a resumed study would need: the
trials in the storage and the seed decide, and any number of processes may ask.

Imports Optuna at once, so it is imported late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial

from autosplit.study.acquisition import Acquisition, Goal, acquisition
from autosplit.study.history import TrialReader
from autosplit.study.record import RECORD, record_of, update
from autosplit.study.space import Candidate, Space
from autosplit.study.workers import this_worker

PLANNER = "planner"
OTHERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "brute_force": lambda seed: optuna.samplers.BruteForceSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
}
SAMPLERS = (PLANNER, *OTHERS)
_ATTEMPTS = 20  # choices of a trial, each after another worker made the same
FIRST_WAIT = 0.05  # seconds between the first two of them at most; each further wait is twice it


def distributions(space: Space) -> dict[str, IntDistribution]:
    """The parameters of a space for Optuna."""
    ranges = space.moves.ranges
    return {name: IntDistribution(values[0], values[-1]) for name, values in ranges.items()}


class Assignment:
    """Gives each trial of a study a candidate, chosen by the sampler of some ``name``."""

    def __init__(self, name: str, goal: Goal, reader: TrialReader, seed: int = 0) -> None:
        self.name, self.goal, self.reader, self.seed = name, goal, reader, seed
        self.space = reader.space

    def view(self, trials: Sequence[FrozenTrial], exclude: int | None = None) -> Acquisition:
        """What is promising after some trials, but for the one numbered ``exclude``."""
        return acquisition(self.space, self.goal, self.reader.history(trials, exclude))

    def sampler(self, ordinal: int) -> BaseSampler:
        """Optuna's sampler for the trial at a place in its study.

        A seeded sampler repeats itself in every process, so each trial has a seed of its own.
        Beside the planner it only chooses what a user left open in a trial.
        """
        seed = int(np.random.default_rng((self.seed, ordinal)).integers(1 << 31))
        return OTHERS["random" if self.name == PLANNER else self.name](seed)

    def enqueue(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
        """Enqueue the next trial, with the candidate of the planner and all of its parameters.

        Nothing where a trial waits already: one that a user enqueued, or that a dead worker left.
        Optuna's samplers choose within their trial. ``trials``: those that there are.
        """
        if any(trial.state.name == "WAITING" for trial in trials):
            return
        # Named at once, so that others see when this process dies before it measures.
        record: dict[str, Any] = {"worker": this_worker()}
        params: dict[str, int] = {}
        candidate = self.view(trials).best if self.name == PLANNER else None
        if candidate is not None:
            record["key"], params = self.space.key(candidate), self.space.moves.encode(candidate)
        ranges = distributions(self.space)
        enqueued = optuna.trial.create_trial(
            state=optuna.trial.TrialState.WAITING,
            params=params,
            distributions={name: ranges[name] for name in params},
            user_attrs={RECORD: record},
        )
        study.add_trial(enqueued)

    def assign(
        self, study: optuna.Study, trial: Trial, trials: Sequence[FrozenTrial]
    ) -> Candidate | None:
        """The candidate of a running trial, which is recorded; None where none is left.

        A trial that was enqueued with a candidate keeps it, unless an earlier one has the same.
        ``trials``: all that there are. Raises SplitError where an enqueued key is not one of them.
        """
        key = record_of(trial).key
        if key and not self.reader.is_taken(key, trials[: trial.number]):
            return self.space.candidate(key)
        # By a user, who may have given some of them.
        if "fixed_params" in trials[trial.number].system_attrs:
            enqueued = self._suggested(trial)
            update(trial, key=self.space.key(enqueued))
            return enqueued
        return self._free(study, trial)

    def _suggested(self, trial: Trial) -> Candidate:
        """The candidate of the parameters that Optuna suggests, which it stores."""
        ranges = distributions(self.space)

        def suggest(name: str) -> int:
            return trial.suggest_int(name, ranges[name].low, ranges[name].high)

        values = {"stages": suggest("stages")} if "stages" in ranges else {}
        stages = values.get("stages", self.space.question.stages or 1)
        for name in self.space.moves.names(stages):
            values[name] = suggest(name)
        return self.space.moves.decode(values)

    def _free(self, study: optuna.Study, trial: Trial) -> Candidate | None:
        """Choose a candidate and record it, such that no two trials ever keep the same one.

        Each worker writes its choice and then reads those of the others. Of two workers that chose
        alike the second to write sees the other, so not both keep it. A worker that sees a rival
        waits for a random time, in which the rival chooses again or goes on, and chooses again.
        """
        for attempt in range(_ATTEMPTS):
            view = self.view(study.get_trials(deepcopy=False), exclude=trial.number)
            candidate = view.best if self.name == PLANNER else view.nearest(self._suggested(trial))
            if candidate is None:
                return None
            key = self.space.key(candidate)
            update(trial, key=key)
            # Read after writing: of two workers, at least one sees the other's claim.
            others = study.get_trials(deepcopy=False)
            if not self.reader.is_taken(key, (t for t in others if t.number != trial.number)):
                return candidate
            # An empty claim lets the trial fail without a candidate.
            update(trial, key="")
            time.sleep(random() * min(1.0, FIRST_WAIT * 2**attempt))
        return None
