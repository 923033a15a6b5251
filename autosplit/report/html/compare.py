"""Two trials side by side: what moved from stage to stage, and what it did to the times."""

from __future__ import annotations

import html
from collections.abc import Iterator

from autosplit.report.documents.record import Study, Trial
from autosplit.report.html.page import balance_figure, graph_figure, graph_of, section, table
from autosplit.report.html.tables import Name, Table, plain
from autosplit.units import digits, milliseconds, size

_MAX_NAMES = 12  # of ops that moved between two stages


def sections(study: Study, first: Trial, second: Trial) -> Iterator[str]:
    """The parts of a page about two trials of a study."""
    caption = (
        f"Trial {first.number} and trial {second.number}; the change is from one to the other."
    )
    yield section("What it did", table(effects(study, first, second), caption))
    if first.stages and second.stages:
        caption = "Ops that are in another stage now, with their profiled times where they are now."
        yield section("What moved", table(moves(study, first, second, plain), caption))
    pictures, balances = "", ""
    for trial in (first, second):
        name = f"Trial {trial.number}"
        if trial.error:
            outcome = "failed" if trial.is_failed else "was interrupted"
            pictures += f"<p>{name} {outcome}: {html.escape(plain(trial.error, 2000))}</p>"
        if trial.stages and study.graph:
            view = graph_of(study, trial, f"box{trial.number}")
            pictures += graph_figure(view, f"{name}, coloured by stage.")
        if trial.stage_ms:
            balances += balance_figure(study, trial)
    yield section("The splits", f'{pictures}<div class="charts">{balances}</div>')


def effects(study: Study, first: Trial, second: Trial) -> Table:
    """One row a quantity that either trial has, with its change in percent."""
    rows = []
    before, after = _quantities(study, first), _quantities(study, second)
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        text = size if name in _BYTES else milliseconds
        change = f"{(new / old - 1) * 100:+.1f} %" if old and new is not None else ""
        rows.append((name, *("" if v is None else text(v) for v in (old, new)), change))
    columns = ("", f"trial {first.number}", f"trial {second.number}", "change")
    return Table(columns, tuple(rows), (1, 2, 3))


def moves(study: Study, first: Trial, second: Trial, name: Name) -> Table:
    """One row a pair of stages between which ops moved."""
    old, new = (_stage_of(trial) for trial in (first, second))
    times = study.profile_of(second)
    ops_between: dict[tuple[int, int], list[int]] = {}
    for op in sorted(old.keys() & new.keys()):
        if old[op] != new[op]:
            ops_between.setdefault((old[op], new[op]), []).append(op)
    rows = []
    for (source, target), ops in sorted(ops_between.items()):
        names = [name(study.graph.ops[i].name if study.graph else f"op {i}", 60) for i in ops]
        more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
        took = f"{digits(sum(times[i] for i in ops))} ms" if times else ""
        listed = ", ".join([*names[:_MAX_NAMES], *more])
        rows.append((f"{source} to {target}", str(len(ops)), took, listed))
    if not rows:
        rows = [("none", "0", "", "both trials have the same stages")]
    return Table(("stages", "ops", "work", "which"), tuple(rows), (1, 2))


_BYTES = ("live tensors", "largest stage")


def _quantities(study: Study, trial: Trial) -> dict[str, float]:
    values: dict[str, float | None] = {}
    period = trial.period_ms
    values["period"] = period.median if period else None
    values["predicted period"] = trial.predicted_ms
    values["latency"] = trial.latency_ms.median if trial.latency_ms else None
    values |= {f"stage {n}, busy": busy for n, busy in enumerate(trial.stage_ms)}
    if trial.live:
        values["live tensors"] = sum(count for cut in trial.live for _, count in cut)
    values["largest stage"] = trial.memory_bytes
    return {name: value for name, value in values.items() if value is not None}


def _stage_of(trial: Trial) -> dict[int, int]:
    """The stage of each op."""
    return {op: stage for stage, ops in enumerate(trial.stages) for op in ops}
