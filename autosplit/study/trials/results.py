"""What the trials of a study come to: how many there are, the best one, the baselines beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.study.config.objectives import of_study
from autosplit.study.persistence.records import LOST, measured_period, read_baselines, read_spread

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


def period_of(trial: FrozenTrial, objectives: Sequence[str]) -> Spread | None:
    """The period of a complete trial in ms.

    Where none is stored it is the trial's value, if one of the objectives is throughput.
    """
    period = measured_period(trial)
    if period is None and trial.state.name == "COMPLETE" and "throughput" in objectives:
        values = trial.values or []
        place = list(objectives).index("throughput")
        value = values[place] if place < len(values) else None
        period = None if value is None else Spread(value, value, value)
    return period


def best_number(
    periods: Mapping[int, Spread],
    values: Mapping[int, Sequence[float]],
    compared: Mapping[int, Spread],
    objectives: Sequence[str],
) -> int | None:
    """The number of the best trial by the first objective; of equal ones the first.

    All mappings go by the number of the trial: ``periods`` and ``values`` of the objectives of the
    complete ones, ``compared`` the periods of the final comparison, which precede the others.
    """
    if objectives[0] != "throughput" and values:
        return min(values, key=lambda number: (list(values[number]), number))
    entries = {number: compared[number] for number in compared if number in periods} or periods
    return min(entries, key=lambda number: (entries[number].median, number), default=None)


def best_trial(
    trials: Sequence[FrozenTrial],
    attributes: Mapping[str, Any],
    objectives: Sequence[str] | None = None,
) -> tuple[FrozenTrial, Spread] | None:
    """The best trial by the first objective of the study, or of ``objectives``, with its period."""
    aims = objectives or of_study(attributes)
    complete = {t.number: t for t in tally(trials).complete}
    compared = compared_periods(attributes, len(complete))
    periods: dict[int, Spread] = {}
    for number, trial in complete.items():
        period = period_of(trial, of_study(attributes))
        if period is not None:
            periods[number] = period
    values = {n: t.values for n, t in complete.items() if n in periods and t.values}
    best = best_number(periods, values, compared, aims)
    if best is None:
        return None
    return complete[best], compared.get(best, periods[best])


def compared_periods(attributes: Mapping[str, Any], complete: int) -> dict[int, Spread]:
    """The periods of the final comparison by the number of the trial.

    Empty where it was held over another number of trials than are ``complete`` now.
    """
    comparison = attributes.get("duel")
    if not isinstance(comparison, dict) or comparison.get("measured") != complete:
        return {}
    periods: dict[int, Spread] = {}
    entries = comparison.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        period = read_spread(entry.get("period_ms")) if isinstance(entry, dict) else None
        if period is not None and isinstance(entry.get("number"), int):
            periods[entry["number"]] = period
    return periods


def compared_baselines(attributes: Mapping[str, Any]) -> list[Baseline]:
    """The baselines of a study, with the periods of the final comparison where it has them."""
    baselines = read_baselines(attributes.get("baselines"))
    comparison = attributes.get("duel")
    documents = comparison.get("baselines") if isinstance(comparison, dict) else None
    periods = [read_spread(d) for d in documents] if isinstance(documents, list) else []
    if len(periods) != len(baselines):
        return baselines
    return [
        replace(baseline, period_ms=period or baseline.period_ms)
        for baseline, period in zip(baselines, periods, strict=True)
    ]
