"""The samplers: plain Optuna samplers that propose legal splits only, and none twice, in any number of processes.

They keep no state: the trials in the storage, the seed and the trial's place among them decide, so a resumed study goes on as
if it had never stopped. An objective function calls ``Space.suggest(trial)`` to get the split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import ConfigError
from autosplit.study.acquisition import multi_objective, proposals
from autosplit.study.acquisition.history import History, generator
from autosplit.study.persistence.records import read_spread
from autosplit.study.persistence.storage import set_attributes
from autosplit.study.space.search_space import KEY, Space
from autosplit.study.space.unmeasured import nearest_free
from autosplit.study.surrogate.cost_correction import Measured
from autosplit.study.trials.heartbeat import beat
from autosplit.study.trials.worker_identity import this_worker

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

NAMES = ("planner", "tpe", "random", "exhaustive")
LOST = "lost"  # attribute of a failed trial whose split was not measured and is free again
_ATTEMPTS = 20  # times a choice is made again because another worker made the same
_DRAWS = 20  # times TPE is asked for a split that is free

_Draw = Callable[["optuna.Study", "FrozenTrial", History, tuple[int, int]], "Stages | None"]


def sampler(
    name: str,
    space: Space,
    devices: Iterable[str],
    seed: int = 0,
    objectives: Sequence[str] = ("throughput",),
) -> BaseSampler:
    """The sampler ``name`` over the splits of ``space`` on ``devices`` (names, one a stage).

    ``objectives`` are what the study's values are, in their order.

    ``planner``: plan, measure, correct the costs, plan again. ``tpe``: Optuna's TPE on the shares of the cost before
    each cut. ``random``, and ``exhaustive`` by the profile's order. Where no split is left the trial gets no key.
    Raises ConfigError for an unknown name.
    """
    kinds, aims = tuple(devices), tuple(objectives)

    def planner(
        study: optuna.Study, trial: FrozenTrial, history: History, draw: tuple[int, int]
    ) -> Stages | None:
        rng = generator(seed, *draw)
        if aims == ("throughput",):
            return proposals.planned(space, kinds, history, rng)
        return multi_objective.planned(space, kinds, aims, history, rng)

    def tpe(
        study: optuna.Study, trial: FrozenTrial, history: History, draw: tuple[int, int]
    ) -> Stages | None:
        return _tpe(space, generator(seed, *draw), study, trial, history)

    def random(
        study: optuna.Study, trial: FrozenTrial, history: History, draw: tuple[int, int]
    ) -> Stages | None:
        return proposals.randomly(space, history, generator(seed, *draw))

    def exhaustive(
        study: optuna.Study, trial: FrozenTrial, history: History, draw: tuple[int, int]
    ) -> Stages | None:
        return proposals.next_listed(space, history)

    draws: dict[str, _Draw] = {
        "planner": planner,
        "tpe": tpe,
        "random": random,
        "exhaustive": exhaustive,
    }
    if name not in draws:
        raise ConfigError(f"sampler is '{name}'; use one of {', '.join(NAMES)}")
    return _as_sampler(name, space, draws[name])


def history_of(space: Space, trials: Iterable[FrozenTrial], but: int | None = None) -> History:
    """What the trials of a study say, the one numbered ``but`` left out; lost trials leave their split free."""
    others = [t for t in trials if t.number != but]
    return History(
        frozenset(key for t in others if (key := _live_key(t))), tuple(_measured(space, others))
    )


def _measured(space: Space, trials: Iterable[FrozenTrial]) -> Iterable[Measured]:
    for t in sorted(trials, key=lambda t: t.number):
        if (
            t.state.name == "COMPLETE"
            and (key := _live_key(t))
            and t.user_attrs.get("stage_ms")
            and t.values
        ):
            period = read_spread(t.user_attrs.get("period_ms"))
            latency = read_spread(t.user_attrs.get("latency_ms"))
            yield Measured(
                t.number,
                space.split(key),
                tuple(map(float, t.user_attrs["stage_ms"])),
                period.median if period else float(t.values[0]),
                latency.median if latency else 0.0,
            )


def _live_key(trial: FrozenTrial) -> str | None:
    key = trial.user_attrs.get(KEY)
    return key if isinstance(key, str) and key and not trial.user_attrs.get(LOST) else None


def _as_sampler(name: str, space: Space, draw: _Draw) -> BaseSampler:
    import optuna

    class SplitSampler(optuna.samplers.BaseSampler):
        """Chooses the split before the trial starts and records it; the parameters only describe it.

        What is recorded is noted on the trial in hand too, as Optuna does with what a trial sets itself.
        """

        def __str__(self) -> str:
            return name

        def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
            if KEY not in trial.user_attrs and "fixed_params" not in trial.system_attrs:
                beat(study, trial._trial_id)
                key = _claim(space, draw, study, trial)
                trial.user_attrs[KEY] = key
                parameters = space.parameters(space.split(key)) if key else {}
                set_attributes(study, trial._trial_id, {}, parameters)
                trial.params.update(parameters)
                trial.distributions.update(
                    {name: space.distributions()[name] for name in parameters}
                )

        def infer_relative_search_space(
            self, study: optuna.Study, trial: FrozenTrial
        ) -> dict[str, BaseDistribution]:
            return space.distributions()

        def sample_relative(
            self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
        ) -> dict[str, Any]:
            key = trial.user_attrs.get(KEY)
            return space.parameters(space.split(key)) if key else dict.fromkeys(search_space, 0.5)

        def sample_independent(
            self,
            study: optuna.Study,
            trial: FrozenTrial,
            param_name: str,
            param_distribution: BaseDistribution,
        ) -> Any:
            seeded = optuna.samplers.RandomSampler(
                seed=trial.number
            )  # a parameter of the user's own
            return seeded.sample_independent(study, trial, param_name, param_distribution)

    return SplitSampler()


def _claim(space: Space, draw: _Draw, study: optuna.Study, trial: FrozenTrial) -> str:
    """Choose a split and record it, such that no two trials ever keep the same one; its key, "" where none is left.

    Each worker writes its choice and then reads those of the others. Of two that chose alike the second to write sees
    the other, so not both keep it; whoever sees a rival chooses again, each another one by its rank among the rivals.
    """
    tried: set[str] = set()
    rank = 0
    for attempt in range(_ATTEMPTS):
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        history = history_of(space, trials, trial.number)
        # lost trials are not counted, so that what was interrupted goes on as if it had not been
        ordinal = sum(t.number < trial.number and not t.user_attrs.get(LOST) for t in trials)
        for _ in range(rank + 1):
            stages = draw(
                study, trial, History(history.taken | tried, history.measured), (ordinal, attempt)
            )
            if stages is None:
                break
            tried.add(key := space.key(stages))
        if stages is None:
            break
        set_attributes(study, trial._trial_id, {"worker": this_worker(), KEY: key})
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        rivals = [t.number for t in trials if t.number != trial.number and _live_key(t) == key]
        if not rivals:
            return key
        rank = sum(number < trial.number for number in rivals)
    set_attributes(study, trial._trial_id, {"worker": this_worker(), KEY: ""})
    return ""


def _tpe(
    space: Space,
    rng: np.random.Generator,
    study: optuna.Study,
    trial: FrozenTrial,
    history: History,
) -> Stages | None:
    """The plan first, then Optuna's TPE, made anew for each draw, until it names a free split or one near is free."""
    import optuna

    if not history.taken:
        return space.plan()
    start = None
    for _ in range(_DRAWS):
        tpe = optuna.samplers.TPESampler(
            seed=int(rng.integers(1 << 31)),
            multivariate=True,
            n_startup_trials=4,
            constant_liar=True,
        )
        values = tpe.sample_relative(study, trial, space.distributions())
        start = space.decode(values) if values else space.random(rng)
        if start is not None and space.fits(start) and space.key(start) not in history.taken:
            return start
    return nearest_free(space, start, history)
