"""The verdict of a study: split, replicate, or leave the model whole, with the numbers."""

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
    stages: int,
    period: Spread,
    baselines: Sequence[Baseline],
    name: str = "best",
    runtimes: Sequence[str] = (),
) -> Verdict:
    """Compare the ``period`` in ms of the best split with the baselines.

    ``name`` is what the split is called, ``runtimes`` are those of its stages. A split must win:
    where intervals overlap it ties, and the simpler way is advised, the whole model before
    replicas. A single stage is no split: where it wins the model is left whole, on the device of
    that stage.
    """
    within = f" ({', '.join(runtimes)})" if runtimes else ""
    took = f"takes {described_spread(period)} an item"
    split_text = f"the {name} split into {stages} stages{within} {took}"
    winner, loser_text = "Split", "so splitting loses"
    winning_choice: Choice = "split"
    if stages == 1:
        split_text = f"as one stage{within} it {took}"
        winner, loser_text = "Do not split, leave the model whole", "which is faster"
        winning_choice = "leave"
    if not baselines:
        text = f"{winner}: {split_text}; nothing was measured to compare it with."
        return Verdict(winning_choice, text)
    rival = rival_of(baselines)
    ratio = rival.period_ms.median / period.median if period.median > 0 else float("inf")
    against = f"{ratio:.2f} times the throughput of {_described(rival)}"
    against += f" at {described_spread(rival.period_ms)}"
    if period.high < rival.period_ms.low:
        return Verdict(winning_choice, f"{winner}: {split_text}, {against}.")
    choice: Choice = "replicate" if rival.copies > 1 else "leave"
    advice = "replicate" if rival.copies > 1 else "leave the model whole"
    if period.low > rival.period_ms.high:
        return Verdict(choice, f"Do not split, {advice}: {split_text}, {against}, {loser_text}.")
    # Before the ratio, which says nothing then.
    tie = "a tie, for their intervals overlap"
    return Verdict(choice, f"Do not split, {advice}: {tie}; {split_text}, {against}.")


def rival_of(baselines: Sequence[Baseline]) -> Baseline:
    """The baseline that a split has to beat: of those that tie with the fastest the simplest."""
    fastest = min(baselines, key=lambda b: b.period_ms.median)
    ties = [b for b in baselines if b.period_ms.low <= fastest.period_ms.high]
    return min(ties, key=lambda b: (b.copies, b.period_ms.median))


def _described(baseline: Baseline) -> str:
    return f"the whole model ({baseline.name})"


def described_spread(spread: Spread) -> str:
    """A median with its interval."""
    return milliseconds(spread.median) + between(spread.low, spread.high)
