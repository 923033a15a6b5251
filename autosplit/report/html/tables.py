"""What notes and the page both tell in tables: the stages of a trial, the ways to run the model, the trials.

Names come from model files and databases; each goes through ``name``, which makes it safe for where it is shown. All other
text in a table is made here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autosplit.hardware.measurement.results import Spread
from autosplit.planner.dominance import front
from autosplit.report.documents.record import Study, Trial
from autosplit.units import between, digits, milliseconds, size

_BAR = 20  # characters of a full bar
Name = Callable[[str, int], str]  # a text and how many of its characters to show


@dataclass(frozen=True)
class Table:
    """Columns, rows of as many cells, and the columns to align right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


def stages(study: Study, trial: Trial, name: Name) -> Table:
    """One row a stage: device, ops, first and last op, what was measured, and the live tensors it sends on."""
    most = max([*trial.stage_ms, *([trial.period_ms.median] if trial.period_ms else []), 1e-9])
    rows = []
    devices = study.devices_of(trial)
    for i in range(max(len(trial.stages), len(trial.stage_ms))):
        ops = trial.stages[i] if i < len(trial.stages) else ()
        busy = trial.stage_ms[i] if i < len(trial.stage_ms) else None
        device = name(devices[i], 200) if i < len(devices) else ""
        time = (
            ("", "")
            if busy is None
            else (milliseconds(busy), "█" * max(1, round(busy / most * _BAR)))
        )
        measured = time if trial.stage_ms else ()
        ends = _ends(study, ops, name)
        rows.append(
            (str(i), device, str(len(ops)) if ops else "", *ends, *measured, _sent(trial, i, name))
        )
    times = ("busy", "of the period") if trial.stage_ms else ()
    columns = ("stage", "device", "ops", "first op", "last op", *times, "live tensors sent on")
    return Table(columns, tuple(rows), (0, 2, 5) if trial.stage_ms else (0, 2))


def ways(study: Study, name: Name, best: Callable[[str], str] = str) -> Table:
    """One row a way to run the model: those without splitting, and the best split, its name through ``best``."""
    rows = [
        (name(b.name, 200), spread_text(b.period_ms), rate(b.period_ms), spread_text(b.latency_ms))
        for b in study.baselines
    ]
    trial = study.best()
    if trial and (period := study.period(trial)):
        latency = spread_text(trial.latency_ms) if trial.latency_ms else ""
        rows.append(
            (best(f"best split (trial {trial.number})"), spread_text(period), rate(period), latency)
        )
    return Table(
        ("way to run it", "time between two results", "results a second", "latency"),
        tuple(rows),
        (2,),
    )


def trials(study: Study, name: Name) -> Table:
    """One row a trial: what was measured and where it was cut, or why it failed."""
    compared = ("final comparison",) if study.final_comparison else ()
    several = ("Pareto front",) if len(study.objectives) > 1 else ()
    members, rows = _front(study), []
    for t in study.trials:
        busy = ", ".join(map(digits, t.stage_ms))
        period = spread_text(t.period_ms) if t.period_ms else ""
        latency = spread_text(t.latency_ms) if t.latency_ms else ""
        again = (
            (
                spread_text(study.final_comparison[t.number])
                if t.number in study.final_comparison
                else "",
            )
            if study.final_comparison
            else ()
        )
        among = ("yes" if t.number in members else "",) if several else ()
        rows.append(
            (str(t.number), t.state, period, *again, latency, *among, busy, _detail(t, name))
        )
    columns = (
        "trial",
        "state",
        "time between two results",
        *compared,
        "latency",
        *several,
        "stages, ms",
        "cut after, or why not",
    )
    return Table(columns, tuple(rows), (0,))


def question(study: Study, name: Name) -> str:
    """What the study asked."""
    net = name(study.graph.name if study.graph else study.name, 200)
    if not study.devices:
        return f"How is {net} best split?"
    where = ", ".join(name(d, 100) for d in study.devices)
    most = "at most " if study.config.get("stages") == "auto" else ""
    return f"How is {net} best split into {most}{len(study.devices)} stages on {where}?"


def plain(text: str, limit: int = 200) -> str:
    """Text on one line, of at most ``limit`` characters, with nothing in it that cannot be seen."""
    text = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def spread_text(spread: Spread) -> str:
    """A time with its interval; empty where it is not known."""
    if math.isnan(spread.median):
        return ""
    return milliseconds(spread.median) + between(spread.low, spread.high)


def rate(period: Spread) -> str:
    """Results a second."""
    return f"{1000 / period.median:.4g}" if period.median else ""


def _front(study: Study) -> frozenset[int]:
    """The numbers of the trials that no other beats in all objectives."""
    told = [
        t for t in study.trials if t.state == "complete" and len(t.values) == len(study.objectives)
    ]
    return frozenset(told[place].number for place in front([t.values for t in told]))


def _detail(trial: Trial, name: Name) -> str:
    if trial.error or trial.state == "fail":
        return name(trial.error, 2000) or "no reason was recorded"
    return " | ".join(", ".join(name(op, 80) for op in cut) for cut in trial.cuts)


def _ends(study: Study, ops: Sequence[int], name: Name) -> tuple[str, str]:
    if not ops:
        return "", ""
    first, last = min(ops), max(ops)
    if study.graph is None:
        return f"op {first}", f"op {last}"
    return name(study.graph.ops[first].name, 60), name(study.graph.ops[last].name, 60)


def _sent(trial: Trial, stage: int, name: Name) -> str:
    if stage >= len(trial.live):
        return ""
    tensors = sorted(trial.live[stage], key=lambda pair: -pair[1])
    shown = ", ".join(f"{name(tensor, 60)} ({size(count)})" for tensor, count in tensors[:4])
    more = (
        f", {len(tensors) - 4} more ({size(sum(c for _, c in tensors[4:]))})"
        if len(tensors) > 4
        else ""
    )
    return shown + more
