"""The verdict of a study: to split, to replicate or to leave the model whole, in one sentence with its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.units import between, milliseconds

Choice = Literal["split", "replicate", "leave"]


@dataclass(frozen=True)
class Verdict:
    """What to do, and why."""

    choice: Choice
    text: str


def judge(
    stages: int, period: Spread, baselines: Sequence[Baseline], word: str = "best"
) -> Verdict:
    """Compare the best split's ``period`` (ms) with the baselines; ``word`` is what the split is called.

    Splitting must win: where intervals overlap it ties, and the simpler way is advised, the whole model before
    replicas. A single stage is no split: where it wins the model is left whole, on the device of that stage.
    """
    ours = f"the {word} split into {stages} stages takes {_text(period)} an item"
    won, loses = "Split", "so splitting loses"
    choice: Choice = "split"
    if stages == 1:
        ours = f"as one stage it takes {_text(period)} an item"
        won, loses, choice = "Do not split, leave the model whole", "which is faster", "leave"
    if not baselines:
        return Verdict(choice, f"{won}: {ours}; nothing was measured to compare it with.")
    rival = rival_of(baselines)
    name = _described(rival)
    ratio = rival.period_ms.median / period.median if period.median > 0 else float("inf")
    against = f"{ratio:.2f} times the throughput of {name} at {_text(rival.period_ms)}"
    if period.high < rival.period_ms.low:
        return Verdict(choice, f"{won}: {ours}, {against}.")
    choice = "replicate" if rival.copies > 1 else "leave"
    advice = (
        "Do not split, replicate"
        if choice == "replicate"
        else "Do not split, leave the model whole"
    )
    if period.low > rival.period_ms.high:
        return Verdict(choice, f"{advice}: {ours}, {against}, {loses}.")
    return Verdict(choice, f"{advice}: {ours}, {against}; that is a tie, their intervals overlap.")


def rival_of(baselines: Sequence[Baseline]) -> Baseline:
    """What a split has to beat: the fastest baseline, or among those that tie with it the one of fewest copies."""
    fastest = min(baselines, key=lambda b: b.period_ms.median)
    ties = [b for b in baselines if b.period_ms.low <= fastest.period_ms.high]
    return min(ties, key=lambda b: (b.copies, b.period_ms.median))


def _described(baseline: Baseline) -> str:
    if baseline.copies > 1:
        return f"{baseline.copies} replicas"
    return f"the whole model on {baseline.name}"


def _text(spread: Spread) -> str:
    return milliseconds(spread.median) + between(spread.low, spread.high)
