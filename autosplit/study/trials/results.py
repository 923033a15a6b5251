"""What the trials of a study come to: how many there are, their periods, and the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosplit.hardware.measurement.results import Spread
from autosplit.study.config.objectives import of_study
from autosplit.study.persistence.attributes import spread_of
from autosplit.study.persistence.records import LOST

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Tally:
    """The trials of a study by state; lost ones, whose split is free again, do not count."""

    complete: tuple[FrozenTrial, ...]
    failed: tuple[FrozenTrial, ...]
    running: tuple[FrozenTrial, ...]

    @property
    def finished(self) -> int:
        """How many count towards the limit of trials."""
        return len(self.complete) + len(self.failed)


def tally(trials: Sequence[FrozenTrial]) -> Tally:
    """Sort the trials of a study by state."""
    by_state: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        by_state.setdefault(trial.state.name, []).append(trial)
    without_result = [*by_state.get("FAIL", ()), *by_state.get("PRUNED", ())]
    return Tally(
        complete=tuple(by_state.get("COMPLETE", ())),
        failed=tuple(t for t in without_result if not t.user_attrs.get(LOST)),
        running=tuple(by_state.get("RUNNING", ())),
    )


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial as people read it: an interrupted one was not measured, nor failed."""
    state = trial.state.name.lower()
    return "interrupted" if state == "fail" and trial.user_attrs.get(LOST) else state


def period_of(trial: FrozenTrial, objective: str) -> Spread | None:
    """The period of a complete trial in ms.

    Where none is stored it is the trial's value, if the objective is throughput.
    """
    if trial.state.name != "COMPLETE":
        return None
    period = spread_of(trial.user_attrs.get("period_ms"))
    if period is None and objective == "throughput" and trial.values:
        period = spread_of({"median": trial.values[0]})
    return period


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
    trials: Sequence[FrozenTrial], attributes: Mapping[str, Any], objective: str | None = None
) -> tuple[FrozenTrial, Spread] | None:
    """The best trial by the objective of the study, or another ``objective``, with its period."""
    of_values = of_study(attributes)
    complete = {t.number: t for t in tally(trials).complete}
    all_periods = {number: period_of(trial, of_values) for number, trial in complete.items()}
    periods = {number: period for number, period in all_periods.items() if period is not None}
    values = {number: trial.values or () for number, trial in complete.items()}
    best = best_number(periods, values, objective or of_values)
    return None if best is None else (complete[best], periods[best])
