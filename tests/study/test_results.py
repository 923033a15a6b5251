"""The best trial of a study and what it is compared with, from what the study stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from autosplit.study.persistence.records import LOST, document_of

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.study.record import compared_baselines
from autosplit.study.results import best_trial, period_of, tally


def spread(period: float) -> dict[str, float]:
    return {"median": period, "low": period - 0.5, "high": period + 0.5}


def trial(
    number: int,
    period: float | None,
    values: list[float] | None = None,
    state: str = "COMPLETE",
    **attributes: Any,
) -> Any:
    if period is not None:
        attributes["period_ms"] = spread(period)
    return SimpleNamespace(
        number=number,
        state=SimpleNamespace(name=state),
        user_attrs=attributes,
        values=values if period is None else values or [period],
    )


TRIALS = [trial(0, 5.0), trial(1, 3.0), trial(2, 1.0, state="FAIL"), trial(3, 4.0), trial(4, 3.0)]


def test_the_best_is_the_first_of_the_fastest_that_did_not_fail() -> None:
    best = best_trial(TRIALS, {})
    assert best is not None
    assert (best[0].number, best[1].median) == (1, 3.0)


def test_a_study_without_complete_trials_has_no_best() -> None:
    assert best_trial([], {}) is None
    assert best_trial([trial(0, None, None)], {}) is None


@pytest.mark.parametrize(
    ("objective", "number"),
    [("throughput", 0), ("latency", 1), ("memory", 0), (["latency", "throughput"], 0)],
)
def test_the_best_is_that_of_the_objective(objective: Any, number: int) -> None:
    trials = [trial(0, 1.0, [9.0]), trial(1, 2.0, [4.0]), trial(2, 3.0, [4.0])]
    best = best_trial(trials, {"config": {"objective": objective}})
    assert best is not None
    assert (best[0].number, best[1].median) == (number, [1.0, 2.0, 3.0][number])
    fastest = best_trial(trials, {"config": {"objective": objective}}, "throughput")
    assert fastest is not None
    assert fastest[0].number == 0


@pytest.mark.parametrize(
    ("stored", "objective", "period"),
    [
        (trial(0, 2.0, [9.0]), "throughput", 2.0),
        (trial(0, None, [9.0]), "throughput", 9.0),
        (trial(0, None, [9.0]), "latency", None),
        (trial(0, None, None), "throughput", None),
        (trial(0, 2.0, [9.0], state="FAIL"), "throughput", None),
    ],
)
def test_a_period_that_is_not_stored_is_the_value_of_throughput(
    stored: Any, objective: str, period: float | None
) -> None:
    read_period = period_of(stored, objective)
    assert (read_period.median if read_period else None) == period


def test_baselines_have_the_periods_of_the_final_comparison_where_it_has_all() -> None:
    measured = Spread(9.0, 8.5, 9.5)
    baselines = [Baseline(name, measured, measured) for name in ("one core", "all cores")]
    stored = [document_of(baseline) for baseline in baselines]

    def periods(final: Any) -> list[float]:
        compared = compared_baselines({"baselines": stored, "duel": final})
        return [baseline.period_ms.median for baseline in compared]

    again = {"name": "one core", "period_ms": spread(7.0)}
    assert periods(None) == periods({"baselines": [again]}) == periods({}) == [9.0, 9.0]
    assert periods({"baselines": [again, None]}) == [7.0, 9.0]
    assert [b.latency_ms for b in compared_baselines({"baselines": stored})] == [measured] * 2


def test_lost_trials_count_for_nothing_and_pruned_ones_as_failed() -> None:
    states = ["COMPLETE", "FAIL", "PRUNED", "RUNNING", "WAITING"]
    trials = [trial(n, None, state=state) for n, state in enumerate(states)]
    counts = tally([*trials, trial(9, None, state="FAIL", **{LOST: True})])
    assert [t.number for t in counts.complete] == [0]
    assert [t.number for t in counts.failed] == [1, 2]
    assert [t.number for t in counts.running] == [3]
    assert counts.finished == 3
