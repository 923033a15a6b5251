"""The verdict of a study: split, replicate, or leave the model whole, with the numbers.

That of a study of deployments names the best one and the best of the other shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autosplit.deployment import Deployment, cores_of
from autosplit.hardware.measurement.baselines import baseline_name
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.units import between, milliseconds

Choice = Literal["split", "replicate", "leave"]


@dataclass(frozen=True)
class Verdict:
    """What to do, and why."""

    choice: Choice
    text: str


@dataclass(frozen=True)
class Contender:
    """Something that was measured in the final comparison: its shape and its period in ms."""

    shape: Choice
    period: Spread


_SIMPLEST_FIRST: Sequence[Choice] = ("leave", "replicate", "split")


def contender_of(baseline: Baseline) -> Contender:
    """A baseline as a contender: the whole model, or replicas of it."""
    return Contender("replicate" if baseline.copies > 1 else "leave", baseline.period_ms)


def advised(contenders: Sequence[Contender]) -> Contender:
    """The simplest contender whose interval overlaps that of the fastest; of equals the fastest.

    The whole model is simpler than replicas, and they are simpler than a split.
    """
    best = min(contenders, key=lambda c: c.period.median)
    ties = [c for c in contenders if c.period.low <= best.period.high]
    return min(ties, key=lambda c: (_SIMPLEST_FIRST.index(c.shape), c.period.median))


def judge(
    stages: int,
    period: Spread,
    baselines: Sequence[Baseline],
    name: str = "best",
    runtimes: Sequence[str] = (),
) -> Verdict:
    """Compare the ``period`` in ms of the best split with the baselines.

    ``name`` is what the split is called, ``runtimes`` are those of its stages. Advised is what
    ``advised`` says of them all. A single stage is no split: where it wins the model is left whole,
    on the device of that stage.
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
    shape: Choice = "split" if stages > 1 else "leave"
    split = Contender(shape, period)
    chosen = advised([split, *map(contender_of, baselines)])
    rival = next((b for b in baselines if b.period_ms is chosen.period), rival_of(baselines))
    if chosen is split and _relation(period, rival.period_ms) == "slower":
        text = f"{winner}: {split_text}, {_speedup(period, rival)} {_whole(rival)}."
        return Verdict(winning_choice, text)
    fastest = min(baselines, key=lambda b: b.period_ms.median)
    advice = "replicate" if chosen.shape == "replicate" else "leave the model whole"
    if _relation(period, fastest.period_ms) == "faster":
        text = f"{split_text}, {_speedup(period, rival)} {_whole(rival)}, {loser_text}"
        return Verdict(chosen.shape, f"Do not split, {advice}: {text}.")
    # No ratio, which says nothing then.
    text = f"a tie, for their intervals overlap; {split_text}, {_whole(rival)}"
    if fastest is not rival:
        text += f", {_whole(fastest)}"
    return Verdict(chosen.shape, f"Do not split, {advice}: {text}.")


def judge_deployment(
    best: Deployment,
    period: Spread,
    baselines: Sequence[Baseline],
    others: Mapping[Deployment, Spread],
    kinds: int = 1,
) -> Verdict:
    """Name the ``best`` deployment with its ``period``, the baselines and the other shape.

    The other shape is a split where the best one is the whole model, and the whole model where it
    is a split; the quickest of that shape among ``others``, all that were measured, counts.
    """
    is_split = len(best.stages) > 1
    text = f"{described(best)}: {described_spread(period)} an item"
    # Its own shape as a baseline is no rival; of several ``kinds`` of cores it had other ones.
    own_name = baseline_name(best) if kinds == 1 else None
    rivals = [b for b in baselines if b.name != own_name]
    if rivals:
        rival = rival_of(rivals)
        relation, time = _relation(period, rival.period_ms), milliseconds(rival.period_ms.median)
        if relation == "a tie":
            text += f", a tie with {rival.name} ({time})"
        else:
            text += f", {_speedup(period, rival)} {rival.name} ({time})"
            text += ", which is faster" if relation == "faster" else ""
    of_other_shape = {d: p for d, p in others.items() if (len(d.stages) > 1) != is_split}
    if of_other_shape:
        other = min(of_other_shape.values(), key=lambda spread: spread.median)
        name = "the whole model" if is_split else "the best split"
        text += f"; {name}, {milliseconds(other.median)}, is {_relation(period, other)}"
    measured = {Contender(_shape(best), period): described(best)}
    measured |= {Contender(_shape(d), p): described(d) for d, p in others.items()}
    measured |= {contender_of(b): b.name for b in rivals}
    chosen = advised(list(measured))
    text = f"{text[0].upper()}{text[1:]}."
    if chosen.shape != _shape(best):
        reason = "faster" if _relation(period, chosen.period) == "faster" else "simpler and a tie"
        text += f" Rather take {measured[chosen]}, {milliseconds(chosen.period.median)}: {reason}."
    return Verdict(chosen.shape, text)


def _shape(deployment: Deployment) -> Choice:
    if len(deployment.stages) > 1:
        return "split"
    return "replicate" if deployment.replicas[0] > 1 else "leave"


def rival_of(baselines: Sequence[Baseline]) -> Baseline:
    """The baseline that a split has to beat: of those that tie with the fastest the simplest."""
    fastest = min(baselines, key=lambda b: b.period_ms.median)
    ties = [b for b in baselines if b.period_ms.low <= fastest.period_ms.high]
    return min(ties, key=lambda b: (b.copies, b.period_ms.median))


def described_spread(spread: Spread) -> str:
    """A median with its interval."""
    return milliseconds(spread.median) + between(spread.low, spread.high)


def described(deployment: Deployment) -> str:
    """The shape of a deployment, its cores and its runtimes."""
    replicas, threads = deployment.replicas, deployment.threads
    if len(replicas) > 1:
        shape = f"{len(replicas)} stages"
        if max(replicas) > 1:
            shape += f" with {_each(replicas)} replicas"
    elif max(replicas) > 1:
        shape = f"{max(replicas)} replicas of the whole model"
    else:
        shape = "the whole model"
    if max(threads) > 1:
        shape += f", {_each(threads)} threads a replica"
    return f"{shape} on {_cores(deployment)}, {' and '.join(dict.fromkeys(deployment.runtimes))}"


def _cores(deployment: Deployment) -> str:
    devices = [device for stage in deployment.stages for device in stage.devices]
    numbers = sorted({number for device in devices for number in cores_of(device)})
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return f"core {first}"
    if len(numbers) > 2 and numbers == list(range(first, last + 1)):
        return f"cores {first} to {last}"
    return f"cores {_listed(numbers)}"


def _each(numbers: Sequence[int]) -> str:
    """The one number that all are, or 1, 2 and 3."""
    return str(numbers[0]) if len(set(numbers)) == 1 else _listed(numbers)


def _listed(numbers: Sequence[int]) -> str:
    """1, 2 and 3."""
    *head, last = map(str, numbers)
    return f"{', '.join(head)} and {last}"


def _whole(baseline: Baseline) -> str:
    return f"the whole model ({baseline.name}) at {described_spread(baseline.period_ms)}"


def _speedup(period: Spread, rival: Baseline) -> str:
    ratio = rival.period_ms.median / period.median if period.median > 0 else float("inf")
    return f"{ratio:.2f} times the throughput of"


def _relation(period: Spread, other: Spread) -> str:
    """What the intervals say of the other one."""
    if other.low > period.high:
        return "slower"
    return "faster" if other.high < period.low else "a tie"
