"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

The comparison is stored beside the trials, whose own figures stay as the search measured them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import with_unused
from autosplit.deployment import Deployment
from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import RealTime, Spread
from autosplit.hardware.profiling.cost_model import over_memory
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.partition.explain import forbidden_by_states
from autosplit.serialization import load
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import history_of
from autosplit.study.documents import document_of, measured_document
from autosplit.study.loop import time_left
from autosplit.study.loop.time_left import FINALISTS
from autosplit.study.loop.verdict import Verdict, judge, judge_deployment
from autosplit.study.progress import Progress, duration
from autosplit.study.record import (
    COMPARISON,
    FinalComparison,
    StudyRecord,
    compared_baselines,
    mapping,
    record_of,
    study_record,
)
from autosplit.study.results import BestTrial, best_trial
from autosplit.study.surrogate.cost_correction import Corrected, Measured
from autosplit.units import counted

if TYPE_CHECKING:
    from autosplit.study.loop.open import OpenStudy

NOISES = 3  # a candidate expected to be slower than the best by more times the noise is left out


def compare(opened: OpenStudy, progress: Progress) -> None:
    """Compare the best candidates with the baselines, unless that is stored; for throughput."""
    if opened.config.objective != "throughput":
        return
    history = history_of(opened.space, opened.study.get_trials(deepcopy=False))
    corrected = corrected_costs(opened.space, history.measured)
    chosen, count = finalists(corrected, history.measured), len(history.measured)
    if not chosen:
        return
    if not covers(_stored(opened), chosen, count):
        progress.note(_announcement(opened, chosen))
        with opened.device_lock():
            # Another worker may have made it while this one waited.
            if not covers(_stored(opened), chosen, count):
                calm = Calm(opened.config.measure.seconds, progress.note)
                document = calm.measured(
                    "the final comparison",
                    lambda: _measure(opened, chosen, count),
                    lambda result: result["disturbed"],
                )
                opened.study.set_user_attr(COMPARISON, document)
    _compare_at_rate(opened, history.measured, progress)


def verdict(opened: OpenStudy) -> dict[str, str] | None:
    """What to make of the fastest of the trials, as stored; None without one."""
    record = study_record(opened.study.user_attrs)
    fastest = best_trial(opened.study.get_trials(deepcopy=False), record, "throughput")
    if fastest is None:
        return None
    judged, costs = _judged(opened, fastest, record), opened.space.costs
    text = judged.text
    for reason in filter(None, (over_memory(costs), forbidden_by_states(costs, 2))):
        text += f" {reason[0].upper()}{reason[1:]}."
    if opened.config.realtime and record.final_comparison.real_time:
        paced = {k: v for k, v in record.final_comparison.real_time.items() if k != "number"}
        text += f" At {load(RealTime, paced).text}."
    if fastest.record.disturbed:
        text += f" Not to be trusted: {'; '.join(fastest.record.disturbed)}."
    return {"choice": judged.choice, "text": text}


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


def covers(comparison: FinalComparison, chosen: Sequence[Measured], measured: int) -> bool:
    """Whether a stored comparison is of these finalists, calm, and nothing measured since."""
    is_same = list(comparison.figures) == [m.number for m in chosen]
    return is_same and comparison.measured == measured and not comparison.disturbed


def _stored(opened: OpenStudy) -> FinalComparison:
    return study_record(opened.study.user_attrs).final_comparison


def _announcement(opened: OpenStudy, chosen: Sequence[Measured]) -> str:
    """What the comparison is of, and its limit where hardware is measured."""
    attributes = opened.study.user_attrs
    baselines = len(strongest(compared_baselines(attributes)))
    text = (
        f"final comparison: {counted(len(chosen), 'candidate')} and "
        f"{counted(baselines, 'baseline')}, interleaved"
    )
    candidates = [(m.period_ms, sum(_deployment(opened, m).replicas)) for m in chosen]
    seconds = time_left.of_comparison(opened.config, attributes, candidates)
    return f"{text}, up to {duration(seconds)}" if seconds else text


def _measure(opened: OpenStudy, chosen: Sequence[Measured], count: int) -> dict[str, Any]:
    """Measure the finalists and the fastest baselines; null stands for the other baselines.

    ``count``: of the complete trials.
    """
    known = compared_baselines(opened.study.user_attrs)
    deployments = [_deployment(opened, m) for m in chosen]
    results, baselines = opened.bench.compare_interleaved(deployments, strongest(known))
    entries = []
    for m, result in zip(chosen, results, strict=True):
        result = replace(result, stage_ms=with_unused(m.stages, result.stage_ms))
        entries.append({"number": m.number, **measured_document(result)})
    names = [baselines.get(b.name) for b in known]
    return {
        "measured": count,
        "entries": entries,
        "baselines": [None if b is None else document_of(b) for b in names],
        "disturbed": list(min(results, key=lambda r: r.period_ms.median).disturbances),
    }


def _compare_at_rate(opened: OpenStudy, measured: Sequence[Measured], progress: Progress) -> None:
    """Measure the winner under the rate of the study file, where that has one, and store it."""
    section, comparison = opened.config.realtime, _stored(opened)
    known = comparison.real_time.get("items_per_second")
    if section is None or known == section.items_per_second:
        return
    rate, seconds = section.items_per_second, opened.config.measure.seconds
    periods = {n: e.period_ms for n, e in comparison.figures.items() if e.period_ms}
    winner = min(periods, key=lambda number: (periods[number].median, number))
    deployment = _deployment(opened, next(m for m in measured if m.number == winner))
    progress.note(f"the fastest split with {rate:g} items a second, up to {duration(seconds)}")
    with opened.device_lock():
        paced = Calm(seconds, progress.note).measured(
            f"the run at {rate:g} items a second",
            lambda: opened.bench.real_time(deployment, rate, periods[winner]),
            lambda result: result.disturbances,
        )
    document = mapping(opened.study.user_attrs.get(COMPARISON))
    document["real_time"] = {**asdict(paced), "number": winner}
    opened.study.set_user_attr(COMPARISON, document)


def _judged(opened: OpenStudy, fastest: BestTrial, record: StudyRecord) -> Verdict:
    key, baselines = fastest.record.key, record.compared_baselines()
    candidate, runtimes = opened.space.split(key), opened.space.runtimes_of(key)
    if not isinstance(candidate, DeployedSplit):
        name = "best" if opened.config.objective == "throughput" else "fastest"
        names = [runtime for runtime in runtimes if runtime]
        return judge(sum(map(bool, candidate)), fastest.period_ms, baselines, name, names)
    trials = opened.study.get_trials(deepcopy=False)
    compared = {t.number: record.final_comparison.of(t.number, record_of(t)) for t in trials}
    periods: dict[Deployment, Spread] = {}
    for m in history_of(opened.space, trials).measured:
        period = compared[m.number].period_ms
        if period is not None:
            periods[_deployment(opened, m)] = period
    best = opened.deployment(candidate, runtimes)
    kinds = len(opened.config.core_kinds)
    return judge_deployment(best, fastest.period_ms, baselines, periods, kinds)


def _deployment(opened: OpenStudy, measured: Measured) -> Deployment:
    return opened.deployment(measured.candidate, measured.runtimes)
