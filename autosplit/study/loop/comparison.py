"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

The comparison is stored beside the trials, whose own figures stay as the search measured them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import RealTime, Spread
from autosplit.hardware.profiling.cost_table import over_memory
from autosplit.planner.explain import forbidden_by_states
from autosplit.serialization import load
from autosplit.study.documents import document_of, measured_document
from autosplit.study.loop.verdict import Contender, judge
from autosplit.study.record import (
    COMPARISON,
    FinalComparison,
    StudyRecord,
    mapping,
    record_of,
    study_record,
)
from autosplit.study.surrogate.correction import Corrected, Measured
from autosplit.units import counted

if TYPE_CHECKING:
    from autosplit.study.loop.open import OpenStudy

FINALISTS = 4  # candidates that are compared at most
NOISES = 3  # a candidate expected to be slower than the best by more times the noise is left out


def compare(opened: OpenStudy) -> None:
    """Compare the best candidates with the baselines, unless that is stored; for throughput."""
    if opened.config.objective != "throughput":
        return
    history = opened.history()
    chosen, count = finalists(opened.corrected(history), history.trials), len(history.trials)
    if not chosen:
        return
    if not covers(_record(opened).final_comparison, chosen, count):
        baselines = len(strongest(_record(opened).compared_baselines()))
        opened.notify(
            f"final comparison: {counted(len(chosen), 'candidate')} and "
            f"{counted(baselines, 'baseline')}, interleaved"
        )
        with opened.device_lock():
            # Another worker may have made it while this one waited.
            if not covers(_record(opened).final_comparison, chosen, count):
                calm = Calm(opened.config.measure.seconds, opened.notify)
                document = calm.measured(
                    "the final comparison",
                    lambda: _measure(opened, chosen, count),
                    lambda result: result["disturbed"],
                )
                opened.study.set_user_attr(COMPARISON, document)
    _compare_at_rate(opened, history.trials)


def verdict(opened: OpenStudy) -> dict[str, Any] | None:
    """What to make of all that was measured, as stored; None where nothing was."""
    record = _record(opened)
    contenders = [*_trials(opened, record), *_baselines(opened, record)]
    if not any(contender.deployment for contender in contenders):
        return None
    is_period = opened.config.objective == "throughput"
    of = "an item" if is_period else "latency"
    winner, text = judge(contenders, of, interleaved=is_period)
    costs = opened.space.costs
    for reason in filter(None, (over_memory(costs), forbidden_by_states(costs, 2))):
        text += f"\n{reason[0].upper()}{reason[1:]}."
    if opened.config.realtime and record.final_comparison.real_time:
        paced = dict(record.final_comparison.real_time)
        text += f"\nTrial {paced.pop('number')} at {load(RealTime, paced).text}."
    named = {"baseline": winner.baseline} if winner.baseline else {"trial": winner.trial}
    return {"choice": winner.choice, "text": text, **named}


def _trials(opened: OpenStudy, record: StudyRecord) -> Iterator[Contender]:
    """The trials of the final comparison; for latency all that were measured."""
    is_period = opened.config.objective == "throughput"
    trials = opened.study.get_trials(deepcopy=False)
    for m in opened.history().trials:
        stored = record.final_comparison.of(m.number, record_of(trials[m.number]))
        time = stored.period_ms if is_period else stored.latency_ms
        is_compared = not is_period or m.number in record.final_comparison.figures
        if time is not None and is_compared and _within_limit(opened, stored.latency_ms):
            deployment = opened.space.deployment(m.stages)
            yield Contender(deployment, time, stored.disturbed, m.number)


def _baselines(opened: OpenStudy, record: StudyRecord) -> Iterator[Contender]:
    """The baselines; for throughput those that the final comparison measured again."""
    bench = opened.bench.description
    is_period, ops = opened.config.objective == "throughput", len(bench.graph.ops)
    again = {b.name for b in record.final_comparison.baselines if b}
    for b in record.compared_baselines():
        time = b.period_ms if is_period else b.latency_ms
        is_compared = not is_period or b.name in again
        if is_compared and time.median == time.median and _within_limit(opened, b.latency_ms):
            # What another runtime does is no answer to a study that asks for one.
            is_asked = b.runtime in bench.runtimes
            deployment = b.deployment(ops) if is_asked else None
            yield Contender(deployment, time, b.disturbances, baseline=b.name)


def _within_limit(opened: OpenStudy, latency: Spread | None) -> bool:
    """Whether an item takes no longer than the study allows."""
    return latency is None or not latency.median > opened.goal.latency_ms


def finalists(corrected: Corrected, measured: Sequence[Measured]) -> list[Measured]:
    """The measured candidates that may be the best.

    They are the likeliest few by all that was measured, and the one that was measured fastest.
    """
    expected = {m.number: corrected.period(m.stages) for m in measured}
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


def _record(opened: OpenStudy) -> StudyRecord:
    """What is stored now: other workers write too."""
    return study_record(opened.study.user_attrs)


def _measure(opened: OpenStudy, chosen: Sequence[Measured], count: int) -> dict[str, Any]:
    """Measure the finalists and the fastest baselines.

    ``count``: of the complete trials.
    """
    known = _record(opened).compared_baselines()
    deployments = [opened.space.deployment(m.stages) for m in chosen]
    results, baselines = opened.bench.compare_interleaved(deployments, strongest(known))
    entries = []
    for m, result in zip(chosen, results, strict=True):
        entries.append({"number": m.number, **measured_document(result)})
    return {
        "measured": count,
        "entries": entries,
        "baselines": list(map(document_of, baselines.values())),
        "disturbed": list(min(results, key=lambda r: r.period_ms.median).disturbances),
    }


def _compare_at_rate(opened: OpenStudy, measured: Sequence[Measured]) -> None:
    """Measure the winner under the rate of the study file, where that has one, and store it."""
    section, comparison = opened.config.realtime, _record(opened).final_comparison
    known = comparison.real_time.get("items_per_second")
    if section is None or known == section.items_per_second:
        return
    rate, seconds = section.items_per_second, opened.config.measure.seconds
    periods = {n: e.period_ms for n, e in comparison.figures.items() if e.period_ms}
    winner = min(periods, key=lambda number: (periods[number].median, number))
    stages = next(m.stages for m in measured if m.number == winner)
    deployment = opened.space.deployment(stages)
    opened.notify(f"the fastest candidate with {rate:g} items a second, up to {seconds:g} s")
    with opened.device_lock():
        paced = Calm(seconds, opened.notify).measured(
            f"the run at {rate:g} items a second",
            lambda: opened.bench.real_time(deployment, rate, periods[winner]),
            lambda result: result.disturbances,
        )
    document = mapping(opened.study.user_attrs.get(COMPARISON))
    document["real_time"] = {**asdict(paced), "number": winner}
    opened.study.set_user_attr(COMPARISON, document)
