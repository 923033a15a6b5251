"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

Both results are stored with the study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import with_unused
from autosplit.deployment import Deployment
from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import Baseline, Measurement, RealTime, Spread
from autosplit.hardware.profiling.cost_model import over_memory
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.partition.explain import forbidden_by_states
from autosplit.serialization import load
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import history_of
from autosplit.study.config.objectives import objective_value
from autosplit.study.loop import time_left
from autosplit.study.loop.time_left import FINALISTS
from autosplit.study.loop.verdict import Verdict, judge, judge_deployment
from autosplit.study.persistence import records
from autosplit.study.persistence.attributes import compared_baselines
from autosplit.study.persistence.optuna_internals import rewrite_trial
from autosplit.study.progress import Progress, duration
from autosplit.study.surrogate.cost_correction import Corrected, Measured
from autosplit.study.trials.results import best_trial, period_of
from autosplit.units import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from autosplit.study.loop.open import OpenStudy

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
    fastest = best_trial(trials, stored, "throughput")
    if fastest is not None:
        verdict = _verdict(opened, *fastest, trials)
        text, costs = verdict.text, opened.space.costs
        for reason in filter(None, (over_memory(costs), forbidden_by_states(costs, 2))):
            text += f" {reason[0].upper()}{reason[1:]}."
        if opened.config.realtime:
            text += f" At {load(RealTime, comparison['real_time']).text}."
        disturbances = fastest[0].user_attrs.get(records.DISTURBED)
        if disturbances:
            text += f" Not to be trusted: {'; '.join(disturbances)}."
        document = {"choice": verdict.choice, "text": text}
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
    deployment = opened.deployment(candidate.candidate, candidate.runtimes)
    progress.note(f"the fastest split with {rate:g} items a second, up to {duration(seconds)}")
    period = load(Spread, winner["period_ms"])
    with opened.device_lock():
        paced = Calm(seconds, progress.note).measured(
            f"the run at {rate:g} items a second",
            lambda: opened.bench.real_time(deployment, rate, period),
            lambda result: result.disturbances,
        )
    return {**comparison, "real_time": {**asdict(paced), "number": winner["number"]}}


def _verdict(
    opened: OpenStudy, trial: FrozenTrial, period: Spread, trials: Sequence[FrozenTrial]
) -> Verdict:
    """What to make of the fastest of the trials."""
    baselines = compared_baselines(opened.study.user_attrs)
    key = trial.user_attrs[records.KEY]
    candidate, runtimes = opened.space.split(key), opened.space.runtimes_of(key)
    if not isinstance(candidate, DeployedSplit):
        name = "best" if opened.config.objective == "throughput" else "fastest"
        names = [runtime for runtime in runtimes if runtime]
        return judge(sum(map(bool, candidate)), period, baselines, name, names)
    periods: dict[Deployment, Spread] = {}
    for m in history_of(opened.space, trials).measured:
        figures = period_of(trials[m.number], opened.config.objective)
        if figures is not None:
            periods[opened.deployment(m.candidate, m.runtimes)] = figures
    best = opened.deployment(candidate, runtimes)
    return judge_deployment(best, period, baselines, periods, len(opened.config.core_kinds))


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
    deployments = _deployments(opened, chosen).values()
    candidates = [
        (m.period_ms, sum(deployment.replicas))
        for m, deployment in zip(chosen, deployments, strict=True)
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
    results, baselines = _measure(opened, _deployments(opened, chosen), strongest(known))
    while True:
        best = by_number[min(results, key=lambda n: (results[n].period_ms.median, n))]
        limit = results[best.number].period_ms.median
        # Whoever has a lower value than the winner must lose to it too: otherwise Optuna, which
        # compares values, would call a trial the best that was only luckier.
        luckier = [n for n in values if n not in results and values[n] < limit]
        if not luckier:
            break
        rivals = sorted(luckier, key=values.__getitem__)[: FINALISTS - 1]
        candidates = [by_number[number] for number in (best.number, *rivals)]
        again, _ = _measure(opened, _deployments(opened, candidates), ())
        # The winner is the yardstick: a drift of the machine in between decides nothing.
        scale = limit / again.pop(best.number).period_ms.median
        results |= {number: result.scaled(scale) for number, result in again.items()}
    entries = []
    for number, measurement in results.items():
        m = by_number[number]
        measurement = replace(measurement, stage_ms=with_unused(m.stages, measurement.stage_ms))
        shares = opened.space.evaluator.shape(m.candidate).shares
        entries.append({"number": number, **records.measured_attributes(measurement, shares)})
    names = [baselines.get(b.name) for b in known]
    documents = [None if b is None else records.document_of(b) for b in names]
    disturbances = list(results[best.number].disturbances)
    document = {"measured": len(measured), "entries": entries, "baselines": documents}
    return {**document, records.DISTURBED: disturbances}


def _deployments(opened: OpenStudy, candidates: Sequence[Measured]) -> dict[int, Deployment]:
    """The deployments of candidates by the number of their trial."""
    return {m.number: opened.deployment(m.candidate, m.runtimes) for m in candidates}


def _measure(
    opened: OpenStudy, deployments: Mapping[int, Deployment], baselines: Sequence[str]
) -> tuple[dict[int, Measurement], Mapping[str, Baseline]]:
    """Deployments by the number of their trial, and baselines by name, measured interleaved."""
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
