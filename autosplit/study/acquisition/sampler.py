"""The sampler: gives each trial of a study a legal split that no other trial has.

It keeps no state. The trials in the storage, the seed and the place of the trial among them decide,
so a resumed study goes on as if it had never stopped, and any number of processes may ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosplit.errors import ConfigError
from autosplit.study.acquisition import proposals
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import History, generator, history_of, key_of
from autosplit.study.record import result_of, update
from autosplit.study.results import is_lost
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.unmeasured import nearest_free

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial, Trial

SAMPLERS = ("planner", "tpe", "random", "exhaustive")
_ATTEMPTS = 20  # choices of a trial, each after another worker made the same
_TPE_DRAWS = 20  # proposals of TPE, until one of them is free


@dataclass(frozen=True)
class SplitSampler:
    """Chooses the splits of ``space``, in the way that ``name``, one of ``SAMPLERS``, says.

    ``objective``: that of the study. Raises ConfigError for an unknown name.
    """

    name: str
    space: CandidateSpace
    seed: int = 0
    objective: str = "throughput"

    def __post_init__(self) -> None:
        if self.name not in SAMPLERS:
            raise ConfigError(f"sampler is '{self.name}'; use one of {', '.join(SAMPLERS)}")

    def assign(self, study: optuna.Study, trial: Trial) -> Any | None:
        """The split of a running trial; None where none is left.

        A trial that has a split keeps it: one that a dead worker left, or one that a user enqueued.
        Any other gets a new one. The split and its parameters are recorded.
        Raises SplitError where an enqueued key is no split of the space.
        """
        import optuna

        key = result_of(trial).key
        frozen = next(t for t in study.get_trials(deepcopy=False) if t.number == trial.number)
        enqueued = frozen.system_attrs.get("fixed_params")
        if key:
            stages = self.space.split(key)
        elif enqueued is not None:
            # A user may enqueue some of the parameters; the middle stands for the others.
            stages = self.space.decode({n: enqueued.get(n, 0.5) for n in self.space.names})
            update(trial, key=self.space.key(stages))
        else:
            stages = self._choose_free(study, trial)
        if stages is not None and not trial.params:
            shares = self.space.parameters(stages)
            study.sampler = optuna.samplers.PartialFixedSampler(shares, study.sampler)
            for name in shares:
                trial.suggest_float(name, 0.0, 1.0)
        return stages

    def _choose_free(self, study: optuna.Study, trial: Trial) -> Any | None:
        """Choose a split and record it, such that no two trials ever keep the same one.

        Each worker writes its choice and then reads those of the others. Of two workers that chose
        alike the second to write sees the other, so not both keep it. A worker that sees a rival
        chooses again, by its rank among the rivals: so they do not choose alike again.
        """
        tried: set[str] = set()
        rank = 0
        for attempt in range(_ATTEMPTS):
            trials = study.get_trials(deepcopy=False)
            history = history_of(self.space, trials, trial.number)
            # Lost trials do not count, so an interrupted study goes on as if it had not been.
            before = [t for t in trials if t.number < trial.number and not is_lost(t)]
            frozen = next(t for t in trials if t.number == trial.number)
            key = ""
            for _ in range(rank + 1):
                rng = generator(self.seed, len(before), attempt)
                known = History(history.taken | tried, history.measured)
                key = self._choose_key(study, frozen, known, rng)
                if not key:
                    break
                tried.add(key)
            update(trial, key=key)
            if not key:
                return None
            # Read after writing: of two workers, at least one sees the other's claim.
            rivals = self._rivals(study, trial, key)
            if not rivals:
                return self.space.split(key)
            rank = sum(number < trial.number for number in rivals)
        # Every choice had a rival; an empty claim lets the trial fail without a split.
        update(trial, key="")
        return None

    def _choose_key(
        self, study: optuna.Study, trial: FrozenTrial, history: History, rng: np.random.Generator
    ) -> str:
        """The key of the split to measure; empty where none is left."""
        if history.taken:
            # A study is never slower than one held to the runtime of its best split.
            for key in self.space.keys_in_one_runtime:
                if key not in history.taken:
                    return key
        if self.objective == "throughput" and self.space.unsplit_keys:
            # Nor is it slower than a baseline that it could export.
            unmeasured = proposals.unmeasured_baselines(self.space, study.user_attrs, history)
            if unmeasured:
                return unmeasured[0]
        stages = self._choose(study, trial, history, rng)
        if stages is None:
            return ""
        costs = None
        # By the corrected costs, the runtimes of its stages may be others than by the profile.
        if self.name == "planner" and self.space.costs.runtimes:
            corrected = corrected_costs(self.space, history.measured)
            costs = corrected.contention_costs
        return self.space.key(stages, costs)

    def _choose(
        self, study: optuna.Study, trial: FrozenTrial, history: History, rng: np.random.Generator
    ) -> Any | None:
        """The split to measure next; None where none is left."""
        if self.name == "random":
            return proposals.randomly(self.space, history, rng)
        if self.name == "exhaustive":
            return proposals.next_listed(self.space, history)
        if self.name == "tpe":
            return self._by_tpe(study, trial, history, rng)
        return proposals.planned(self.space, self.objective, history, rng)

    def _by_tpe(
        self, study: optuna.Study, trial: FrozenTrial, history: History, rng: np.random.Generator
    ) -> Any | None:
        """The plan, then Optuna's TPE on the shares of the cost before each cut."""
        import optuna

        space = self.space
        if not history.taken:
            return space.plan()
        unit = optuna.distributions.FloatDistribution(0.0, 1.0)
        ranges: dict[str, optuna.distributions.BaseDistribution] = dict.fromkeys(space.names, unit)
        start = None
        for _ in range(_TPE_DRAWS):
            # A seeded sampler repeats itself in every process, so each draw has its own seed.
            tpe = optuna.samplers.TPESampler(
                seed=int(rng.integers(1 << 31)),
                multivariate=True,
                n_startup_trials=4,
                constant_liar=True,
            )
            shares = tpe.sample_relative(study, trial, ranges)
            start = space.decode(shares) if shares else space.random(rng)
            if start is not None and space.fits(start) and space.key(start) not in history.taken:
                return start
        return nearest_free(space, start, history.taken)

    def _rivals(self, study: optuna.Study, trial: Trial, key: str) -> list[int]:
        """The numbers of the other trials that have the split."""
        trials = study.get_trials(deepcopy=False)
        return [t.number for t in trials if t.number != trial.number and key_of(t) == key]
