"""The document of ``show`` and its tables, which the report shows too.

Measurements of the search and those of the final comparison are in separate columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from autosplit.cuts import last_ops, members
from autosplit.cuts.stages import live
from autosplit.graph import op_title
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.record import Study, Trial, states_of
from autosplit.report.documents.table import Table
from autosplit.study.documents import document_of
from autosplit.study.storage import redact_password
from autosplit.units import between, digits, size

_MAX_TENSORS = 4  # named for a stage
_OPTIONAL = ("note", "final period ms", "predicted ms", "memory")  # columns
_FIGURES = {"period_ms", "latency_ms", "stage_ms", "disturbed"}
_STORED = _FIGURES | {
    "cuts", "runtimes", "replicas", "threads", "batch", "predicted_ms", "memory_bytes", "devices",
}  # fmt: skip


def written(study: Study, url: str) -> dict[str, Any]:
    """The record of a study as the document of ``show -f json``; its keys are stable."""
    record, config, best = study.record, study.record.config, study.best()
    cores = {} if config.get("cores") is None else {"cores": config["cores"]}
    name = study.graph.name if study.graph else None
    loads = {name: asdict(test) for name, test in record.final_comparison.loads.items()}
    return {
        "study": {
            **cores,
            "name": study.name,
            "storage": redact_password(url),
            "model": config.get("model") or config.get("zoo") or name,
            "stages": config.get("stages"),
            "devices": list(record.devices) or None,
            "objective": config.get("objective"),
            "sampler": record.sampler.get("name"),
            "stopped": record.stopped or None,
        },
        "trials": [_trial(trial) for trial in study.trials],
        "best": _best(study, best) if best else None,
        "baselines": [document_of(b) for b in study.baselines],
        "bound_ms": record.bound_ms,
        "verdict": record.verdict.model_dump(exclude_defaults=True) or None,
        **({"loads": loads} if loads else {}),
    }


def _trial(trial: Trial) -> dict[str, Any]:
    """A trial as the search measured it; ``final`` has the figures of the final comparison."""
    return {
        "number": trial.number,
        "state": trial.state.upper(),
        **document_of(trial.record, include=_STORED),
        "error": trial.error or None,
        "final": document_of(trial.final, include=_FIGURES) if trial.final else None,
    }


def _best(study: Study, best: Trial) -> dict[str, Any]:
    """The best trial with the ops of its stages, its states and the tensors on its cuts."""
    graph = study.graph
    stages = [[graph.names[i] if graph else str(i) for i in ops] for ops in best.record.stages]
    states = states_of(study.graph, best.record.stages)
    known = {"states": states} if states else {}
    return {**_trial(best), "live": best.record.live, "stages": stages, **known}


def shown(study: Study, export: str | None = None) -> Iterator[str | Table]:
    """What ``show`` and ``run`` print of a study; ``export``: the folder of its export, if any."""
    yield from study.record.verdict.text.splitlines()
    tables = [trial_table(study)]
    if best := study.best():
        tables.append(cut_table(study, best))
        if states := state_table(study, best):
            tables.append(states)
    if study.baselines:
        tables.append(way_table(study))
    for table in tables:
        yield table if table.rows else table.title  # an empty table needs no header
        yield ""
    batches = sorted({profile.batch for profile in study.record.profile})
    if batches[1:] or (batches and study.record.config.get("batch") == "auto"):
        yield f"batches tried: {', '.join(map(str, batches))}"
    if study.bound:
        yield f"predicted bound {study.bound}"
    if export:
        yield f"exported to {export}"


def trial_table(study: Study) -> Table:
    """One row per trial; columns without information are left out."""
    trials, advised = study.trials, study.advised()
    columns: dict[str, list[object]] = {
        "trial": [trial.number for trial in trials],
        "state": [trial.state for trial in trials],
        "note": [_note(trial, trial is advised) for trial in trials],
        "period ms": [spread_text(trial.record.period_ms) for trial in trials],
        "final period ms": [spread_text(t.final.period_ms if t.final else None) for t in trials],
        "cut after, or error": [_cuts_or_error(study, trial) for trial in trials],
        "replicas x threads": [", ".join(_shapes(trial)) for trial in trials],
        "latency ms": [spread_text(trial.record.latency_ms) for trial in trials],
        "stages ms": [_times(trial.record.stage_ms) for trial in trials],
        "predicted ms": [_optional(digits, trial.record.predicted_ms) for trial in trials],
        "runtimes": [", ".join(trial.record.runtimes) for trial in trials],
        "memory": [_optional(size, trial.record.memory_bytes) for trial in trials],
    }
    # A column that is empty, or the same in all trials, has no information.
    if {trial.state for trial in trials} == {"complete"}:
        del columns["state"]
    if len({name for trial in trials for name in trial.record.runtimes}) < 2:
        del columns["runtimes"]
    if all(_is_plain(trial) for trial in trials):
        del columns["replicas x threads"]
    for title in _OPTIONAL:
        if not any(columns[title]):
            del columns[title]
    failed = [n for n, t in enumerate(trials) if t.error and t.state != "interrupted"]
    marks = dict.fromkeys(failed, "fail")
    marks |= {number: "best" for number, trial in enumerate(trials) if trial is advised}
    return Table(_title(study), tuple(columns), tuple(zip(*columns.values(), strict=True)), marks)


def _note(trial: Trial, is_advised: bool) -> str:
    return " ".join(["*"] * is_advised + ["disturbed"] * bool(trial.figures.disturbed))


def _title(study: Study) -> str:
    config, record = study.record.config, study.record
    stages = config.get("stages")
    if stages == "auto":
        stages = f"up to {len(record.devices)}"
    shape = f"{stages} stages" if stages else ""
    if study.cores:
        shape = f"deployments on {study.cores}"
    model = config.get("model") or config.get("zoo") or (study.graph.name if study.graph else "")
    known = ", ".join(filter(None, (str(model), shape))) or "nothing is stored yet"
    stopped = f"; {record.stopped}" if record.stopped else ""
    return f"study {study.name}: {known}{stopped}"


def cut_table(study: Study, best: Trial) -> Table:
    """One row per cut of a trial, with the tensors that cross it."""
    title = f"best {study.kind_of(best)}: trial {best.number}"
    title += f", {spread_text(best.figures.period_ms)} ms an item"
    title += ", in the final comparison" if best.final else ""
    cuts, lives = best.record.cuts, best.record.live
    rows = []
    for number, ops in enumerate(cuts):
        after, sent = ", ".join(map(study.title_of, ops)), _tensor_text(lives[number : number + 1])
        rows.append((number + 1, after, sent))
    return Table(title, ("cut", "after", "live tensors"), tuple(rows))


def stage_table(study: Study, trial: Trial) -> Table:
    """One row per stage: device, number of ops, last op, busy time, and the tensors it sends."""
    record, graph = trial.record, study.graph
    period = trial.figures.period_ms
    slowest = (period.median if period else 0.0) or max([*trial.busy_ms, 1e-9])
    rows = []
    for i, (device, ops) in enumerate(zip(study.devices_of(trial), record.stages, strict=False)):
        last = op_title(graph.ops[ops[-1]]) if graph else f"op {ops[-1]}"
        runtime = record.runtimes[i] if i < len(record.runtimes) else ""
        busy, share = "", ""
        if i < len(trial.busy_ms):
            busy, share = digits(trial.busy_ms[i]), f"{min(trial.busy_ms[i] / slowest, 1):.0%}"
        sent = _tensor_text(record.live[i : i + 1])
        rows.append((i, device, runtime, len(ops), last, busy, share, sent))
    ends = ("last op", "busy ms an item", "of the period", "live tensors sent on")
    return Table("stages", ("stage", "device", "runtime", "ops", *ends), tuple(rows))


def state_table(study: Study, trial: Trial) -> Table | None:
    """One row per state, with the stage that keeps it; None without states."""
    states, rows = states_of(study.graph, trial.record.stages), []
    for state in states:
        rows.append(tuple("" if cell is None else cell for cell in state.values()))
    return Table("states, which a stream keeps", tuple(states[0]), tuple(rows)) if rows else None


def way_table(study: Study) -> Table:
    """One row per way to run the model: each baseline, and the best trial."""
    best, advised = study.best(), study.advised()
    final = {b.name: b.period_ms for b in study.record.final_comparison.baselines if b}
    first = {b.name: b.period_ms for b in study.record.baselines if b}
    rows: list[tuple[object, ...]] = []
    marks: dict[int, str] = {}
    ways: list[tuple[str, Trial | Baseline]] = [(b.name, b) for b in study.baselines]
    if best and best.figures.period_ms:
        name = f"best {study.kind_of(best)} (trial {best.number})"
        first[name], ways = best.record.period_ms, [*ways, (name, best)]
        final |= {name: best.final.period_ms} if best.final else {}
    for name, way in ways:
        figures = way.figures if isinstance(way, Trial) else way
        periods = (spread_text(of_way.get(name)) for of_way in (first, final))
        numbers = spread_text(figures.latency_ms), rate(figures.period_ms)
        marks |= {len(rows): "best"} if way == advised else {}
        rows.append((name, *periods, *numbers, "*" if way == advised else ""))
    columns = ("baseline", "period ms", "final period ms", "latency ms", "items/s", "note")
    return Table("baselines (* is advised)", columns, rows, marks)


def legal_cuts(study: Study) -> Table:
    """One row per legal cut: last ops, number of ops before it, bytes sent, and best period."""
    graph, rows = study.graph, []
    for cut, period in study.cut_periods if graph else ():
        assert graph
        after = ", ".join(op_title(graph.ops[i]) for i in members(last_ops(graph, cut)))
        sent = sum(graph.tensors[t].bytes for t in live(graph, cut))
        rows.append((after, cut.bit_count(), size(sent), digits(period)))
    columns = ("cut after", "ops before it", "live tensors", "predicted ms")
    periods = [period for _, period in study.cut_periods]
    marks = {periods.index(min(periods)): "best"} if rows else {}
    return Table("legal cuts", columns, tuple(rows), marks)


def question(study: Study) -> str:
    """The question of the study."""
    net = study.graph.name if study.graph else study.name
    if study.cores:
        return f"How does {net} run fastest on {study.cores}?"
    devices = study.record.devices
    if not devices:
        return f"How is {net} best split?"
    count = f"{len(devices)} stages"
    if study.record.config.get("stages") == "auto":
        count = f"at most {count}"
    return f"How is {net} best split into {count} on {', '.join(devices)}?"


def spread_text(spread: Spread | None) -> str:
    """A time in ms with its interval; empty if it is not known."""
    if spread is None or math.isnan(spread.median):
        return ""
    return digits(spread.median) + between(spread.low, spread.high)


def rate(period: Spread | None) -> str:
    """Items a second."""
    return digits(1000 / period.median) if period and period.median else ""


def _tensor_text(of_cut: tuple[tuple[tuple[str, int], ...], ...]) -> str:
    """The largest tensors on a cut with their sizes, and the sum of the others."""
    tensors = sorted(of_cut[0], key=lambda pair: -pair[1]) if of_cut else []
    texts = [f"{name} ({size(count)})" for name, count in tensors[:_MAX_TENSORS]]
    others = [count for _, count in tensors[_MAX_TENSORS:]]
    if others:
        texts.append(f"{len(others)} more ({size(sum(others))})")
    return ", ".join(texts)


def _shapes(trial: Trial) -> list[str]:
    pairs = zip(trial.record.replicas, trial.record.threads, strict=False)
    return [f"{replicas} x {threads}" for replicas, threads in pairs]


def _is_plain(trial: Trial) -> bool:
    """Whether each of several stages of a trial has one replica with one thread."""
    shapes = _shapes(trial)
    return len(shapes) != 1 and all(shape == "1 x 1" for shape in shapes)


def _cuts_or_error(study: Study, trial: Trial) -> str:
    cuts = [", ".join(map(study.title_of, ops)) for ops in trial.record.cuts]
    return trial.error or " | ".join(cuts)


def _times(times: Iterable[float]) -> str:
    return ", ".join(digits(time) if time else "-" for time in times)


def _optional(text: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else text(value)
