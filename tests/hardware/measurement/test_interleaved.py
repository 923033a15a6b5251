"""Who works when in an interleaved comparison, for how long, and what becomes of the samples."""

from functools import partial

import pytest

from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget, compare_interleaved, measure_rounds
from autosplit.hardware.measurement.results import Spread
from tests.hardware.fakes import Scripted


@pytest.fixture
def turns():
    """The turns that were taken: who, and with which budget."""
    return []


@pytest.fixture
def contenders(turns):
    """Three contenders; the samples of a turn are its number and a mark of the contender."""

    def work(name, budget):
        turns.append((name, budget))
        return Spread(0.0, 0.0, 0.0, (float(len(turns)), 100.0 * name))

    return [partial(work, n) for n in range(3)]


def test_the_order_is_reversed_after_every_round(contenders, turns):
    rounds = list(measure_rounds(contenders, Budget(), 3))
    assert [name for name, _ in turns] == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert [[s.samples[0] for s in row] for row in rounds] == [[1, 2, 3], [6, 5, 4], [7, 8, 9]]
    assert [[s.samples[1] for s in row] for row in rounds] == [[0, 100, 200]] * 3


@pytest.mark.parametrize(
    ("items", "rounds", "each"), [(100, 5, 20), (16, 5, 4), (2, 1, 4), (40, 8, 5)]
)
def test_a_turn_has_its_share_of_the_budget_and_never_ends_early(
    contenders, turns, items, rounds, each
):
    budget = Budget(seconds=10.0, share=0.5, items=items, latency_items=7)
    list(measure_rounds(contenders, budget, rounds))
    assert {budget for _, budget in turns} == {Budget(10.0 / rounds, 0.0, each, 7)}


def test_a_period_is_that_of_the_samples_of_all_turns(contenders):
    periods = compare_interleaved(contenders, Budget())
    assert sorted(periods[0].samples) == [0] * 6 + [1, 6, 7, 12, 13, 18]
    assert sorted(periods[1].samples) == [2, 5, 8, 11, 14, 17] + [100] * 6
    assert (periods[0].low, periods[0].median) == (0, 0.5)
    assert compare_interleaved([], Budget()) == []


def test_a_single_item_that_takes_longer_than_a_turn_is_its_only_latency():
    slow = Scripted(lambda i: 2000.0)
    budget = Budget(seconds=1.0, latency_items=3)
    assert len(measure.latency(slow, [{}], budget, lambda: slow.now).samples) == 1
