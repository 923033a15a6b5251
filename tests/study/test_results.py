from types import SimpleNamespace

import pytest

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.record import read
from autosplit.study.documents import document_of
from autosplit.study.record import COMPARISON, RECORD, study_record
from autosplit.study.results import tally
from tests.study.conftest import frozen


def spread(period):
    return {"median": period, "low": period - 0.5, "high": period + 0.5}


def trial(number, period, value=None, state="COMPLETE", **record):
    if period is not None:
        record["period_ms"] = spread(period)
    return frozen(number, state, (value or period or 1.0) if state == "COMPLETE" else None, record)


TRIALS = [trial(0, 5.0), trial(1, 3.0), trial(2, 1.0, state="FAIL"), trial(3, 4.0), trial(4, 3.0)]


def best(trials, **attributes):
    calls = {"user_attrs": attributes, "get_trials": lambda deepcopy: trials}
    chosen = read(SimpleNamespace(study_name="s", **calls)).best()
    period = chosen and chosen.figures.period_ms
    return (chosen.number, period.median) if chosen and period else None


def test_the_best_is_the_first_of_the_fastest_that_did_not_fail():
    assert best(TRIALS) == (1, 3.0)
    assert best([]) is best([trial(0, None)]) is None


def test_the_winner_of_the_final_comparison_is_the_best_until_another_trial_is_measured():
    entries = [{"number": n, "period_ms": spread(p)} for n, p in ((1, 3.5), (3, 3.2))]
    for measured, expected in ((4, (3, 3.2)), (3, (4, 3.0))):
        compared = {"measured": measured, "entries": entries}
        assert best(TRIALS, final_comparison=compared) == expected


@pytest.mark.parametrize(
    ("config", "number"),
    [({"objective": "throughput"}, 0), ({"objective": "latency"}, 1), ({"objective": "memory"}, 0),
     ({"objective": ["latency"]}, 0), ({"limits": {"latency_ms": 7.0}}, 1),
     ({"limits": {"latency_ms": 1.0}}, 0)],
)  # fmt: skip
def test_the_best_is_that_of_the_objective_within_a_limit_that_any_keeps(config, number):
    rows = (1.0, 9.0, 9.0), (2.0, 4.0, 6.0), (3.0, 4.0, 8.0)
    trials = [trial(n, *row, latency_ms=spread(ms)) for n, (*row, ms) in enumerate(rows)]
    assert best(trials, **{RECORD: {"config": config}}) == (number, rows[number][0])


def test_baselines_have_the_periods_of_the_final_comparison_where_it_has_them():
    measured = Spread(9.0, 8.5, 9.5)
    baselines = [Baseline(name, measured, measured) for name in ("one core", "all cores")]
    stored = {"baselines": [document_of(baseline) for baseline in baselines]}

    def periods(final):
        compared = study_record({RECORD: stored, COMPARISON: final}).compared_baselines()
        return [baseline.period_ms.median for baseline in compared]

    again = {"name": "one core", "period_ms": spread(7.0)}
    assert periods(None) == periods({}) == [9.0, 9.0]
    assert periods({"baselines": [again]}) == periods({"baselines": [again, None]}) == [7.0, 9.0]


def test_lost_trials_count_for_nothing_and_pruned_ones_as_failed():
    states = ["COMPLETE", "FAIL", "PRUNED", "RUNNING", "WAITING"]
    trials = [trial(n, None, state=state, error="x") for n, state in enumerate(states)]
    counts = tally([*trials, trial(9, None, state="FAIL", error="interrupted", lost=True)])
    of_states = counts.complete, counts.failed, counts.running, counts.waiting
    assert [[t.number for t in trials] for trials in of_states] == [[0], [1, 2], [3], [4]]
    assert counts.finished == 3
