"""Contenders in turns: who works when, for how long, and what is made of the samples."""

import pytest

from autosplit.hardware.measurement.interleaved import duel, turns
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread


@pytest.fixture
def contenders():
    """Three that note when they work and with which budget; the period of a turn is its number."""
    noted = []

    def contender(name):
        def work(budget):
            noted.append((name, budget))
            return Spread(0.0, 0.0, 0.0, (float(len(noted)), 100.0 * name))

        return work

    return [contender(n) for n in range(3)], noted


def test_the_order_turns_round_after_every_round(contenders):
    every, noted = contenders
    met = turns(every, Budget(), 3)
    assert [name for name, _ in noted] == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert [[s.samples[0] for s in found] for found in met] == [[1, 2, 3], [6, 5, 4], [7, 8, 9]]
    assert all(found[n].samples[1] == 100 * n for found in met for n in range(3))


@pytest.mark.parametrize(
    ("items", "rounds", "each"), [(100, 5, 20), (16, 5, 4), (2, 1, 4), (40, 8, 5)]
)
def test_a_turn_has_its_part_of_the_time_and_never_ends_early(contenders, items, rounds, each):
    every, noted = contenders
    turns(every, Budget(seconds=10.0, share=0.5, items=items, latency_items=7), rounds)
    assert {b for _, b in noted} == {Budget(10.0 / rounds, 0.0, each, 7)}


def test_the_interval_is_that_of_the_samples_of_all_turns(contenders):
    every, _ = contenders
    found = duel(every, Budget(), 2)
    assert [sorted(s.samples) for s in found] == [[0, 0, 1, 6], [2, 5, 100, 100], [3, 4, 200, 200]]
    assert (found[0].low, found[0].median, found[0].high) == (0, 0.5, 6)


def test_nobody_competes_with_nobody():
    assert duel([], Budget()) == []
