"""A study as the report reads it: plain values, checked since a database may hold anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import optuna

from autosplit.cuts import is_downset
from autosplit.cuts.stages import cuts_of
from autosplit.deployment import cores_of, resources_of
from autosplit.errors import AutosplitError
from autosplit.graph import FusedGraph, Op, build, op_title
from autosplit.hardware.measurement.results import Baseline
from autosplit.lowering.states import match_states
from autosplit.study.record import MOST, Figures, StudyRecord, TrialRecord, record_of, study_record
from autosplit.study.results import best_number, error_of, state_of
from autosplit.units import bound_text, counted


@dataclass(frozen=True)
class Trial:
    """One candidate: its record from the search, and ``final``, its figures when compared.

    ``state`` is complete, fail, interrupted, running, pruned or waiting; a trial that failed or was
    interrupted has an ``error``. ``values`` are Optuna's objective values. Invalid parts of the
    record are left out, so that stages are a legal split.
    """

    number: int
    state: str
    record: TrialRecord = field(default_factory=TrialRecord)
    final: Figures | None = None
    values: tuple[float, ...] = ()
    error: str = ""

    @property
    def figures(self) -> Figures:
        """The measurements that count: those of the final comparison if the trial was in it."""
        return self.final or self.record

    @property
    def busy_ms(self) -> tuple[float, ...]:
        """The time of each stage per item, divided by the number of its replicas."""
        replicas = self.record.replicas or (1,) * len(self.figures.stage_ms)
        return tuple(t / r for t, r in zip(self.figures.stage_ms, replicas, strict=False))


@dataclass(frozen=True)
class Study:
    """The question of a study, its machine and its result.

    ``cut_periods`` has each legal cut, a bitset of ops, with the predicted period of the best split
    that has it. ``days`` are the days of the measurements.
    """

    name: str
    record: StudyRecord = field(default_factory=StudyRecord)
    graph: FusedGraph | None = None
    trials: tuple[Trial, ...] = ()
    cut_periods: tuple[tuple[int, float], ...] = ()
    days: str = ""

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines, with the figures of the final comparison where it measured them."""
        return self.record.compared_baselines()

    @property
    def rival(self) -> Baseline | None:
        """The fastest baseline; of those in the final comparison, where it measured any."""
        compared = {b.name for b in self.record.final_comparison.baselines if b}
        rivals = [b for b in self.baselines if b.name in compared or not compared]
        return min(rivals, key=lambda b: b.period_ms.median, default=None)

    def best(self) -> Trial | None:
        """The best trial by the objective; for throughput the winner of the final comparison."""
        complete = {t.number: t for t in self.trials if t.state == "complete"}
        figures = {number: t.figures for number, t in complete.items()}
        best = best_number(self.record, figures, {n: t.values for n, t in complete.items()})
        return None if best is None else complete[best]

    def advised(self) -> Trial | Baseline | None:
        """What the verdict advises; the best trial where there is none yet."""
        verdict = self.record.verdict
        if not verdict.text:
            return self.best()
        ways: list[Trial | Baseline] = [t for t in self.trials if t.number == verdict.trial]
        ways += [b for b in self.baselines if b.name == verdict.baseline]
        return ways[0] if ways else None

    def kind_of(self, trial: Trial) -> str:
        """What a trial is: a split of stages without replicas, or else a configuration."""
        if len(trial.record.stages) > 1 and max(trial.record.replicas, default=1) == 1:
            return "split"
        return f"configuration{f' on {cores}' if (cores := self.cores) else ''}"

    @property
    def cores(self) -> str:
        """The cores that deployments are searched on; empty for a study of splits."""
        cores = self.record.config.get("cores")
        if isinstance(cores, int):
            return counted(cores, "core")
        text = " and ".join(map(str, cores)) if isinstance(cores, list) else str(cores or "")
        return f"cores {text}" if text else ""

    @property
    def bound(self) -> str:
        """The predicted bound in words; empty without one."""
        best = self.best()
        period = best.figures.period_ms.median if best and best.figures.period_ms else None
        bound_ms = self.record.bound_ms
        return "" if bound_ms is None else bound_text(bound_ms, period)

    def devices_of(self, trial: Trial) -> list[str]:
        """The devices of each stage of a trial as text; empty if the database has none."""
        record = trial.record
        if max((*record.replicas, *record.threads), default=1) > 1:
            shapes = zip(record.replicas, record.threads, strict=True)
            return [f"{counted(r, 'replica')} with {counted(w, 'thread')}" for r, w in shapes]
        return [" and ".join(of_stage) for of_stage in record.devices]

    def title_of(self, op: str) -> str:
        """The display name of an op."""
        known = self.graph is not None and op in self.graph.index
        return op_title(self.graph.ops[self.graph.index[op]]) if self.graph and known else op

    def stage_names(self, trial: Trial) -> list[str]:
        """The device and the runtime of each stage of a trial."""
        pairs = zip_longest(self.devices_of(trial), trial.record.runtimes)
        return [", ".join(filter(None, pair)) for pair in pairs]

    def profile_of(self, trial: Trial) -> tuple[float, ...]:
        """The profiled time of each op on the device of its stage; empty if it is not known."""
        record, times = trial.record, dict[int, float]()
        profiles = [p for p in self.record.profile if p.batch == record.batch]
        try:
            for number, ops in enumerate(record.stages):
                rows = [p for p in profiles if p.runtime == record.runtimes[number]]
                place = _place(record.devices[number][0], self.record.devices)
                times |= {op: rows[place].op_ms[op] for op in ops}
            return tuple(times[op] for op in range(len(times)))
        # A foreign database may name more ops or devices than its profile has, or invalid cores.
        except (IndexError, KeyError, ValueError):
            return ()


def read(study: optuna.Study) -> Study:
    """The record of an Optuna study; invalid attributes are left out."""
    record = study_record(study.user_attrs)
    graph = stored_graph(record.graph)
    trials = sorted(study.get_trials(deepcopy=False), key=lambda t: t.number)
    return Study(
        name=study.study_name,
        record=record,
        graph=graph,
        trials=tuple(_trial(t, graph, record) for t in trials),
        cut_periods=_legal(graph, record.cut_periods),
        days=_days(trials),
    )


def _trial(trial: optuna.trial.FrozenTrial, graph: FusedGraph | None, study: StudyRecord) -> Trial:
    record = record_of(trial)
    stages = tuple(ops for ops in record.stages if ops)
    # Drawings and tables rely on a legal split; without one a trial is shown by its times.
    try:
        if graph:
            cuts_of(graph, stages)
    except AutosplitError:
        stages = ()
    has_shape = len(record.replicas) == len(record.threads) == len(stages) > 0
    is_placed = len(record.devices) == len(stages) and all(record.devices)
    checked: dict[str, object] = {"stages": stages}
    checked |= {} if has_shape else {"replicas": (), "threads": ()}
    checked |= {} if is_placed else {"devices": ()}
    record = record.model_copy(update=checked)
    return Trial(
        number=trial.number,
        state=state_of(trial),
        record=record,
        final=study.final_comparison.figures.get(trial.number),
        values=tuple(trial.values or ()),
        error=error_of(trial) or study.final_comparison.error_of(trial.number),
    )


def _place(device: str, profiled: Sequence[str]) -> int:
    """The index of the profile of a device, or of the nearest one before it with as many cores."""
    if device in profiled:
        return profiled.index(device)
    cores = cores_of(device)
    alike = [i for i, name in enumerate(profiled) if len(cores_of(name)) == len(cores)]
    before = [i for i in alike if cores_of(profiled[i])[:1] <= cores[:1]]
    return (before or alike or [len(profiled)])[-1]


def resources(device: str) -> tuple[str, ...]:
    """The resources of a device that a database names; the name itself if it is invalid."""
    try:
        return resources_of(device) or (device,)
    except ValueError:  # invalid core numbers
        return (device,)


def _legal(
    graph: FusedGraph | None, periods: Sequence[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    """Those of some cuts that are legal, sorted by the number of ops before them."""
    legal = [pair for pair in periods if graph and is_downset(graph, pair[0])]
    return tuple(sorted(legal, key=lambda pair: (pair[0].bit_count(), pair)))


def _days(trials: Sequence[optuna.trial.FrozenTrial]) -> str:
    """The day of the measurements, or the first and the last."""
    days = sorted({t.datetime_start.date().isoformat() for t in trials if t.datetime_start})
    # Measurements of one day have one date.
    return " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))


def states_of(graph: FusedGraph | None, stages: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Each state with the stage that keeps it; the stage is None without a split."""
    if graph is None:
        return []
    stage_of = {op: number for number, ops in enumerate(stages) for op in ops}
    rows = []
    for state, ops in zip(graph.states, graph.ops_of_states, strict=True):
        # All ops of a state share a stage, so the first one tells which.
        place = {"shape": list(graph.tensors[state.input].shape), "stage": stage_of.get(ops[0])}
        rows.append({"input": state.input, "output": state.output, **place})
    return rows


def stored_graph(document: Any) -> FusedGraph | None:
    """The graph in a stored document; None if the document is invalid."""
    try:
        ops = []
        for op in document["ops"]:
            sources, inputs, outputs = (tuple(op[k]) for k in ("sources", "inputs", "outputs"))
            ops.append(Op(op["name"], op["kernel"], sources, inputs, outputs))
        shapes = {
            name: (tuple(map(int, t["shape"])), str(t["dtype"]), min(max(0, int(t["bytes"])), MOST))
            for name, t in document["tensors"].items()
        }
        graph = build(str(document["name"]), ops, shapes, document["inputs"], document["outputs"])
        states = [(s["input"], s["output"], s["tensor"]) for s in document["states"]]
        tensors = [(output, tensor) for _, output, tensor in states]
        pairs = {name: output for name, output, _ in states}
        graph = replace(graph, states=match_states(graph, tensors, pairs))
    except (AutosplitError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    names = [*graph.inputs, *graph.outputs, *pairs.values()]
    for op in ops:
        names += [op.name, *op.sources, *op.inputs, *op.outputs]
    return graph if ops and all(isinstance(name, str) for name in names) else None
