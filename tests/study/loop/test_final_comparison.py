"""Which trial is the best, and what it is compared with, from what a study stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.planner import CostModel
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.loop.final_comparison import (
    RIVALS,
    _covers,
    best_trial,
    compared_baselines,
    fastest_trial,
    finalists,
)
from autosplit.study.persistence.records import baseline_document
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured


def spread(period: float) -> dict[str, float]:
    return {"median": period, "low": period - 0.5, "high": period + 0.5}


def trial(
    number: int, period: float | None, values: list[float] | None = None, state: str = "COMPLETE"
) -> Any:
    attributes = {} if period is None else {"period_ms": spread(period)}
    return SimpleNamespace(
        number=number,
        state=SimpleNamespace(name=state),
        user_attrs=attributes,
        values=values or [period],
    )


TRIALS = [trial(0, 5.0), trial(1, 3.0), trial(2, 1.0, state="FAIL"), trial(3, 4.0), trial(4, 3.0)]


def duel(measured: int, *entries: tuple[int, float]) -> dict[str, Any]:
    return {
        "duel": {
            "measured": measured,
            "entries": [{"number": n, "period_ms": spread(p)} for n, p in entries],
        }
    }


@pytest.mark.parametrize(
    ("attributes", "number", "period"),
    [
        ({}, 1, 3.0),  # of equal ones the first
        (duel(4, (3, 2.0), (1, 2.5)), 3, 2.0),
        (duel(4, (4, 2.0), (3, 2.0)), 3, 2.0),
        (duel(3, (3, 2.0), (1, 2.5)), 1, 3.0),  # measured before the last trial was
        (duel(4, (2, 0.5), (3, 2.0)), 3, 2.0),  # trial 2 failed
        (duel(4, (7, 2.0)), None, None),
        ({"duel": {"measured": 4, "entries": [{"number": 3}]}}, 1, 3.0),
        ({"duel": "nonsense"}, 1, 3.0),
    ],
)
def test_the_fastest_is_the_winner_of_the_last_comparison(
    attributes: dict[str, Any], number: int | None, period: float | None
) -> None:
    found = fastest_trial(TRIALS, attributes)
    assert (found and (found[0].number, found[1].median)) == (number and (number, period))


def test_without_a_spread_the_value_is_the_period() -> None:
    found = fastest_trial([trial(0, None, [2.0])], {})
    assert found is not None
    assert found[1] == Spread(2.0, 2.0, 2.0)
    assert fastest_trial([trial(0, None, [None])], {}) is None  # type: ignore[list-item]
    assert best_trial([], {}) is None


@pytest.mark.parametrize(
    ("objective", "number"),
    [("throughput", 0), ("memory", 2), (["latency", "throughput"], 2), (["throughput"], 0)],
)
def test_the_best_is_that_of_the_first_objective(objective: Any, number: int) -> None:
    told = [trial(0, 1.0, [9.0, 1.0]), trial(1, 2.0, [4.0, 3.0]), trial(2, 3.0, [4.0, 2.0])]
    found = best_trial(told, {"config": {"objective": objective}})
    assert found is not None
    assert (found[0].number, found[1].median) == (number, [1.0, 2.0, 3.0][number])


def test_baselines_take_the_periods_of_the_last_comparison_where_there_is_one_for_each() -> None:
    one = Spread(9.0, 8.5, 9.5)
    stored = [baseline_document(Baseline(name, one, one)) for name in ("one core", "all cores")]

    def periods(again: Any) -> list[float]:
        return [
            b.period_ms.median for b in compared_baselines({"baselines": stored, "duel": again})
        ]

    assert periods(None) == periods({"baselines": [spread(7.0)]}) == periods({}) == [9.0, 9.0]
    assert periods({"baselines": [spread(7.0), None]}) == [7.0, 9.0]
    assert [b.latency_ms for b in compared_baselines({"baselines": stored})] == [one, one]


def chosen_of(times: tuple[float, ...], slow: int = -1) -> tuple[list[int], list[int]]:
    """The numbers of the finalists among all splits of a chain into two, best first, and all numbers in that order.

    The best split has the highest number. The one at ``slow`` was measured in next to no time.
    """
    costs = CostModel(
        "c", tuple("abcdefgh"), tuple(1 << i - 1 if i else 0 for i in range(8)), (times,)
    )
    space = Space(costs, 2)
    periods = {s: space.evaluate(s).period for s in space.listed}
    splits = sorted(space.listed, key=periods.__getitem__)
    numbers = list(range(len(splits)))[::-1]
    measured = [
        Measured(n, s, space.evaluate(s).loads, 0.5 if n == slow else periods[s])
        for n, s in zip(numbers, splits, strict=True)
    ]
    corrected = corrected_costs(space, ("cores:0", "cores:1"), tuple(measured))
    return [m.number for m in finalists(corrected, measured)], numbers


def test_of_many_that_may_be_the_best_the_likeliest_few_compete() -> None:
    found, numbers = chosen_of((10.0, *(0.0001,) * 7))
    assert found == sorted(found)
    assert len(found) == RIVALS < len(numbers)


def test_a_split_that_is_clearly_worse_does_not_compete() -> None:
    found, numbers = chosen_of((1.0,) * 8)
    assert numbers[0] in found
    assert numbers[-1] not in found


def test_within_three_times_the_noise_of_the_best_a_split_competes() -> None:
    expected = {((0,),): 1.0, ((1,),): 1.29, ((2,),): 1.31}
    measured = [Measured(n, stages, (1.0,), 1.0 + n) for n, stages in enumerate(expected)]
    corrected: Any = SimpleNamespace(noise=0.1, period=expected.__getitem__)
    assert [m.number for m in finalists(corrected, measured)] == [0, 1]


@pytest.mark.parametrize(
    ("stored", "covers"),
    [
        ({"measured": 3, "entries": [{"number": 0}, {"number": 2}]}, True),
        ({"measured": 2, "entries": [{"number": 0}, {"number": 2}]}, False),
        ({"measured": 3, "entries": [{"number": 0}, {"number": 1}]}, False),
        ({"measured": 3}, False),
        (None, False),
    ],
)
def test_a_comparison_counts_for_the_same_rivals_with_nothing_measured_since(
    stored: Any, covers: bool
) -> None:
    rivals = [Measured(n, ((0,), (1,)), (1.0, 1.0), 1.0) for n in (0, 2)]
    assert _covers(stored, rivals, 3) == covers


def test_the_one_measured_fastest_always_competes() -> None:
    for times in ((1.0,) * 8, (10.0, *(0.0001,) * 7)):
        found, _ = chosen_of(times, slow=0)
        assert 0 in found
        assert found == sorted(found)
        assert len(found) <= RIVALS


def test_nothing_measured_has_no_finalists() -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, 1.0),))
    assert finalists(corrected_costs(Space(costs, 2), ("cores:0", "cores:1"), ()), []) == []
