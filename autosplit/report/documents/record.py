"""A study as the report reads it: plain values out of attributes that anybody may have written.

Whatever is missing or of another type becomes empty or None; nothing here raises for what a database holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import cuts_of
from autosplit.errors import AutosplitError
from autosplit.graph import FusedGraph, Op, build
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.plain import (
    list_of,
    mapping_of,
    number_of,
    numbers_of,
    spread_of,
    strings_of,
    text_of,
)
from autosplit.study.config.former_names import with_current_names
from autosplit.study.config.objectives import of_study

if TYPE_CHECKING:
    import optuna

FORMAT = 1
_MOST_STAGES = 256


@dataclass(frozen=True)
class Trial:
    """One candidate: how it was split and what was measured; ``state`` is complete, fail, running, pruned or waiting.

    ``stages`` are op indices of the stages that are not empty, ``places`` the index of the device of each; ``cuts`` are the
    last ops before each cut, ``live`` names and bytes of the tensors on it; ``values`` are those of the objectives,
    ``memory_bytes`` what the largest stage holds. Times are in ms.
    """

    number: int
    state: str
    stages: tuple[tuple[int, ...], ...]
    live: tuple[tuple[tuple[str, int], ...], ...]
    period_ms: Spread | None
    latency_ms: Spread | None
    stage_ms: tuple[float, ...]
    predicted_ms: float | None
    max_rel_error: float | None
    error: str
    cuts: tuple[tuple[str, ...], ...] = ()
    places: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Study:
    """What a study asked, on what machine, and what came of it; ``op_ms`` is the profile on each device.

    ``duel`` are the periods of the final comparison, where the best candidates met the baselines in turns, by number of the
    trial; ``baselines`` have their periods from there too. It is empty where trials were measured since. ``version`` is
    autosplit's, ``days`` when it was measured.
    """

    name: str
    graph: FusedGraph | None
    devices: tuple[str, ...]
    op_ms: tuple[tuple[float, ...], ...]
    bound_ms: float | None
    baselines: tuple[Baseline, ...]
    choice: str
    verdict: str
    stopped: str
    identity: Mapping[str, str]
    config: Mapping[str, Any]
    trials: tuple[Trial, ...]
    duel: Mapping[int, Spread] = field(default_factory=dict)
    version: str = ""
    machine: str = ""
    days: str = ""

    @property
    def measured_on(self) -> Mapping[str, str]:
        """What every trial shares: the machine, the days, the versions, and what identifies the model and the target."""
        known = {"machine": self.machine, "measured": self.days, "autosplit": self.version}
        return {key: value for key, value in known.items() if value} | dict(self.identity)

    def best(self, before: int | None = None) -> Trial | None:
        """The winner of the final comparison, before one the complete trial with the smallest period.

        With ``before``, the complete trial with the smallest period among those of lower number. Where the first objective
        is not throughput, the trial that is best by it.
        """
        complete = [
            t
            for t in self.trials
            if t.state == "complete" and (before is None or t.number < before)
        ]
        if self.objectives[0] != "throughput":
            told = [(t.values, t.number, t) for t in complete if t.values]
            return min(told)[2] if told else None
        seen = [(t.period_ms.median, t.number, t) for t in complete if t.period_ms]
        entered = [
            (self.duel[number].median, number, t) for _, number, t in seen if number in self.duel
        ]
        seen = entered if entered and before is None else seen
        return min(seen)[2] if seen else None

    @property
    def objectives(self) -> tuple[str, ...]:
        """What the study minimised, the most important first."""
        return of_study({"config": self.config})

    def devices_of(self, trial: Trial) -> list[str]:
        """The device of each stage of a trial, empty where it is not known."""
        count = max(len(trial.stages), len(trial.stage_ms))
        places = [*trial.places, *range(len(trial.places), count)]
        return [self.devices[i] if i < len(self.devices) else "" for i in places]

    def device_of(self, stage: int) -> str:
        """The device that stage ``stage`` has in every trial; empty where trials differ in it."""
        names = {found[stage] for t in self.trials if len(found := self.devices_of(t)) > stage}
        return names.pop() if len(names) == 1 else ""

    def period(self, trial: Trial) -> Spread | None:
        """The period of a trial: from the final comparison where it took part, else as it was measured."""
        return self.duel.get(trial.number, trial.period_ms)


def read(study: optuna.Study) -> Study:
    """The record of an Optuna study; attributes that make no sense are left out."""
    attributes = study.user_attrs
    graph = _graph(attributes.get("graph"))
    verdict = mapping_of(attributes.get("verdict"))
    duel = mapping_of(attributes.get("duel"))
    identity = with_current_names(mapping_of(attributes.get("identity")))
    trials = sorted(study.get_trials(deepcopy=False), key=lambda t: t.number)
    return Study(
        name=study.study_name,
        graph=graph,
        devices=strings_of(attributes.get("devices")),
        op_ms=tuple(
            numbers_of(mapping_of(p).get("op_ms")) for p in list_of(attributes.get("profile"))
        ),
        bound_ms=number_of(attributes.get("bound_ms")),
        baselines=_compared(
            [_baseline(mapping_of(entry)) for entry in list_of(attributes.get("baselines"))], duel
        ),
        choice=text_of(verdict.get("choice")),
        verdict=text_of(verdict.get("text")),
        stopped=text_of(attributes.get("stopped")),
        identity={k: text_of(v) for k, v in identity.items()},
        config=with_current_names(mapping_of(attributes.get("config"))),
        trials=tuple(_trial(t, graph, of_study(attributes)[0] == "throughput") for t in trials),
        duel=_duel(duel, sum(t.state.name == "COMPLETE" for t in trials)),
        version=text_of(mapping_of(attributes.get("autosplit")).get("version")),
        machine=text_of(attributes.get("machine")),
        days=_days(trials),
    )


def profile_of(study: Study, trial: Trial) -> tuple[float, ...]:
    """The profiled time of each op in ms on the device of its stage, empty where it is not known."""
    places = trial.places or range(len(trial.stages))
    place = {i: device for device, ops in zip(places, trial.stages, strict=False) for i in ops}
    try:
        return tuple(study.op_ms[place[i]][i] for i in range(len(place)))
    except (IndexError, KeyError):
        return ()


def _trial(trial: optuna.trial.FrozenTrial, graph: FusedGraph | None, timed: bool = True) -> Trial:
    """A trial; ``timed``: whether its first value is a period."""
    a = trial.user_attrs
    written = list_of(a.get("stages"))
    stages = _stages([ops for ops in written if ops], graph)
    places = tuple(i for i, ops in enumerate(written) if ops) if stages else ()
    times = numbers_of(a.get("stage_ms"))[:_MOST_STAGES]
    return Trial(
        number=trial.number,
        state=trial.state.name.lower(),
        stages=stages,
        live=tuple(_live(cut) for cut in list_of(a.get("live"))[:_MOST_STAGES]),
        period_ms=spread_of(a.get("period_ms"))
        or (spread_of({"median": (trial.values or [None])[0]}) if timed else None),
        latency_ms=spread_of(a.get("latency_ms")),
        stage_ms=tuple(times[i] for i in places)
        if places and len(times) == len(written)
        else times,
        predicted_ms=number_of(a.get("predicted_ms")),
        max_rel_error=number_of(a.get("max_rel_error")),
        error=text_of(a.get("error")),
        cuts=tuple(strings_of(cut) for cut in list_of(a.get("cuts"))[:_MOST_STAGES]),
        places=places,
        values=tuple(trial.values or ()),
        memory_bytes=number_of(a.get("memory_bytes")),
    )


def _days(trials: Sequence[optuna.trial.FrozenTrial]) -> str:
    """The day of the measurements, or the first and the last."""
    days = sorted({t.datetime_start.date().isoformat() for t in trials if t.datetime_start})
    return " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))


def _duel(duel: Mapping[str, Any], complete: int) -> dict[int, Spread]:
    """The periods of the final comparison by trial; none where it was held over other trials than are complete now."""
    if duel.get("measured") != complete:
        return {}
    entries = [
        (e.get("number"), spread_of(e.get("period_ms")))
        for e in map(mapping_of, list_of(duel.get("entries")))
    ]
    return {number: spread for number, spread in entries if isinstance(number, int) and spread}


def _compared(
    baselines: Sequence[Baseline | None], duel: Mapping[str, Any]
) -> tuple[Baseline, ...]:
    """The baselines that make sense, with their periods from the final comparison where it was held over all of them."""
    known = [b for b in baselines if b]
    again = [spread_of(period) for period in list_of(duel.get("baselines"))]
    if len(again) != len(known):
        return tuple(known)
    return tuple(
        replace(b, period_ms=period or b.period_ms) for b, period in zip(known, again, strict=True)
    )


def _graph(document: Any) -> FusedGraph | None:
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
        names = [
            *(n for op in ops for n in (op.name, *op.inputs, *op.outputs)),
            *graph.inputs,
            *graph.outputs,
        ]
    except (AutosplitError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    return graph if all(isinstance(n, str) for n in names) and ops else None


def _stages(value: Any, graph: FusedGraph | None) -> tuple[tuple[int, ...], ...]:
    stages = tuple(tuple(list_of(ops)) for ops in list_of(value))
    whole = all(
        isinstance(i, int) and not isinstance(i, bool) and i >= 0 for ops in stages for i in ops
    )
    if not whole or not all(stages) or len(stages) > _MOST_STAGES:
        return ()
    try:
        if graph:
            cuts_of(graph, stages)
    except AutosplitError:
        return ()
    return stages


def _live(cut: Any) -> tuple[tuple[str, int], ...]:
    pairs = [entry for entry in list_of(cut) if isinstance(entry, list | tuple) and len(entry) == 2]
    return tuple(
        (text_of(name), int(count))
        for name, size in pairs
        if (count := number_of(size)) is not None
    )


def _baseline(entry: Mapping[str, Any]) -> Baseline | None:
    name, period, latency = (
        text_of(entry.get("name")),
        spread_of(entry.get("period_ms")),
        spread_of(entry.get("latency_ms")),
    )
    copies = number_of(entry.get("copies"))
    if not name or period is None:
        return None
    return Baseline(name, period, latency or Spread(math.nan, math.nan, math.nan), int(copies or 1))
