"""Which splits compete in the final comparison, and whether it has to be held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autosplit.planner import CostModel
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.loop.final_comparison import covers, finalists
from autosplit.study.loop.time_left import FINALISTS
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured


def chosen_of(times: tuple[float, ...], slow: int = -1) -> tuple[list[int], list[int]]:
    """The finalists among all splits of a chain into two, and all splits, best first, by number.

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
    corrected = corrected_costs(space, tuple(measured))
    return [m.number for m in finalists(corrected, measured)], numbers


def test_of_many_that_may_be_the_best_the_likeliest_few_compete() -> None:
    finalist_numbers, numbers = chosen_of((10.0, *(0.0001,) * 7))
    assert finalist_numbers == sorted(finalist_numbers)
    assert len(finalist_numbers) == FINALISTS < len(numbers)


def test_a_split_that_is_clearly_worse_does_not_compete() -> None:
    finalist_numbers, numbers = chosen_of((1.0,) * 8)
    assert numbers[0] in finalist_numbers
    assert numbers[-1] not in finalist_numbers


def test_within_three_times_the_noise_of_the_best_a_split_competes() -> None:
    expected = {((0,),): 1.0, ((1,),): 1.29, ((2,),): 1.31}
    measured = [Measured(n, stages, (1.0,), 1.0 + n) for n, stages in enumerate(expected)]
    corrected: Any = SimpleNamespace(noise=0.1, period=lambda stages, _: expected[stages])
    assert [m.number for m in finalists(corrected, measured)] == [0, 1]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"measured": 3, "entries": [{"number": 0}, {"number": 2}]}, True),
        ({"measured": 2, "entries": [{"number": 0}, {"number": 2}]}, False),
        ({"measured": 3, "entries": [{"number": 0}, {"number": 1}]}, False),
        ({"measured": 3}, False),
        (None, False),
    ],
)
def test_a_comparison_counts_for_the_same_rivals_with_nothing_measured_since(
    stored: Any, expected: bool
) -> None:
    rivals = [Measured(n, ((0,), (1,)), (1.0, 1.0), 1.0) for n in (0, 2)]
    assert covers(stored, rivals, 3) is expected


def test_the_one_measured_fastest_always_competes() -> None:
    for times in ((1.0,) * 8, (10.0, *(0.0001,) * 7)):
        finalist_numbers, _ = chosen_of(times, slow=0)
        assert 0 in finalist_numbers
        assert finalist_numbers == sorted(finalist_numbers)
        assert len(finalist_numbers) <= FINALISTS


def test_nothing_measured_has_no_finalists() -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, 1.0),))
    assert finalists(corrected_costs(Space(costs, 2), ()), []) == []
