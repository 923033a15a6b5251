"""Several contenders measured in turns, A B B A, so that a drift of the machine meets all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread, spread

Contender = Callable[[Budget], Spread]
"""Works for a budget and returns its period in ms, with the samples."""

ROUNDS = 5
_MIN_ITEMS = 4  # of a turn


def compare_interleaved(contenders: Sequence[Contender], budget: Budget) -> list[Spread]:
    """The period of each contender in ms, over the samples of all rounds.

    A contender works for about ``budget.seconds`` in all.
    """
    rounds = measure_rounds(contenders, budget, ROUNDS)
    periods = []
    for position in range(len(contenders)):
        samples: list[float] = []
        for turns in rounds:
            samples += turns[position].samples
        periods.append(spread(samples))
    return periods


def measure_rounds(
    contenders: Sequence[Contender], budget: Budget, rounds: int
) -> list[list[Spread]]:
    """The periods of all contenders in ms, by round. The order is reversed after each round.

    Periods of one round were measured within moments and can be compared in pairs.
    """
    items = max(_MIN_ITEMS, budget.items // rounds)
    turn = replace(budget, seconds=budget.seconds / rounds, items=items, share=0.0)
    order = list(range(len(contenders)))
    periods = []
    for _ in range(rounds):
        by_contender = {i: contenders[i](turn) for i in order}
        periods.append([by_contender[i] for i in range(len(contenders))])
        order.reverse()
    return periods
