import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.report.documents.record import read
from autosplit.report.html.notes import study_note, trial_note
from autosplit.study.trials.results import best_trial, compared_baselines

optuna.logging.set_verbosity(optuna.logging.ERROR)


def spread(value):
    return {"median": value, "low": value, "high": value}


def study_of(periods, **attributes):
    study = optuna.create_study()
    for period in periods:
        trial = study.ask()
        if period is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        trial.set_user_attr("period_ms", spread(period))
        study.tell(trial, period)
    for key, value in attributes.items():
        study.set_user_attr(key, value)
    return study


def duel(measured, *entries, baselines=()):
    return {
        "measured": measured,
        "entries": [{"number": n, "period_ms": spread(p)} for n, p in entries],
        "baselines": [spread(p) for p in baselines],
    }


def test_the_winner_of_the_final_comparison_is_the_best():
    found = read(study_of([5.0, 4.0, 4.1], duel=duel(3, (1, 4.6), (2, 4.4))))
    assert found.best().number == 2
    assert found.period(found.best()).median == 4.4
    assert found.best(before=2).number == 1


def test_a_comparison_before_the_last_trials_counts_no_more():
    found = read(study_of([5.0, 4.0, 4.1], duel=duel(2, (0, 3.0), (1, 3.5))))
    assert found.best().number == 1
    assert found.period(found.best()).median == 4.0


def test_baselines_count_as_measured_beside_the_best():
    way = {"name": "one core", "period_ms": spread(9.0), "latency_ms": spread(9.0), "copies": 1}
    assert (
        read(study_of([5.0], baselines=[way], duel=duel(1, baselines=[8.0])))
        .baselines[0]
        .period_ms.median
        == 8.0
    )
    assert read(study_of([5.0], baselines=[way], duel=duel(1))).baselines[0].period_ms.median == 9.0


def test_notes_tell_the_final_comparison():
    found = read(study_of([5.0, 4.0, 4.1], duel=duel(3, (1, 4.6), (2, 4.4))))
    assert "| **best split (trial 2)** | 4.4 ms |" in study_note(found)
    assert "In the final comparison, in turns with the other best: 4.4 ms" in trial_note(
        found, found.trials[2]
    )
    assert "final comparison" not in trial_note(found, found.trials[0])


periods = st.none() | st.sampled_from([1.0, 2.0, 3.0, 4.5])
entries = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([1.0, 2.5, 7.0])), max_size=4)
ways = st.lists(st.sampled_from([1.0, 2.0]), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(periods, max_size=6), st.integers(0, 6), entries, ways, ways)
def test_report_and_show_name_the_same_best(measured, count, entered, before, again):
    ended = {n: p for n, p in entered if n < len(measured) and measured[n]}
    held = duel(count, *ended.items(), baselines=again)
    baselines = [
        {"name": f"way {i}", "period_ms": spread(p), "copies": 1} for i, p in enumerate(before)
    ]
    study = study_of(measured, duel=held, baselines=baselines)
    found, best = read(study), best_trial(study.get_trials(), study.user_attrs)
    shown = (best[0].number, best[1].median) if best else None
    assert (lambda t: (t.number, found.period(t).median) if t else None)(found.best()) == shown
    expected = [b.period_ms.median for b in compared_baselines(study.user_attrs)]
    assert [b.period_ms.median for b in found.baselines] == expected


@pytest.mark.parametrize(
    "held", [7, [], "x", {"measured": True}, {"measured": 2, "entries": 5, "baselines": {}}]
)
@pytest.mark.parametrize(
    "entry", [None, {"number": "1"}, {"number": 1, "period_ms": {"median": "fast"}}]
)
def test_a_comparison_that_makes_no_sense_is_left_out(held, entry):
    held = {**held, "entries": [entry]} if isinstance(held, dict) else held
    assert read(study_of([5.0, 4.0], duel=held)).best().number == 1
