"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

The comparison is stored beside the trials, whose own figures stay as the search measured them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autosplit import phases
from autosplit.deployment import Deployment
from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.profiling.cost_table import over_memory
from autosplit.planner.explain import forbidden_by_states
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
from autosplit.study.served import served
from autosplit.study.space import Candidate
from autosplit.study.surrogate.correction import Corrected, Measured
from autosplit.units import counted, digits, milliseconds

if TYPE_CHECKING:
    from autosplit.study.loop.open import OpenStudy

FINALISTS = 4  # candidates that are compared at most
NOISES = 3  # a candidate expected to be slower than the best by more times the noise is left out


def compare(opened: OpenStudy) -> None:
    """Compare the best candidates with the baselines, unless that is stored; for throughput."""
    if opened.config.objective == "latency":
        return
    history = opened.history()
    corrected, count = opened.corrected(history), len(history.trials)
    value = partial(opened.goal.expected, corrected) if opened.goal.is_served else None
    chosen = finalists(corrected, history.trials, value)
    if not chosen:
        return
    if not covers(_record(opened).final_comparison, chosen, count):
        baselines = len(strongest(_record(opened).measured_baselines()))
        opened.notify(
            f"final comparison: {counted(len(chosen), 'candidate')} and "
            f"{counted(baselines, 'baseline')}, interleaved"
        )
        with opened.device_lock():
            # Another worker may have made it while this one waited.
            if not covers(_record(opened).final_comparison, chosen, count):
                calm = Calm(opened.config.measure.seconds, opened.notify)
                with phases.step("final comparison"):
                    document = calm.measured(
                        "the final comparison",
                        lambda: _measure(opened, chosen, count),
                        lambda result: result["disturbed"],
                    )
                opened.study.set_user_attr(COMPARISON, document)
    _compare_under_load(opened)


def verdict(opened: OpenStudy) -> dict[str, Any] | None:
    """What to make of all that was measured, as stored; None where nothing was."""
    record = _record(opened)
    contenders = [*_trials(opened, record), *_baselines(opened, record)]
    if not any(contender.deployment for contender in contenders):
        return None
    objective = opened.config.objective
    served = [c for c in map(partial(_served, opened, record), contenders) if c]
    if opened.goal.is_served and not any(contender.deployment for contender in served):
        objective = "throughput"  # none keeps the limit
    elif opened.goal.is_served:
        contenders = served
    winner, text = judge(contenders, objective)
    costs = opened.space.costs
    for reason in filter(None, (over_memory(costs), forbidden_by_states(costs, 2))):
        text += f"\n{reason[0].upper()}{reason[1:]}."
    text += _under_load(opened, record, winner, objective)
    named = {"baseline": winner.baseline} if winner.baseline else {"trial": winner.trial}
    return {"choice": winner.choice, "text": text, **named}


def _trials(opened: OpenStudy, record: StudyRecord) -> Iterator[Contender]:
    """The trials of the final comparison; for latency all that were measured."""
    is_period = opened.config.objective != "latency"
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
    is_period, ops = opened.config.objective != "latency", len(bench.graph.ops)
    again = {b.name for b in record.final_comparison.baselines if b}
    for b in record.compared_baselines():
        time = b.period_ms if is_period else b.latency_ms
        is_compared = not is_period or b.name in again
        if is_compared and time.median == time.median and _within_limit(opened, b.latency_ms):
            # What another runtime does is no answer to a study that asks for one.
            is_asked = b.runtime in bench.runtimes
            deployment = b.deployment(ops) if is_asked else None
            yield Contender(deployment, time, b.disturbances, baseline=b.name)


def _served(opened: OpenStudy, record: StudyRecord, contender: Contender) -> Contender | None:
    """A contender with what it serves within the limit; None where it does not."""
    test = record.final_comparison.loads.get(_key(contender))
    if test is None or contender.deployment is None:
        return None
    workload = opened.goal.workload
    if opened.config.objective == "cores":
        point, limit = test.at(workload.rate), workload.limit_ms or math.inf
        cores = float(sum(s.threads * s.replicas for s in contender.deployment.stages))
        is_served = point is not None and point.quantiles_ms[workload.quantile].median <= limit
        time = Spread(cores, cores, cores) if is_served else None
    else:
        slowest, fastest = test.goodput, test.exceeded or test.goodput
        times = (1e3 / slowest, 1e3 / fastest, 1e3 / slowest) if slowest and fastest else None
        time = Spread(*times) if times else None
    if time is None:
        return None
    return replace(contender, time=time, disturbances=test.disturbances)


def _under_load(opened: OpenStudy, record: StudyRecord, winner: Contender, objective: str) -> str:
    """Lines for the verdict: what the winner does under load, and what the limit costs."""
    loads, workload = record.final_comparison.loads, opened.goal.workload
    lines = []
    if opened.goal.is_served and objective == "throughput":
        rate = f" at {digits(workload.rate)} items/s" if workload.rate else ""
        least = min((test.lone_ms for test in loads.values()), default=math.nan)
        lines.append(
            f"No measured deployment keeps {workload.quantile} "
            f"{milliseconds(workload.limit_ms or 0)}{rate}; an item that comes alone takes "
            f"{milliseconds(least)} at least"
        )
    test = loads.get(_key(winner))
    if test:
        point = test.at(workload.rate)
        lines += [f"At {point.text}"] if point else []
        lines += [test.text[0].upper() + test.text[1:]] if test.text else []
    return "".join(f"\n{line}." for line in lines)


def _key(contender: Contender) -> str:
    """What the tests under load of a contender are stored by."""
    return contender.baseline if contender.trial is None else str(contender.trial)


def _within_limit(opened: OpenStudy, latency: Spread | None) -> bool:
    """Whether an item takes no longer than the study allows."""
    return latency is None or not latency.median > opened.goal.latency_ms


def finalists(
    corrected: Corrected,
    measured: Sequence[Measured],
    value: Callable[[Candidate], float] | None = None,
) -> list[Measured]:
    """The measured candidates that may be the best.

    They are the likeliest few by all that was measured, and the one that was measured fastest.
    ``value`` is what is expected of one, by default its period.
    """
    expect = value or corrected.period
    expected = {m.number: expect(m.stages) for m in measured}
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
    # As the search measured them, so that a comparison that is repeated has the same.
    known = _record(opened).measured_baselines()
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


def _compare_under_load(opened: OpenStudy) -> None:
    """Measure under the workload of the study file, where it has one, and store it.

    For throughput that is the winner, else whatever may be the best.
    """
    if opened.config.workload is None:
        return
    workload, record = opened.goal.workload, _record(opened)
    contenders = _loaded(opened, record)
    asked, comparison = opened.config.workload.key, record.final_comparison
    if comparison.workload == asked and comparison.loads.keys() == contenders.keys():
        return
    count = counted(len(contenders), "deployment")
    opened.notify(f"{count} with items that come by themselves")
    if opened.config.objective == "cores":  # its goodput does not matter
        workload = replace(workload, limit_ms=None)
    calm, loads = Calm(opened.config.measure.seconds, opened.notify), {}
    with opened.device_lock():
        for name, (deployment, period) in contenders.items():
            load = replace(workload, delay_ms=_delay(opened, name, deployment, period))
            test = calm.measured(
                f"{'trial ' if name.isdecimal() else ''}{name} under load",
                partial(opened.bench.under_load, deployment, load, period),
                lambda result: result.disturbances,
            )
            loads[name] = asdict(test)
    document = mapping(opened.study.user_attrs.get(COMPARISON))
    opened.study.set_user_attr(COMPARISON, {**document, "workload": asked, "loads": loads})


def _delay(opened: OpenStudy, name: str, deployment: Deployment, period: Spread) -> float:
    """The delay of the batches of a contender."""
    measured = {str(m.number): m for m in opened.history().trials}.get(name)
    stages = measured.stages if measured else deployment.stages
    stage_ms = measured.stage_ms if measured else (period.median * deployment.replicas[0],)
    return served(opened.goal.workload, stages, stage_ms, period.median)[1]


def _loaded(opened: OpenStudy, record: StudyRecord) -> dict[str, tuple[Deployment, Spread]]:
    """What is measured under load, with its period, by what it is stored by."""
    contenders = [*_trials(opened, record), *_baselines(opened, record)]
    if not opened.goal.is_served and any(contender.deployment for contender in contenders):
        contenders = [judge(contenders)[0]]
    return {_key(c): (c.deployment, c.time) for c in contenders if c.deployment is not None}
