"""What the trials of a study come to: how many there are, their figures, and the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosplit.hardware.measurement.results import Spread
from autosplit.study.config.sections import objective_of
from autosplit.study.record import StudyRecord, TrialRecord, record_of, result_of, study_record

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

DEATHS_LIMIT = 5  # processes that may die while measuring a candidate before it counts as failed


@dataclass(frozen=True)
class Tally:
    """The trials of a study by state; lost ones, whose candidate is free again, do not count."""

    complete: tuple[FrozenTrial, ...]
    failed: tuple[FrozenTrial, ...]
    running: tuple[FrozenTrial, ...]
    waiting: tuple[FrozenTrial, ...]

    @property
    def finished(self) -> int:
        """How many count towards the limit of trials."""
        return len(self.complete) + len(self.failed)


@dataclass(frozen=True)
class BestTrial:
    """The best trial; its figures are those of the final comparison where it took part in one."""

    number: int
    period_ms: Spread
    record: TrialRecord


def tally(trials: Sequence[FrozenTrial]) -> Tally:
    """Sort the trials of a study by state."""
    by_state: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        by_state.setdefault(trial.state.name, []).append(trial)
    without_result = [*by_state.get("FAIL", ()), *by_state.get("PRUNED", ())]
    return Tally(
        complete=tuple(by_state.get("COMPLETE", ())),
        failed=tuple(t for t in without_result if not is_lost(t)),
        running=tuple(by_state.get("RUNNING", ())),
        waiting=tuple(by_state.get("WAITING", ())),
    )


def is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial failed without having measured its candidate, which is then free again.

    Of a trial whose worker died or fell silent Optuna says only that it failed; a candidate that
    killed too many workers counts as failed.
    """
    if trial.state.name != "FAIL":
        return False
    result = result_of(trial)
    return result.lost or not (result.error or _deaths(trial) >= DEATHS_LIMIT)


def error_of(trial: FrozenTrial) -> str:
    """Why a trial has no result; empty for one that is complete or not finished."""
    error = result_of(trial).error
    if error or trial.state.name != "FAIL":
        return error
    if is_lost(trial):
        return "its worker died, or was silent for longer than its lease"
    return f"the process died {DEATHS_LIMIT} times while measuring this candidate"


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial as people read it: an interrupted one was not measured, nor failed."""
    return "interrupted" if is_lost(trial) else trial.state.name.lower()


def best_number(
    periods: Mapping[int, Spread], values: Mapping[int, Sequence[float]], objective: str
) -> int | None:
    """The number of the best trial by the objective; of equal ones the first.

    Both mappings go by the number of the trial: ``periods`` and ``values``, as Optuna has them, of
    the complete ones. Only a trial with a period can be the best.
    """
    if objective != "throughput":
        valued = [number for number in periods if values.get(number)]
        return min(valued, key=lambda number: (values[number][0], number), default=None)
    return min(periods, key=lambda number: (periods[number].median, number), default=None)


def best_trial(
    trials: Sequence[FrozenTrial], study: StudyRecord, objective: str | None = None
) -> BestTrial | None:
    """The best trial by the objective of the study, or another ``objective``.

    Where nothing was measured since the final comparison, it is the winner of that.
    """
    objective = objective or objective_of(study.config)
    complete = {t.number: t for t in tally(trials).complete}
    compared = study.final_comparison.numbers(len(complete)) & complete.keys()
    if compared and objective == "throughput":
        complete = {number: complete[number] for number in compared}
    records = {n: study.final_comparison.of(n, record_of(t)) for n, t in complete.items()}
    periods = {n: record.period_ms for n, record in records.items() if record.period_ms}
    values = {number: trial.values or () for number, trial in complete.items()}
    best = best_number(periods, values, objective)
    return None if best is None else BestTrial(best, periods[best], records[best])


def best_of_study(study: optuna.Study) -> BestTrial | None:
    """The best trial of a study as it is stored now."""
    return best_trial(study.get_trials(deepcopy=False), study_record(study.user_attrs))


def _deaths(trial: FrozenTrial) -> int:
    """How many processes died while measuring the candidate of a trial that failed."""
    retried = trial.system_attrs.get("retry_history")  # by Optuna's callback for stale trials
    return 1 + (len(retried) if isinstance(retried, list) else 0)
