"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

Both results are stored with the study.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autosplit.cuts.stages import with_unused
from autosplit.deployment import Deployment
from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import Baseline, Measurement, RealTime, Spread
from autosplit.hardware.profiling.cost_model import over_memory
from autosplit.hardware.runtimes.registry import sharing
from autosplit.planner.partition.explain import forbidden_by_states
from autosplit.serialization import load
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import history_of
from autosplit.study.config.objectives import objective_value
from autosplit.study.loop import time_left
from autosplit.study.loop.time_left import FINALISTS
from autosplit.study.loop.verdict import Contender, judge
from autosplit.study.persistence import records
from autosplit.study.persistence.attributes import compared_baselines, spread_of
from autosplit.study.persistence.optuna_internals import rewrite_trial
from autosplit.study.progress import Progress, duration
from autosplit.study.surrogate.cost_correction import Corrected, Measured
from autosplit.study.trials.results import period_of
from autosplit.units import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from autosplit.study.loop.open import OpenStudy

K = TypeVar("K")

_TIMES = {"throughput": "period_ms", "latency": "latency_ms"}  # that an objective counts
NOISES = 3  # a candidate expected to be slower than the best by more times the noise is left out


def conclude(opened: OpenStudy, progress: Progress) -> None:
    """Compare the best candidates, judge, and store comparison and verdict."""
    trials = opened.study.get_trials(deepcopy=False)
    attributes = opened.study.user_attrs
    history = history_of(opened.space, trials)
    corrected = corrected_costs(opened.space, history.measured)
    chosen: list[Measured] = []
    if opened.config.objective == "throughput":
        chosen = finalists(corrected, history.measured)
    comparison: Any = attributes.get("duel")
    if chosen and not covers(comparison, chosen, len(history.measured)):
        progress.note(_announcement(opened, attributes, chosen))
        with opened.device_lock():
            calm = Calm(opened.config.measure.seconds, progress.note)
            comparison = calm.measured(
                "the final comparison",
                lambda: _compare(opened, chosen, trials, history.measured),
                lambda result: result[records.DISTURBED],
            )
    if chosen:
        comparison = _at_rate(opened, comparison, history.measured, progress)
        opened.study.set_user_attr("duel", comparison)
        _rewrite(opened, comparison["entries"])
    stored, trials = opened.study.user_attrs, opened.study.get_trials(deepcopy=False)
    contenders = [*_trials(opened, trials, chosen and comparison), *_baselines(opened, stored)]
    if any(c.deployment for c in contenders):
        of = "an item" if chosen else "latency"
        verdict = judge(contenders, of, interleaved=bool(chosen))
        text, costs = verdict.text, opened.space.costs
        for reason in filter(None, (over_memory(costs), forbidden_by_states(costs, 2))):
            text += f"\n{reason[0].upper()}{reason[1:]}."
        if opened.config.realtime:
            paced = comparison["real_time"]
            text += f"\nTrial {paced['number']} at {load(RealTime, paced).text}."
        winner = verdict.winner
        named = {"baseline": winner.baseline} if winner.baseline else {"trial": winner.trial}
        document = {"choice": verdict.choice, "text": text, **named}
        opened.study.set_user_attr("verdict", document)


def _at_rate(
    opened: OpenStudy,
    comparison: Mapping[str, Any],
    measured: Sequence[Measured],
    progress: Progress,
) -> Mapping[str, Any]:
    """The comparison with its winner under the rate of the study file, where that has one."""
    section, known = opened.config.realtime, comparison.get("real_time") or {}
    if section is None or known.get("items_per_second") == section.items_per_second:
        return comparison
    rate, seconds = section.items_per_second, opened.config.measure.seconds
    winner = min(comparison["entries"], key=lambda entry: (entry["period"], entry["number"]))
    candidate = next(m for m in measured if m.number == winner["number"])
    deployment = _deployment(opened, candidate, winner.get(records.SHARED))
    progress.note(f"the fastest split with {rate:g} items a second, up to {duration(seconds)}")
    period = load(Spread, winner["period_ms"])
    with opened.device_lock():
        paced = Calm(seconds, progress.note).measured(
            f"the run at {rate:g} items a second",
            lambda: opened.bench.real_time(deployment, rate, period),
            lambda result: result.disturbances,
        )
    return {**comparison, "real_time": {**asdict(paced), "number": winner["number"]}}


def _trials(
    opened: OpenStudy, trials: Sequence[FrozenTrial], comparison: Any
) -> Iterator[Contender]:
    """The trials that the final comparison measured; where there is none, all."""
    entries = comparison["entries"] if comparison else ()
    compared = {entry["number"] for entry in entries}
    for m in history_of(opened.space, trials).measured:
        stored = trials[m.number].user_attrs
        time = spread_of(stored.get(_TIMES[opened.config.objective]))
        if time and (m.number in compared or not comparison):
            deployment = _deployment(opened, m)
            yield Contender(deployment, time, tuple(stored.get(records.DISTURBED, ())), m.number)


def _baselines(opened: OpenStudy, attributes: Mapping[str, Any]) -> Iterator[Contender]:
    """The baselines that the final comparison measured; where there is none, all."""
    ops, key = len(opened.bench.graph.ops), _TIMES[opened.config.objective]
    known = compared_baselines(attributes)
    again = (attributes.get("duel") or {}).get("baselines") or known
    for b, measured in zip(known, again, strict=True):
        time: Spread = getattr(b, key)
        if measured and math.isfinite(time.median):
            yield Contender(b.deployment(ops), time, b.disturbances, baseline=b.name)


def finalists(corrected: Corrected, measured: Sequence[Measured]) -> list[Measured]:
    """The measured splits that may be the best.

    They are the likeliest few by all that was measured, and the one that was measured fastest.
    """
    expected = {m.number: corrected.period(m.candidate, m.runtimes) for m in measured}
    limit = min(expected.values(), default=0.0) * (1 + NOISES * corrected.noise)
    likely = [m for m in measured if expected[m.number] <= limit]
    chosen = sorted(likely, key=lambda m: expected[m.number])[:FINALISTS]
    fastest = min(measured, key=lambda m: (m.period_ms, m.number), default=None)
    if fastest is not None and fastest not in chosen:
        chosen = [*chosen[: FINALISTS - 1], fastest]
    return sorted(chosen, key=lambda m: m.number)


def covers(comparison: object, chosen: Sequence[Measured], measured: int) -> bool:
    """Whether a stored comparison is of these finalists, calm, and nothing measured since."""
    if not isinstance(comparison, dict) or comparison.get("measured") != measured:
        return False
    if comparison.get(records.DISTURBED):
        return False
    numbers = [entry.get("number") for entry in comparison.get("entries", ())]
    return numbers[: len(chosen)] == [m.number for m in chosen]


def _announcement(opened: OpenStudy, attributes: dict[str, Any], chosen: Sequence[Measured]) -> str:
    """What the comparison is of, and its limit where hardware is measured."""
    baselines = len(strongest(compared_baselines(attributes)))
    text = (
        f"final comparison: {counted(len(chosen), 'candidate')} and "
        f"{counted(baselines, 'baseline')}, interleaved"
    )
    contenders = _contenders(opened, chosen)
    by_number = {m.number: m.period_ms for m in chosen}
    candidates = [
        (by_number[number], sum(deployment.replicas))
        for (number, _), deployment in contenders.items()
    ]
    seconds = time_left.of_comparison(opened.config, attributes, candidates)
    return f"{text}, up to {duration(seconds)}" if seconds else text


def _compare(
    opened: OpenStudy,
    chosen: Sequence[Measured],
    trials: Sequence[FrozenTrial],
    measured: Sequence[Measured],
) -> dict[str, Any]:
    """Compare the finalists with the fastest of the baselines; null stands for the others."""
    by_number = {m.number: m for m in measured}
    values: dict[int, float] = {}
    for number in by_number:
        period = period_of(trials[number], opened.config.objective)
        values[number] = period.median if period else math.inf
    known = compared_baselines(opened.study.user_attrs)
    contenders, baselines = _measure(opened, _contenders(opened, chosen), strongest(known))
    results: dict[int, Measurement] = {}
    shared: dict[int, bool] = {}
    for (number, is_shared), measurement in contenders.items():
        if is_shared:
            shared[number] = measurement.period_ms.median < results[number].period_ms.median
        if shared.get(number, True):
            results[number] = measurement
    while True:
        best = by_number[min(results, key=lambda n: (results[n].period_ms.median, n))]
        limit = results[best.number].period_ms.median
        # Whoever has a lower value than the winner must lose to it too: otherwise Optuna, which
        # compares values, would call a trial the best that was only luckier.
        luckier = [n for n in values if n not in results and values[n] < limit]
        if not luckier:
            break
        rivals = sorted(luckier, key=values.__getitem__)[: FINALISTS - 1]
        # A rival runs as it did when it got its value.
        known_shared = {n: trials[n].user_attrs.get(records.SHARED) for n in rivals} | shared
        deployments = {
            n: _deployment(opened, by_number[n], known_shared.get(n))
            for n in [best.number, *rivals]
        }
        again, _ = _measure(opened, deployments, ())
        # The winner is the yardstick: a drift of the machine in between decides nothing.
        scale = limit / again.pop(best.number).period_ms.median
        results |= {number: result.scaled(scale) for number, result in again.items()}
    entries = []
    for number, measurement in results.items():
        m = by_number[number]
        measurement = replace(measurement, stage_ms=with_unused(m.stages, measurement.stage_ms))
        shares = opened.space.evaluator.shape(m.candidate).shares
        entry = {"number": number, **records.measured_attributes(measurement, shares)}
        if number in shared:
            entry[records.SHARED] = shared[number]
        entries.append(entry)
    names = [baselines.get(b.name) for b in known]
    documents = [None if b is None else records.document_of(b) for b in names]
    disturbances = list(results[best.number].disturbances)
    document = {"measured": len(measured), "entries": entries, "baselines": documents}
    return {**document, records.DISTURBED: disturbances}


def _contenders(
    opened: OpenStudy, chosen: Sequence[Measured]
) -> dict[tuple[int, bool], Deployment]:
    """The deployments of candidates by the number of their trial, and whether they share models.

    A deployment that can run both ways has an entry for each.
    """
    contenders = {(m.number, False): _deployment(opened, m) for m in chosen}
    both = {(number, True): sharing(each) for (number, _), each in contenders.items()}
    return contenders | {key: each for key, each in both.items() if each is not None}


def _deployment(opened: OpenStudy, measured: Measured, shared: bool | None = False) -> Deployment:
    deployment = opened.deployment(measured.candidate, measured.runtimes)
    return (sharing(deployment) if shared else None) or deployment


def _measure(
    opened: OpenStudy, deployments: Mapping[K, Deployment], baselines: Sequence[str]
) -> tuple[dict[K, Measurement], Mapping[str, Baseline]]:
    """Deployments by their keys, and baselines by name, measured interleaved."""
    measurements, compared = opened.bench.compare_interleaved(list(deployments.values()), baselines)
    return dict(zip(deployments, measurements, strict=True)), compared


def _rewrite(opened: OpenStudy, entries: Sequence[Mapping[str, Any]]) -> None:
    """Give the trials of the comparison its figures, so that everybody reads the same ones."""
    for entry in entries:
        trial = opened.study.get_trials(deepcopy=False)[entry["number"]]
        figures = {key: value for key, value in entry.items() if key != "number"}
        if figures.items() <= trial.user_attrs.items():
            continue  # by another worker, or before this process was started again
        value = objective_value(opened.config.objective, figures["period"], figures["latency"])
        attributes = records.compared_attributes(trial, figures)
        rewrite_trial(opened.study, trial, attributes, value)
