"""A summary of the trials of a study: how many are in each state, their errors, the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from autosplit.study.config.sections import objective_of
from autosplit.study.record import Figures, StudyRecord, record_of

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


def tally(trials: Sequence[FrozenTrial]) -> Tally:
    """Sort the trials of a study by state."""

    def of(*states: str) -> tuple[FrozenTrial, ...]:
        return tuple(trial for trial in trials if trial.state.name in states)

    failed = tuple(trial for trial in of("FAIL", "PRUNED") if not is_lost(trial))
    return Tally(of("COMPLETE"), failed, of("RUNNING"), of("WAITING"))


def is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial failed without having measured its candidate, which is then free again.

    Optuna marks a trial whose worker died or fell silent as failed. Such a trial is lost, unless
    its candidate has killed too many workers, which counts as a failure.
    """
    if trial.state.name != "FAIL":
        return False
    result = record_of(trial)
    return result.lost or not (result.error or deaths(trial) >= DEATHS_LIMIT)


def error_of(trial: FrozenTrial) -> str:
    """Why a trial has no result; empty for one that is complete or not finished."""
    error = record_of(trial).error
    if error or trial.state.name != "FAIL":
        return error
    if is_lost(trial):
        return "its worker died, or was silent for longer than its lease"
    return f"the process died {DEATHS_LIMIT} times while measuring this candidate"


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial for users, who read "interrupted" for a lost trial."""
    return "interrupted" if is_lost(trial) else trial.state.name.lower()


def best_number(
    study: StudyRecord, figures: Mapping[int, Figures], values: Mapping[int, Sequence[float] | None]
) -> int | None:
    """The number of the best trial by the objective; of equal ones the first.

    ``figures`` and ``values`` (Optuna's) are those of the complete trials; only one with a period
    can be the best, and one over the limit of the latency only if all are. For throughput it is the
    winner of the final comparison, unless further trials were completed since.
    """
    final = study.final_comparison
    periods = {n: f.period_ms for n, f in figures.items() if f.period_ms and not final.error_of(n)}
    limits = study.config.get("limits")
    limit = limits.get("latency_ms") if isinstance(limits, dict) else None
    if isinstance(limit, float):
        slow = {n for n, f in figures.items() if f.latency_ms and f.latency_ms.median > limit}
        periods = {n: p for n, p in periods.items() if n not in slow} or periods
    if objective_of(study.config) != "throughput":
        orders = {n: of_trial[0] for n, of_trial in values.items() if of_trial and n in periods}
    else:
        compared = final.figures.keys() & periods.keys() if final.measured == len(figures) else ()
        orders = {n: p.median for n, p in periods.items() if n in compared or not compared}
    return min(orders, key=lambda number: (orders[number], number), default=None)


def deaths(trial: FrozenTrial) -> int:
    """How many processes died while measuring the candidate of a trial that failed."""
    retried = trial.system_attrs.get("retry_history")  # by Optuna's callback for stale trials
    return 1 + (len(retried) if isinstance(retried, list) else 0)
