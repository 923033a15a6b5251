"""Several contenders measured in turns, A B A B, so that a machine that drifts meets them all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.measurement.statistics import spread

Contender = Callable[[Budget], Spread]
"""Works for a budget and returns its period in ms with its samples."""

ROUNDS = 5


def duel(contenders: Sequence[Contender], budget: Budget, rounds: int = ROUNDS) -> list[Spread]:
    """The period of each contender in ms, from ``rounds`` turns each, in an order that turns round after every round.

    A contender works for about ``budget.seconds`` in all. The interval is that of the median over the turns' samples.
    """
    met = turns(contenders, budget, rounds)
    return [spread([s for turn in own for s in turn.samples]) for own in zip(*met, strict=True)]


def turns(contenders: Sequence[Contender], budget: Budget, rounds: int) -> list[list[Spread]]:
    """The periods of all contenders in ms, round by round: what was measured within moments can be compared in pairs."""
    turn = replace(
        budget, seconds=budget.seconds / rounds, items=max(4, budget.items // rounds), share=0.0
    )
    met = []
    order = list(range(len(contenders)))
    for _ in range(rounds):
        found = {i: contenders[i](turn) for i in order}
        met.append([found[i] for i in range(len(contenders))])
        order.reverse()
    return met
