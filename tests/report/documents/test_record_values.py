"""A record out of attributes: days, devices, stages that are none, tensors and baselines that are half there."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from autosplit.hardware.measurement.results import Spread
from autosplit.report.documents import record
from autosplit.report.documents.record import Study, Trial, read

optuna.logging.set_verbosity(optuna.logging.ERROR)


def started(*days: int | None) -> list[Any]:
    return [SimpleNamespace(datetime_start=d and datetime(2030, 1, d, tzinfo=UTC)) for d in days]


@pytest.mark.parametrize(
    ("days", "told"),
    [
        ((), ""),
        ((None,), ""),
        ((5, 5, None), "2030-01-05"),
        ((7, 5), "2030-01-05 to 2030-01-07"),
        ((5, 6, 7), "2030-01-05 to 2030-01-07"),
    ],
)
def test_the_days_are_the_first_and_the_last(days: tuple[int | None, ...], told: str) -> None:
    assert record._days(started(*days)) == told


def with_stages(stages: Any, **more: Any) -> Trial:
    study = optuna.create_study()
    trial = study.ask()
    trial.set_user_attr("stages", stages)
    for key, value in more.items():
        trial.set_user_attr(key, value)
    study.tell(trial, 1.0)
    return read(study).trials[0]


@pytest.mark.parametrize(
    "stages",
    [[[0, True]], [[-1]], [[0.0]], [["0"]], [[0], 1], [[None]], "01", {"0": [0]}, [[0]] * 257],
)
def test_stages_that_are_none_are_left_out(stages: Any) -> None:
    assert with_stages(stages).stages == ()
    assert with_stages(stages).places == ()


def test_empty_stages_leave_their_device_unused() -> None:
    found = with_stages([[], [0, 1], [], [2]], stage_ms=[0.0, 2.0, 0.0, 3.0])
    assert (found.stages, found.places, found.stage_ms) == (((0, 1), (2,)), (1, 3), (2.0, 3.0))
    assert with_stages([[], [0], [1]], stage_ms=[1.0, 2.0]).stage_ms == (1.0, 2.0)


def test_the_most_stages_there_can_be_are_read() -> None:
    assert len(with_stages([[i] for i in range(256)]).stages) == 256


@pytest.mark.parametrize(
    ("cut", "found"),
    [
        ([["t", 4]], (("t", 4),)),
        ([["t", 4.0], ["u", 0]], (("t", 4), ("u", 0))),
        ([["t"], ["t", 4, 5], "tu", 7, None], ()),
        ([["t", -1], ["u", "4"], ["v", True]], ()),
        ([[7, 4]], (("", 4),)),
        ("t", ()),
    ],
)
def test_live_tensors_have_a_name_and_a_size(cut: Any, found: Any) -> None:
    assert with_stages([[0], [1]], live=[cut]).live == (found,)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (
            {
                "name": "one core",
                "period_ms": {"median": 2.0},
                "latency_ms": {"median": 3.0},
                "copies": 2,
            },
            (2.0, 3.0, 2),
        ),
        (
            {"name": "one core", "period_ms": {"median": 2.0}, "latency_ms": {"median": 3.0}},
            (2.0, 3.0, 1),
        ),
        ({"name": "one core", "period_ms": {"median": 2.0}, "copies": 0}, (2.0, None, 1)),
        ({"name": "", "period_ms": {"median": 2.0}}, None),
        ({"period_ms": {"median": 2.0}}, None),
        ({"name": "one core"}, None),
    ],
)
def test_a_baseline_needs_a_name_and_a_period(entry: Any, found: Any) -> None:
    made = record._baseline(entry)
    if found is None or made is None:
        assert (made, found) == (None, None)
        return
    latency = made.latency_ms.median
    assert (made.period_ms.median, None if latency != latency else latency, made.copies) == found


def test_the_first_value_is_a_period_where_throughput_comes_first() -> None:
    assert with_stages([[0]]).period_ms == Spread(1.0, 1.0, 1.0)
    assert with_stages([[0]], period_ms={"median": 5.0}).period_ms == Spread(5.0, 5.0, 5.0)


def plain_study(*trials: Trial, **more: Any) -> Study:
    known = {
        "graph": None,
        "op_ms": (),
        "bound_ms": None,
        "baselines": (),
        "choice": "",
        "verdict": "",
        "stopped": "",
    }
    given = (
        {"name": "s", "devices": ("a", "b"), "identity": {}, "config": {}, "trials": trials}
        | known
        | more
    )
    return Study(**given)


def timed(number: int, period: float | None, state: str = "complete", **more: Any) -> Trial:
    spread = None if period is None else Spread(period, period, period)
    return Trial(number, state, (), (), spread, None, (), None, None, "", **more)


def test_only_complete_trials_with_a_period_can_be_best() -> None:
    every = (
        timed(0, 1.0, "fail"),
        timed(1, None),
        timed(2, 3.0),
        timed(3, 2.0),
        timed(4, 2.0),
        timed(5, 0.5, "running"),
    )
    study = plain_study(*every)
    assert study.best() is every[3]
    assert study.best(before=3) is every[2]
    assert study.best(before=2) is None


def test_another_first_objective_decides_by_its_values() -> None:
    every = timed(0, 1.0, values=(9.0, 1.0)), timed(1, 5.0, values=(4.0, 5.0)), timed(2, 0.5)
    assert plain_study(*every, config={"objective": ["latency", "throughput"]}).best() is every[1]
    assert plain_study(every[2], config={"objective": "latency"}).best() is None


def test_what_is_known_of_the_machine_comes_first_and_what_is_not_is_left_out() -> None:
    study = plain_study(machine="m", days="", version="1.0", identity={"target": "llvm"})
    assert list(study.measured_on.items()) == [
        ("machine", "m"),
        ("autosplit", "1.0"),
        ("target", "llvm"),
    ]
