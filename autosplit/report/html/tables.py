"""The tables of notes and page: the stages of a trial, the ways to run the model, the trials.

Names come from model files and databases. Each goes through ``name``, which makes it safe for where
it is shown. All other text in a table is made here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autosplit.cuts import last_ops, members
from autosplit.cuts.stages import live
from autosplit.hardware.measurement.results import Spread
from autosplit.report.documents.record import Study, Trial, states_of
from autosplit.units import between, digits, milliseconds, size

_BAR = 20  # characters of a full bar
_MAX_TENSORS = 4  # named for a stage
Name = Callable[[str, int], str]  # a text and how many of its characters to show


@dataclass(frozen=True)
class Table:
    """Columns, rows of as many cells, and the columns to align right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


def stages(study: Study, trial: Trial, name: Name, bars: bool = True) -> Table:
    """One row a stage: device, ops, first and last op, busy time, and the tensors it sends on.

    ``bars``: with the share of the period as a bar of characters.
    """
    is_measured = bool(trial.stage_ms)
    full = max([*trial.stage_ms, trial.period_ms.median if trial.period_ms else 0.0, 1e-9])
    rows = []
    for i, device in enumerate(study.devices_of(trial)):
        ops = trial.stages[i] if i < len(trial.stages) else ()
        row = [str(i), name(device, 200), str(len(ops)) if ops else "", *_ends(study, ops, name)]
        if is_measured and i < len(trial.stage_ms):
            busy = trial.stage_ms[i]
            row += [milliseconds(busy), "█" * max(1, round(busy / full * _BAR))][: 1 + bars]
        elif is_measured:
            row += ["", ""][: 1 + bars]
        rows.append((*row, _sent(trial, i, name)))
    times = ("busy", "of the period")[: 1 + bars] if is_measured else ()
    columns = ("stage", "device", "ops", "first op", "last op", *times, "live tensors sent on")
    return Table(columns, tuple(rows), (0, 2, 5) if is_measured else (0, 2))


def states(study: Study, trial: Trial, name: Name) -> Table:
    """One row a state, with the stage that keeps it."""
    rows = []
    for source, output, shape, stage in states_of(study.graph, trial.stages):
        dimensions = " x ".join(map(str, shape))
        place = "" if stage is None else str(stage)
        rows.append((name(source, 60), name(output, 60), dimensions, place))
    return Table(("state", "from the output", "shape", "stage"), tuple(rows), (3,))


def ways(study: Study, name: Name, best: Callable[[str], str] = str) -> Table:
    """One row a way to run the model: baselines and the best split, its name through ``best``."""
    rows = [
        (name(b.name, 200), spread_text(b.period_ms), rate(b.period_ms), spread_text(b.latency_ms))
        for b in study.baselines
    ]
    trial = study.best()
    period = trial.period_ms if trial else None
    if trial and period:
        title = best(f"best split (trial {trial.number})")
        rows.append((title, spread_text(period), rate(period), spread_text(trial.latency_ms)))
    columns = ("way to run it", "time between two results", "results a second", "latency")
    return Table(columns, tuple(rows), (2,))


def trials(study: Study, name: Name) -> Table:
    """One row a trial: its measurements and its cuts, or why it failed."""
    has_final = bool(study.final_comparison)
    rows = []
    for trial in study.trials:
        row = [str(trial.number), trial.state, spread_text(trial.period_ms)]
        if has_final:
            row.append(spread_text(trial.searched_ms))
        row.append(spread_text(trial.latency_ms))
        rows.append((*row, ", ".join(map(digits, trial.stage_ms)), _detail(trial, name)))
    columns = ["trial", "state", "time between two results"]
    columns += ["in the search"] * has_final + ["latency"]
    return Table((*columns, "stages, ms", "cut after, or why not"), tuple(rows), (0,))


def legal_cuts(study: Study, name: Name) -> Table:
    """One row a legal cut: its last ops, what is before it, what is sent, and its best period."""
    graph, rows = study.graph, []
    if graph is not None:
        for cut, period in study.cut_periods:
            last = (graph.ops[i].name for i in members(last_ops(graph, cut)))
            sent = sum(graph.tensors[t].bytes for t in live(graph, cut))
            after = ", ".join(name(op, 80) for op in last)
            rows.append((after, str(cut.bit_count()), size(sent), milliseconds(period)))
    columns = ("cut after", "ops before it", "live tensors", "predicted period")
    return Table(columns, tuple(rows), (1, 2, 3))


def question(study: Study, name: Name) -> str:
    """The question of the study."""
    net = name(study.graph.name if study.graph else study.name, 200)
    if not study.devices:
        return f"How is {net} best split?"
    devices = ", ".join(name(d, 100) for d in study.devices)
    count = f"{len(study.devices)} stages"
    if study.config.get("stages") == "auto":
        count = f"at most {count}"
    return f"How is {net} best split into {count} on {devices}?"


def plain(text: str, limit: int = 200) -> str:
    """Text on one line of at most ``limit`` characters, with nothing in it that cannot be seen."""
    text = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def spread_text(spread: Spread | None) -> str:
    """A time with its interval; empty if it is not known."""
    if spread is None or math.isnan(spread.median):
        return ""
    return milliseconds(spread.median) + between(spread.low, spread.high)


def rate(period: Spread) -> str:
    """Results a second."""
    return f"{1000 / period.median:.4g}" if period.median else ""


def _detail(trial: Trial, name: Name) -> str:
    if trial.error or trial.state == "fail":
        return name(trial.error, 2000) or "no reason was recorded"
    return " | ".join(", ".join(name(op, 80) for op in cut) for cut in trial.cuts)


def _ends(study: Study, ops: tuple[int, ...], name: Name) -> tuple[str, str]:
    """The first and the last op of a stage."""
    if not ops:
        return "", ""
    first, last = min(ops), max(ops)
    if study.graph is None:
        return f"op {first}", f"op {last}"
    return name(study.graph.ops[first].name, 60), name(study.graph.ops[last].name, 60)


def _sent(trial: Trial, stage: int, name: Name) -> str:
    """The largest tensors that a stage sends on, and the sum of the others."""
    if stage >= len(trial.live):
        return ""
    tensors = sorted(trial.live[stage], key=lambda pair: -pair[1])
    texts = [f"{name(tensor, 60)} ({size(count)})" for tensor, count in tensors[:_MAX_TENSORS]]
    others = [count for _, count in tensors[_MAX_TENSORS:]]
    if others:
        texts.append(f"{len(others)} more ({size(sum(others))})")
    return ", ".join(texts)
