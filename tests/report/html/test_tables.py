"""The tables of notes and page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autosplit.graph import Op, build
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.record import Study, Trial
from autosplit.report.html import tables
from autosplit.report.html.notes import headline, study_note, trial_note


def flat(value: float) -> Spread:
    return Spread(value, value, value)


def trial(number: int, period: float | None = None, **more: Any) -> Trial:
    spread = None if period is None else flat(period)
    return replace(Trial(number, "complete", period_ms=spread), **more)


WHOLE = Baseline("one core", Spread(20.0, 19.0, 21.0), flat(20.0))
STUDY = Study(
    "s", devices=("a", "b", "c"), op_ms=((1.0, 2.0), (3.0, 4.0)), bound_ms=4.0, baselines=(WHOLE,)
)


def with_trials(*trials: Trial, **more: Any) -> Study:
    return replace(STUDY, trials=trials, **more)


def test_a_trial_with_unused_devices_names_those_it_used() -> None:
    one = trial(
        0,
        4.0,
        stages=((0,), (1,)),
        places=(0, 2),
        stage_ms=(1.0, 4.0),
        live=((("t", 2000), ("u", 1)),),
    )
    rows = tables.stages(with_trials(one), one, tables.plain).rows
    assert [(row[1], row[2], row[3], row[4], row[5]) for row in rows] == [
        ("a", "1", "op 0", "op 0", "1 ms"),
        ("c", "1", "op 1", "op 1", "4 ms"),
    ]
    assert [row[6].count("█") for row in rows] == [5, 20]
    assert [row[7] for row in rows] == ["t (2 kB), u (1 B)", ""]


def test_the_profile_of_a_trial_is_that_of_its_devices() -> None:
    assert STUDY.profile_of(trial(0, stages=((0,), (1,)), places=(0, 1))) == (1.0, 4.0)
    assert STUDY.profile_of(trial(0, stages=((0, 1),), places=(1,))) == (3.0, 4.0)
    assert STUDY.profile_of(trial(0, stages=((0,), (1,)), places=(0, 2))) == ()


def test_a_stage_is_called_by_its_device_where_all_trials_agree() -> None:
    agreed = with_trials(trial(0, stage_ms=(1.0, 2.0)), trial(1, stage_ms=(1.0,)))
    assert [agreed.device_of(n) for n in range(3)] == ["a", "b", ""]
    mixed = with_trials(
        trial(0, stages=((0,), (1,)), places=(0, 1)), trial(1, stages=((0,), (1,)), places=(1, 2))
    )
    assert [mixed.device_of(n) for n in range(2)] == ["", ""]


@pytest.mark.parametrize(
    ("more", "number", "text"),
    [
        ({}, 0, "a result every 8 ms, the first measured"),
        ({}, 1, "25.0 % slower than the best so far (trial 0)"),
        ({}, 3, "60.0 % faster than the best so far (trial 0); the best of the study"),
        ({}, 2, "Trial 2 failed"),
        ({"config": {"objective": "latency"}}, 1, "Trial 1: a result every 10 ms"),
    ],
)
def test_a_trial_in_one_line(more: dict[str, Any], number: int, text: str) -> None:
    every = [trial(0, 8.0), trial(1, 10.0), trial(2, state="fail"), trial(3, 5.0)]
    line = headline(with_trials(*every, **more), every[number])
    assert line.endswith(text)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("running", "is being measured"),
        ("waiting", "waits to be measured"),
        ("pruned", "has no measured period"),
    ],
)
def test_a_trial_that_is_not_finished_says_what_it_is_at(state: str, text: str) -> None:
    assert headline(STUDY, trial(7, 3.0, state=state)) == f"Trial 7 {text}"


def test_the_facts_of_a_trial() -> None:
    one = trial(
        0, 8.0, stage_ms=(2.0, 6.0), latency_ms=flat(9.0), predicted_ms=7.0, max_rel_error=2e-6
    )
    note = trial_note(with_trials(one), one)
    facts = (
        "Latency of one item: 9 ms",
        "Imbalance: the slowest stage takes 1.50 times the mean",
        "Predicted: 7 ms, measured 8 ms",
        "Predicted bound: 4 ms by the profile",
        "Largest error against the reference: 2.0e-06",
    )
    for fact in facts:
        assert f"- {fact}" in note
    assert "- " not in trial_note(replace(STUDY, bound_ms=None), trial(1, 8.0))


def test_the_ways_to_run_it_end_with_the_best_split() -> None:
    table = tables.ways(
        with_trials(trial(0, 8.0), trial(1, 5.0, latency_ms=flat(9.0))), tables.plain
    )
    assert table.rows == (
        ("one core", "20 ms (19 to 21)", "50", "20 ms"),
        ("best split (trial 1)", "5 ms", "200", "9 ms"),
    )
    assert len(tables.ways(STUDY, tables.plain).rows) == 1


def test_trials_tell_where_they_were_cut_or_why_not() -> None:
    every = [
        trial(0, 8.0, cuts=(("p", "q"), ("r",)), stage_ms=(1.0, 2.5), searched_ms=flat(7.0)),
        trial(1, state="fail"),
        trial(2, state="fail", error="no room"),
    ]  # fmt: skip
    table = tables.trials(with_trials(*every, final_comparison={0: flat(8.0)}), tables.plain)
    assert [row[-1] for row in table.rows] == ["p, q | r", "no reason was recorded", "no room"]
    assert [row[-2] for row in table.rows] == ["1, 2.5", "", ""]
    assert [row[table.columns.index("in the search")] for row in table.rows] == ["7 ms", "", ""]


@pytest.mark.parametrize(
    ("devices", "config", "asked"),
    [
        ((), {}, "How is s best split?"),
        (("a", "b"), {"stages": 2}, "How is s best split into 2 stages on a, b?"),
        (("a", "b"), {"stages": "auto"}, "How is s best split into at most 2 stages on a, b?"),
    ],
)
def test_the_question(devices: tuple[str, ...], config: dict[str, Any], asked: str) -> None:
    assert tables.question(replace(STUDY, devices=devices, config=config), tables.plain) == asked


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("a\n b\tc", 9, "a b c"),
        ("a\x1bb\u202ec", 9, "a?b?c"),
        ("12345", 5, "12345"),
        ("123456", 5, "1234…"),
    ],
)
def test_text_is_one_line_that_can_be_seen(text: str, limit: int, shown: str) -> None:
    assert tables.plain(text, limit) == shown


def test_the_study_note_tells_why_it_stopped_and_the_bound() -> None:
    note = study_note(
        replace(STUDY, stopped="time limit", machine="a cpu", days="2030-01-01", version="1")
    )
    assert "Predicted bound of every split: 4 ms" in note
    assert "Stopped: time limit" in note
    assert [line.split(" | ")[0] for line in note.splitlines()[-3:]] == [
        "| machine",
        "| measured",
        "| autosplit",
    ]


NET = build(
    "net",
    [Op(f"op_{c}", "k", (), ("x",), (c,)) for c in "abc"],
    dict.fromkeys("xabc", ((1,), "float32", 4)),
    ["x"],
    ["a", "b", "c"],
)


def test_a_stage_is_told_by_its_first_and_last_op_whatever_their_order() -> None:
    study = with_trials(one := trial(0, stages=((2, 0), (1,))), graph=NET)
    rows = tables.stages(study, one, tables.plain).rows
    assert [row[2:5] for row in rows] == [("2", "op_a", "op_c"), ("1", "op_b", "op_b")]


def test_without_times_there_are_no_columns_for_them() -> None:
    study = with_trials(one := trial(0, stages=((0,),)))
    table = tables.stages(study, one, tables.plain)
    assert "busy" not in table.columns
    assert len(table.columns) == 6
    assert table.right == (0, 2)
    timed = replace(one, stage_ms=(1.0,))
    assert tables.stages(study, timed, tables.plain).right == (0, 2, 5)
    assert {len(row) for row in tables.stages(study, timed, tables.plain).rows} == {8}


def test_bars_are_shares_of_the_period_and_never_empty() -> None:
    one = trial(0, 10.0, stages=((0,), (1,), (2,)), stage_ms=(5.0, 10.0, 0.0))
    assert bars(one) == [10, 20, 1]
    assert bars(replace(one, period_ms=None)) == [10, 20, 1]
    assert bars(replace(one, period_ms=None, stage_ms=(0.0,)))[0] == 1


def bars(measured: Trial) -> list[int]:
    rows = tables.stages(with_trials(measured), measured, tables.plain).rows
    return [row[6].count("█") for row in rows]


def test_a_stage_beyond_the_devices_has_none() -> None:
    one = trial(0, stages=((0,), (1,), (2,), (3,)), stage_ms=(1.0,) * 4)
    assert [r[1] for r in tables.stages(with_trials(one), one, tables.plain).rows] == [
        "a",
        "b",
        "c",
        "",
    ]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (3, "t2 (3 B), t1 (2 B), t0 (1 B)"),
        (4, "t3 (4 B), t2 (3 B), t1 (2 B), t0 (1 B)"),
        (6, "t5 (6 B), t4 (5 B), t3 (4 B), t2 (3 B), 2 more (3 B)"),
    ],
)
def test_the_four_largest_tensors_are_named_and_the_rest_counted(count: int, shown: str) -> None:
    one = trial(0, stages=((0,), (1,)), live=(tuple((f"t{i}", i + 1) for i in range(count)),))
    assert tables.stages(with_trials(one), one, tables.plain).rows[0][-1] == shown


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ("fail", "", "no reason was recorded"),
        ("fail", "crash", "crash"),
        ("complete", "late", "late"),
        ("complete", "", "op_a"),
    ],
)
def test_a_trial_that_failed_says_why_and_others_where_they_were_cut(
    state: str, error: str, text: str
) -> None:
    study = with_trials(trial(0, state=state, error=error, cuts=(("op_a",),)))
    assert tables.trials(study, tables.plain).rows[0][-1] == text


def test_every_name_goes_through_what_makes_it_safe() -> None:
    def name(text: str, limit: int) -> str:
        return f"<{tables.plain(text, limit)}>"

    one = trial(
        0, 4.0, stages=((0,),), stage_ms=(1.0,), live=((("t", 1),),), cuts=(("op_a", "op_b"),)
    )
    study = with_trials(one, trial(1, state="fail", error="why"), graph=NET)
    assert [tables.stages(study, one, name).rows[0][i] for i in (1, 3, 4, 7)] == [
        "<a>",
        "<op_a>",
        "<op_a>",
        "<t> (1 B)",
    ]
    assert [row[-1] for row in tables.trials(study, name).rows] == ["<op_a>, <op_b>", "<why>"]
    assert tables.ways(study, name).rows[0][0] == "<one core>"
    assert tables.question(study, name).startswith(
        "How is <net> best split into 3 stages on <a>, <b>, <c>?"
    )


@pytest.mark.parametrize(
    ("median", "text"), [(2.0, "500"), (0.0003, "3.333e+06"), (0.0, ""), (1000.0, "1")]
)
def test_results_a_second_are_a_thousand_by_the_period(median: float, text: str) -> None:
    assert tables.rate(flat(median)) == text


def test_a_time_that_is_not_known_is_empty() -> None:
    assert tables.spread_text(Spread(float("nan"), 1.0, 2.0)) == ""
    assert tables.spread_text(Spread(2.0, 1.0, 3.0)) == "2 ms (1 to 3)"
