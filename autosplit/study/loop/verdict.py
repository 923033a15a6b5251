"""The verdict of a study: split the model, replicate it, or leave it whole, in three lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from autosplit.deployment import Deployment, cores_of, threads_of
from autosplit.hardware.measurement.results import Spread
from autosplit.units import between, counted, digits, milliseconds

Choice = Literal["split", "replicate", "leave"]
# The simplest first.
_CALLED: dict[str, str] = {
    "leave": "the whole model",
    "replicate": "the best replicas",
    "split": "the best split",
}
_ORDER = list(_CALLED)
_UNITS = {"goodput": "slow", "cores": "many"}


@dataclass(frozen=True)
class Contender:
    """A trial of a study, by its number, or a baseline, by its name.

    ``time`` is what counts: its period, or its latency where that is the objective. ``deployment``
    is None for a baseline that no export can repeat. ``disturbances``: why not to trust the time.
    """

    deployment: Deployment | None
    time: Spread
    disturbances: tuple[str, ...] = ()
    trial: int | None = None
    baseline: str = ""

    @property
    def name(self) -> str:
        """The name under which its tests under load are stored."""
        return self.baseline if self.trial is None else str(self.trial)

    @property
    def choice(self) -> Choice:
        """Split for several stages, replicate for replicas of one stage, else leave."""
        replicas = self.deployment.replicas if self.deployment else (1,)
        if len(replicas) > 1:
            return "split"
        return "replicate" if max(replicas) > 1 else "leave"

    @property
    def complexity(self) -> tuple[int, int, int]:
        """A sort key, simplest first: the rank of the choice, the number of runtimes, the batch."""
        runtimes = self.deployment.runtimes if self.deployment else ()
        batch = self.deployment.batch if self.deployment else 1
        return _ORDER.index(self.choice), len(set(runtimes)), batch


class Verdict(NamedTuple):
    """Which contender to take, and why."""

    winner: Contender
    text: str


def judge(contenders: Sequence[Contender], objective: str = "throughput") -> Verdict:
    """The simplest of the contenders that tie with the fastest; of equally simple ones the fastest.

    Their times are what the objective minimises. A contender that cannot be exported never wins,
    but it is named if it is faster. At least one contender must have a deployment.
    """
    able = sorted((c for c in contenders if c.deployment), key=lambda c: c.time.median)
    ties = [c for c in able if c.time.low <= able[0].time.high]
    winner = min(ties, key=lambda c: (c.complexity, c.time.median))
    fastest = {c.choice: c for c in reversed(able)}
    rivals = {_CALLED[c]: fastest[c] for c in _ORDER if c in fastest and c != winner.choice}
    for c in contenders:
        if not c.deployment and c.time.median < winner.time.median:
            rivals[f"{c.baseline}, which this study does not export,"] = c
    figures = [_figure(winner.time, objective)]
    figures += [f"{name} {_against(c.time, winner.time, objective)}" for name, c in rivals.items()]
    if not rivals:
        figures.append("no other shape was measured")
    reasons = [r for c in (winner, able[0], *rivals.values()) for r in c.disturbances]
    lines = _advice(winner), "; ".join(figures), _certainty(reasons, objective)
    return Verdict(winner, "\n".join(f"{line}." for line in lines))


def _advice(winner: Contender) -> str:
    assert winner.deployment
    runs = [_run(stage.runtime, stage.devices) for stage in winner.deployment.stages]
    batch = winner.deployment.batch
    together = f", batch {batch}" if batch > 1 else ""
    if winner.choice == "leave":
        return f"Leave the model whole: {runs[0]}{together}"
    if winner.choice == "replicate":
        return f"Replicate the whole model: {runs[0]}{together}"
    each = f"each {runs[0]}" if len(set(runs)) == 1 else "; ".join(runs)
    return f"Split into {len(runs)} stages (trial {winner.trial}): {each}{together}"


def _run(runtime: str, devices: Sequence[str]) -> str:
    """How a stage runs: ``tvm on cuda:0``, ``2 x onnxruntime, 1 thread each``."""
    copies = f"{len(devices)} x {runtime}" if len(devices) > 1 else runtime
    threads = {threads_of(device) for device in devices if cores_of(device)}
    if len(threads) != 1 or not all(map(cores_of, devices)):
        return f"{copies} on {' and '.join(devices)}"
    return f"{copies}, {counted(threads.pop(), 'thread')}{' each' if len(devices) > 1 else ''}"


def _figure(time: Spread, objective: str) -> str:
    if objective in _UNITS:
        return f"{_shown(time, objective)} within the limit"
    unit = "latency" if objective == "latency" else "an item"
    return f"{_shown(time, objective)}{between(time.low, time.high)} {unit}"


def _shown(time: Spread, objective: str) -> str:
    if objective == "goodput":
        return f"{digits(1e3 / time.median)} items/s"
    if objective == "cores":
        return counted(round(time.median), "core")
    return milliseconds(time.median)


def _against(time: Spread, winner: Spread, objective: str) -> str:
    """A time and how it compares to that of the winner; a tie has no ratio."""
    is_tie = time.low <= winner.high and winner.low <= time.high
    ratio = time.median / winner.median if winner.median > 0 else float("inf")
    compared = "a tie" if is_tie else f"{ratio:.2f} times as {_UNITS.get(objective, 'long')}"
    return f"{_shown(time, objective)} ({compared})"


def _certainty(reasons: Sequence[str], objective: str) -> str:
    if reasons:
        text = "; ".join(dict.fromkeys(reasons))
        # Another run repeats a final comparison, but no trial.
        again = "start a new study with --force" if objective == "latency" else "run again"
        return f"No reliable answer; {again} when the machine is idle: {text}"
    if objective == "throughput":
        return "Sure: measured interleaved, on a calm machine"
    return "Less sure: measured one after another, on a calm machine"
