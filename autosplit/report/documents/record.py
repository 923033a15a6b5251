"""A study as the report reads it: plain values, whatever a database holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autosplit.cuts import is_downset
from autosplit.cuts.stages import cuts_of
from autosplit.deployment import cores_of
from autosplit.errors import AutosplitError
from autosplit.graph import FusedGraph, Op, build
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.lowering.states import match_states
from autosplit.study.config.sections import objective_of
from autosplit.study.record import FinalComparison, record_of, study_record
from autosplit.study.results import best_number, error_of, state_of
from autosplit.units import bound_text, counted

if TYPE_CHECKING:
    import optuna

_CORES = re.compile(r"cores:\d{1,4}(,\d{1,4}){0,1023}", re.ASCII)


@dataclass(frozen=True)
class Trial:
    """One candidate: its split and its measurements, times in ms.

    They are those of the final comparison where it took part in one; then ``searched_ms`` is the
    period that was measured before, in the search.
    ``state`` is complete, fail, interrupted, running, pruned or waiting. ``stages`` are the op
    indices of the stages, ``places`` for each the index of its device, or of the profiled one with
    as many cores. ``cuts`` are the last ops before each cut, ``live`` the names and bytes of the
    tensors on it. ``replicas``, ``threads``, ``runtimes`` and ``devices`` are those of each stage,
    whose time is that of one replica. ``values`` are those that Optuna has; ``memory_bytes`` is the
    memory of the largest stage.
    """

    number: int
    state: str
    stages: tuple[tuple[int, ...], ...] = ()
    places: tuple[int, ...] = ()
    cuts: tuple[tuple[str, ...], ...] = ()
    live: tuple[tuple[tuple[str, int], ...], ...] = ()
    period_ms: Spread | None = None
    searched_ms: Spread | None = None
    latency_ms: Spread | None = None
    stage_ms: tuple[float, ...] = ()
    replicas: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    devices: tuple[tuple[str, ...], ...] = ()
    batch: int = 1
    predicted_ms: float | None = None
    memory_bytes: float | None = None
    max_rel_error: float | None = None
    values: tuple[float, ...] = ()
    error: str = ""
    runtimes: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether it was measured in vain."""
        return self.state == "fail" or bool(self.error and self.state != "interrupted")


@dataclass(frozen=True)
class Study:
    """The question of a study, its machine and its result.

    ``op_ms`` is the profile on each device, for one of ``op_runtimes`` after the other, at
    one of ``op_batches``.
    ``cut_periods`` has each legal cut, a bitset of ops, with the predicted period of the best split
    that has it. ``final_comparison`` holds the periods of the trials that took part in it; it is
    empty if trials were measured since. ``version`` is autosplit's, ``days`` the days of the
    measurements.
    """

    name: str
    graph: FusedGraph | None = None
    devices: tuple[str, ...] = ()
    op_ms: tuple[tuple[float, ...], ...] = ()
    op_runtimes: tuple[str, ...] = ()
    op_batches: tuple[int, ...] = ()
    bound_ms: float | None = None
    cut_periods: tuple[tuple[int, float], ...] = ()
    baselines: tuple[Baseline, ...] = ()
    verdict: str = ""
    stopped: str = ""
    identity: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    final_comparison: Mapping[int, Spread] = field(default_factory=dict)
    version: str = ""
    machine: str = ""
    days: str = ""

    @property
    def measured_on(self) -> Mapping[str, str]:
        """What all trials share: the machine, the days, the versions, the model and the target."""
        known = {"machine": self.machine, "measured": self.days, "autosplit": self.version}
        return {key: value for key, value in known.items() if value} | dict(self.identity)

    @property
    def objective(self) -> str:
        """The objective of the study."""
        return objective_of(self.config)

    def best(self, before: int | None = None) -> Trial | None:
        """The best trial by the objective, of those with a lower number than ``before``.

        For throughput it is the winner of the final comparison if there was one.
        """
        complete = {t.number: t for t in self.trials if t.state == "complete"}
        if before is None and self.final_comparison and self.objective == "throughput":
            complete = {number: complete[number] for number in self.final_comparison}
        if before is not None:
            complete = {number: t for number, t in complete.items() if number < before}
        periods = {number: t.period_ms for number, t in complete.items() if t.period_ms}
        values = {number: t.values for number, t in complete.items()}
        best = best_number(periods, values, self.objective)
        return None if best is None else complete[best]

    @property
    def bound(self) -> str:
        """The predicted bound in words; empty without one."""
        best = self.best()
        period = best.period_ms.median if best and best.period_ms else None
        return "" if self.bound_ms is None else bound_text(self.bound_ms, period)

    def devices_of(self, trial: Trial) -> list[str]:
        """The device of each stage of a trial, empty if it is not known."""
        if max((*trial.replicas, *trial.threads), default=1) > 1:
            shapes = zip(trial.replicas, trial.threads, strict=True)
            return [f"{counted(r, 'replica')} with {counted(w, 'thread')}" for r, w in shapes]
        if trial.devices:
            return [" and ".join(of_stage) for of_stage in trial.devices]
        count = max(len(trial.stages), len(trial.stage_ms))
        places = [*trial.places, *range(len(trial.places), count)]
        return [self.devices[i] if i < len(self.devices) else "" for i in places]

    def device_of(self, stage: int) -> str:
        """The device that a stage has in every trial; empty if trials differ in it."""
        names = set()
        for trial in self.trials:
            devices = self.devices_of(trial)
            if stage < len(devices):
                names.add(devices[stage])
        return names.pop() if len(names) == 1 else ""

    def stage_names(self, trial: Trial) -> list[str]:
        """Each stage of a trial by its number, device and runtime."""
        names = []
        for number, device in enumerate(self.devices_of(trial)):
            runtime = trial.runtimes[number] if number < len(trial.runtimes) else ""
            names.append(", ".join(filter(None, (f"stage {number}", device, runtime))))
        return names

    def profile_of(self, trial: Trial) -> tuple[float, ...]:
        """The profiled time of each op on the device of its stage; empty if it is not known."""
        places = trial.places or range(len(trial.stages))
        row_of_op = {}
        try:
            for number, (place, ops) in enumerate(zip(places, trial.stages, strict=False)):
                rows: Sequence[int] = range(len(self.op_ms))
                if trial.runtimes:
                    runtime = trial.runtimes[number]
                    # A stored profile of one runtime may lack its name.
                    rows = [row for row in rows if self.op_runtimes[row] in ("", runtime)]
                rows = [row for row in rows if self.op_batches[row] == trial.batch]
                row_of_op.update(dict.fromkeys(ops, rows[place]))
            return tuple(self.op_ms[row_of_op[i]][i] for i in range(len(row_of_op)))
        # A foreign database may name more ops or devices than its profile has.
        except (IndexError, KeyError):
            return ()


def read(study: optuna.Study) -> Study:
    """The record of an Optuna study; attributes that make no sense are left out."""
    stored = study_record(study.user_attrs)
    graph = stored_graph(stored.graph)
    trials = sorted(study.get_trials(deepcopy=False), key=lambda t: t.number)
    complete = sum(t.state.name == "COMPLETE" for t in trials)
    comparison = stored.final_comparison
    records = tuple(_trial(t, graph, comparison, stored.devices) for t in trials)
    compared = comparison.numbers(complete)
    return Study(
        name=study.study_name,
        graph=graph,
        devices=stored.devices,
        op_ms=tuple(profile.op_ms for profile in stored.profile),
        op_runtimes=tuple(profile.runtime for profile in stored.profile),
        op_batches=tuple(profile.batch for profile in stored.profile),
        bound_ms=stored.bound_ms,
        cut_periods=_legal(graph, stored.cut_periods),
        baselines=stored.compared_baselines(),
        verdict=stored.verdict.text,
        stopped=stored.stopped.removeprefix("stopped: "),  # the pages say so themselves
        identity=stored.identity,
        config=stored.config,
        trials=records,
        final_comparison={
            t.number: t.period_ms
            for t in records
            if t.number in compared and t.period_ms and t.state == "complete"
        },
        version=stored.version,
        machine=stored.machine,
        days=_days(trials),
    )


def _trial(
    trial: optuna.trial.FrozenTrial,
    graph: FusedGraph | None,
    comparison: FinalComparison,
    devices: Sequence[str],
) -> Trial:
    searched = record_of(trial)
    stored = comparison.of(trial.number, searched)
    stages = tuple(ops for ops in stored.stages if ops)
    # Drawings and tables rely on a legal split; without one a trial is shown by its times.
    if not _is_split(graph, stages):
        stages = ()
    has_shape = len(stored.replicas) == len(stored.threads) == len(stages) > 0
    replicas, threads = (stored.replicas, stored.threads) if has_shape else ((), ())
    placed = stored.devices if len(stored.devices) == len(stages) and all(stored.devices) else ()
    places = tuple(_place(of_stage[0], devices) for of_stage in placed)
    return Trial(
        number=trial.number,
        state=state_of(trial),
        stages=stages,
        places=places,
        cuts=stored.cuts,
        live=stored.live,
        period_ms=stored.period_ms,
        searched_ms=None if stored is searched else searched.period_ms,
        latency_ms=stored.latency_ms,
        stage_ms=stored.stage_ms,
        replicas=replicas,
        threads=threads,
        devices=placed,
        batch=stored.batch,
        predicted_ms=stored.predicted_ms,
        memory_bytes=stored.memory_bytes,
        max_rel_error=stored.max_rel_error,
        values=tuple(trial.values or ()),
        error=error_of(trial),
        runtimes=stored.runtimes,
    )


def _place(device: str, profiled: Sequence[str]) -> int:
    """The index of the profile for a device: its own, or that of the last before with its size."""
    if device in profiled:
        return profiled.index(device)
    cores = _cores(device)
    alike = [i for i, name in enumerate(profiled) if len(_cores(name)) == len(cores)]
    before = [i for i in alike if _cores(profiled[i])[:1] <= cores[:1]]
    return (before or alike or [len(profiled)])[-1]


def _cores(device: str) -> tuple[int, ...]:
    """The cores of a device as a database spells it; none where that makes no sense."""
    return cores_of(device) if _CORES.fullmatch(device) else ()


def _legal(
    graph: FusedGraph | None, periods: Sequence[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    """The legal cuts of a graph among some, by the number of ops before them."""
    legal = [pair for pair in periods if graph and is_downset(graph, pair[0])]
    return tuple(sorted(legal, key=lambda pair: (pair[0].bit_count(), pair)))


def _days(trials: Sequence[optuna.trial.FrozenTrial]) -> str:
    """The day of the measurements, or the first and the last."""
    days = sorted({t.datetime_start.date().isoformat() for t in trials if t.datetime_start})
    # Measurements of one day have one date.
    return " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))


def _is_split(graph: FusedGraph | None, stages: Sequence[Sequence[int]]) -> bool:
    """Whether the stages are a legal split of the graph; unknown without a graph."""
    try:
        if graph:
            cuts_of(graph, stages)
    except AutosplitError:
        return False
    return True


def states_of(
    graph: FusedGraph | None, stages: Sequence[Sequence[int]]
) -> list[tuple[str, str, list[int], int | None]]:
    """The input, output, shape and stage of each state; the stage is None where no split is."""
    if graph is None:
        return []
    stage_of = {op: number for number, ops in enumerate(stages) for op in ops}
    rows = []
    for state, ops in zip(graph.states, graph.ops_of_states, strict=True):
        shape = list(graph.tensors[state.input].shape)
        # All of its ops share a stage, so that any of them tells which.
        rows.append((state.input, state.output, shape, stage_of.get(ops[0])))
    return rows


def stored_graph(document: Any) -> FusedGraph | None:
    """The stored graph; None if it is none."""
    try:
        ops = [
            Op(
                op["name"],
                op["kernel"],
                tuple(op["sources"]),
                tuple(op["inputs"]),
                tuple(op["outputs"]),
            )
            for op in document["ops"]
        ]
        shapes = {
            name: (tuple(map(int, t["shape"])), str(t["dtype"]), max(0, int(t["bytes"])))
            for name, t in document["tensors"].items()
        }
        graph = build(str(document["name"]), ops, shapes, document["inputs"], document["outputs"])
        # Studies of before have none.
        states = [(s["input"], s["output"], s["tensor"]) for s in document.get("states", ())]
        tensors = [(output, tensor) for _, output, tensor in states]
        pairs = {name: output for name, output, _ in states}
        graph = replace(graph, states=match_states(graph, tensors, pairs))
    except (AutosplitError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    names = [*graph.inputs, *graph.outputs, *pairs.values()]
    for op in ops:
        names += [op.name, *op.inputs, *op.outputs]
    return graph if ops and all(isinstance(name, str) for name in names) else None
