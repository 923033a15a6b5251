"""The verdict of a study of deployments: what the best one is, and how it compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosplit.deployment import Deployment, cores_of
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.study.loop.verdict import Choice, Verdict, described_spread, rival_of
from autosplit.units import counted, milliseconds


def judge_deployment(
    best: Deployment,
    period: Spread,
    baselines: Sequence[Baseline],
    others: Mapping[Deployment, Spread],
) -> Verdict:
    """Name the ``best`` deployment with its ``period``, the baselines and the other shape.

    The other shape is a split where the best one is the whole model, and the whole model where it
    is a split; the quickest of that shape among ``others``, all that were measured, counts.
    """
    is_split = len(best.stages) > 1
    choice: Choice = "leave"
    if is_split:
        choice = "split"
    elif best.replicas[0] > 1:
        choice = "replicate"
    text = f"{described(best)}: {described_spread(period)} an item"
    # Its own shape as a baseline is no rival.
    rivals = [b for b in baselines if b.name != baseline_name(best)]
    if rivals:
        rival = rival_of(rivals)
        ratio = rival.period_ms.median / period.median if period.median > 0 else float("inf")
        text += f", {ratio:.2f} times the throughput of {rival.name} ({_short(rival.period_ms)})"
        if rival.period_ms.low <= period.high:
            text += f", which is {_relation(period, rival.period_ms)}"
    of_other_shape = {d: p for d, p in others.items() if (len(d.stages) > 1) != is_split}
    if of_other_shape:
        other = min(of_other_shape.values(), key=lambda spread: spread.median)
        name = "the whole model" if is_split else "the best split"
        text += f"; {name}, {_short(other)}, is {_relation(period, other)}"
    return Verdict(choice, f"{text[0].upper()}{text[1:]}.")


def described(deployment: Deployment) -> str:
    """The shape of a deployment, its cores and its runtimes."""
    replicas, threads = deployment.replicas, deployment.threads
    if len(replicas) > 1:
        shape = f"{len(replicas)} stages"
        if max(replicas) > 1:
            shape += f" with {_each(replicas)} replicas"
    elif replicas[0] > 1:
        shape = f"{replicas[0]} replicas of the whole model"
    else:
        shape = "the whole model"
    if max(threads) > 1:
        shape += f", {_each(threads)} threads a replica"
    return f"{shape} on {_cores(deployment)}, {' and '.join(dict.fromkeys(deployment.runtimes))}"


def baseline_name(deployment: Deployment) -> str | None:
    """The name of the baseline that the deployment is; None for any other shape."""
    if len(deployment.stages) > 1:
        return None
    (stage,), (replicas,), (threads,) = deployment.stages, deployment.replicas, deployment.threads
    if replicas == 1:
        return f"{stage.runtime}, {counted(threads, 'thread')}"
    return f"{stage.runtime}, {replicas} replicas" if threads == 1 else None


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


def _relation(period: Spread, other: Spread) -> str:
    """What the intervals say of the other one."""
    if other.low > period.high:
        return "slower"
    return "faster" if other.high < period.low else "a tie"


def _short(spread: Spread) -> str:
    return milliseconds(spread.median)
