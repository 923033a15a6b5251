"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

The comparison is stored beside the trials, whose own figures stay as the search measured them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from autosplit import phases
from autosplit.deployment import Deployment, resources_of
from autosplit.errors import AutosplitError, MachineError, StageError
from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import Baseline, LoadTest, Measurement, Spread
from autosplit.hardware.profiling.cost_table import over_memory
from autosplit.planner.explain import forbidden_by_states
from autosplit.planner.workload import served
from autosplit.study.acquisition import Goal, corrected_costs
from autosplit.study.config.sections import Limits, Workload
from autosplit.study.documents import document_of, measured_document
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.verdict import Contender, judge
from autosplit.study.record import COMPARISON, FinalComparison, StudyRecord, mapping, record_of
from autosplit.study.surrogate.correction import Corrected, Measured, rounded
from autosplit.units import counted, digits, milliseconds

FINALISTS = 4  # candidates that are compared at most
NOISES = 3  # a candidate is left out if it is slower than the best by more than this many noises
Compared = tuple[dict[str, Measurement], Mapping[str, Baseline]]  # of trials and of baselines


def compare(opened: OpenStudy) -> None:
    """Compare the best candidates with the baselines, unless that is stored; not for latency."""
    if opened.config.objective == "latency":
        return
    before = opened.record.final_comparison.loads
    with opened.device_lock(), phases.step("final comparison"):
        # Other workers may have measured and compared while this one waited for the lock.
        history = opened.history()
        corrected, count = corrected_costs(opened.space, history.measured), len(history.trials)
        chosen = finalists(opened.goal, corrected, history.trials)
        if not chosen:
            return
        rivals = _rivals(opened)
        if not covers(opened.record.final_comparison, chosen, rivals, count):
            opened.study.set_user_attr(COMPARISON, _measured(opened, chosen, rivals, count))
        if opened.config.workload is not None:
            _compare_under_load(opened, opened.config.workload, before)


def verdict(opened: OpenStudy) -> dict[str, Any] | None:
    """The verdict on all that was measured, as it is stored; None if nothing can be chosen."""
    record, objective = opened.record, opened.config.objective
    contenders = list(_contenders(opened, record))
    if not any(contender.deployment for contender in contenders):
        if opened.goal.latency_ms == math.inf:
            return None
        # Nothing keeps the limit of the latency: advise what comes nearest to it.
        freed = opened.config.model_copy(update={"objective": "latency", "limits": Limits()})
        free, limit = replace(opened, config=freed), opened.goal.latency_ms
        nearest = verdict(free)
        is_kept = any(c.time.median <= limit for c in _contenders(free, record))
        which = "None of those compared at the end" if is_kept else "No measured deployment"
        line = f"\n{which} computes a lone item within {milliseconds(limit)}."
        return nearest and {**nearest, "text": nearest["text"] + line}
    loads, workload = record.final_comparison.loads, opened.goal.workload
    served = [c for c in map(partial(_served, opened, record), contenders) if c]
    is_exceeded = opened.goal.is_served and not served
    if served:
        contenders = served
    elif objective == "goodput" and (alone := list(_alone(contenders, loads))):
        # Even few items exceed the limit: advise what takes least for a lone item.
        contenders, objective = alone, "latency"
    elif is_exceeded:
        objective = "throughput"
    winner, text = judge(contenders, objective)
    costs = opened.space.costs
    for reason in filter(None, (over_memory(costs), forbidden_by_states(costs, 2))):
        text += f"\n{reason[0].upper()}{reason[1:]}."
    if is_exceeded:
        rate = f" at {digits(workload.rate)} items/s" if workload.rate else ""
        least = min((test.lone_ms for test in loads.values()), default=None)
        lone = f"; an item that comes alone takes {milliseconds(least)} at least" if least else ""
        most = milliseconds(workload.limit_ms or 0)
        text += f"\nNo measured deployment keeps {workload.quantile} {most}{rate}{lone}."
    if test := loads.get(winner.name):
        point = test.at(workload.rate)
        text += f"\nAt {point.text}." if point else ""
        text += f"\n{test.text[0].upper()}{test.text[1:]}." if test.text else ""
    named = {"baseline": winner.baseline} if winner.baseline else {"trial": winner.trial}
    return {"choice": winner.choice, "text": text, **named}


def _contenders(opened: OpenStudy, record: StudyRecord) -> Iterator[Contender]:
    """The trials and baselines of the final comparison; for latency all that were measured."""
    final, bench = record.final_comparison, opened.bench.description
    is_latency = opened.config.objective == "latency"
    trials, again = opened.study.get_trials(deepcopy=False), {b.name for b in final.baselines if b}
    measured: list[tuple[Deployment | None, Measurement, int | None, str]] = []
    for m in opened.history().trials:
        is_measured = m.latency_ms if is_latency else m.number in final.figures
        if is_measured and not final.error_of(m.number):
            stored = final.of(m.number, record_of(trials[m.number])).measurement()
            measured.append((opened.space.deployment(m.stages), stored, m.number, ""))
    for b in record.compared_baselines():
        if is_latency or b.name in again:
            # A baseline in another runtime, or over the limit of memory, is no answer to the study.
            is_asked = b.runtime in bench.runtimes and opened.space.holds(b)
            deployment = b.deployment(len(bench.graph.ops)) if is_asked else None
            measured.append((deployment, b.measurement, None, b.name))
    for deployment, figures, trial, baseline in measured:
        time = figures.latency_ms if is_latency else figures.period_ms
        is_allowed = not figures.latency_ms.median > opened.goal.latency_ms
        if is_allowed and not math.isnan(time.median):
            yield Contender(deployment, time, figures.disturbances, trial, baseline)


def _alone(contenders: Sequence[Contender], loads: Mapping[str, LoadTest]) -> Iterator[Contender]:
    """The contenders that were measured under load, with the latency of a lone item as time."""
    for contender in contenders:
        if test := loads.get(contender.name):
            time = Spread(test.lone_ms, test.lone_ms, test.lone_ms)
            yield replace(contender, time=time, disturbances=test.disturbances)


def _served(opened: OpenStudy, record: StudyRecord, contender: Contender) -> Contender | None:
    """A contender with its goodput or cores as time; None if it misses the limit or has none."""
    test = record.final_comparison.loads.get(contender.name)
    if test is None or contender.deployment is None or not opened.goal.is_served:
        return None
    workload = opened.goal.workload
    if opened.config.objective == "cores":
        point, limit = test.at(workload.rate), workload.limit_ms or math.inf
        if point is None or point.quantiles_ms[workload.quantile].median > limit:
            return None
        devices = [d for stage in contender.deployment.stages for d in stage.devices]
        cores = float(len({core for d in devices for core in resources_of(d) or (d,)}))
        return replace(contender, time=Spread(cores, cores, cores), disturbances=test.disturbances)
    slowest, fastest = test.goodput, test.exceeded or test.goodput
    if not (slowest and fastest):
        return None
    time = Spread(1e3 / slowest, 1e3 / fastest, 1e3 / slowest)
    return replace(contender, time=time, disturbances=test.disturbances)


def finalists(goal: Goal, corrected: Corrected, measured: Sequence[Measured]) -> list[Measured]:
    """The measured candidates that may be the best.

    They are the few that are expected to be best, and the fastest one within the latency limit.
    """
    batch = corrected.evaluator.batch([m.stages for m in measured])
    values = rounded(goal.values(corrected, batch, corrected.mean)).tolist()
    expected = {m.number: value for m, value in zip(measured, values, strict=True)}
    limit = min(expected.values(), default=0.0) * (1 + NOISES * corrected.noise)
    likely = [m for m in measured if expected[m.number] <= limit]
    if goal.objective == "cores" and limit < math.inf:
        # Predictions may be too good, so the fastest one with each number of cores may be best.
        slowest_first = sorted(measured, key=lambda m: -m.period_ms)
        likely = list({expected[m.number]: m for m in slowest_first}.values())
    chosen = sorted(likely, key=lambda m: expected[m.number])[:FINALISTS]
    allowed = [m for m in measured if m.latency_ms <= goal.latency_ms] or measured
    fastest = min(allowed, key=lambda m: m.period_ms, default=None)
    if fastest is not None and fastest not in chosen:
        chosen = [*chosen[: FINALISTS - 1], fastest]
    return sorted(chosen, key=lambda m: m.number)


def covers(
    comparison: FinalComparison, chosen: Sequence[Measured], rivals: Sequence[str], measured: int
) -> bool:
    """Whether a stored comparison is calm, of all these, and no trial is complete since."""
    able = [m.number for m in chosen if not comparison.error_of(m.number)]
    compared = {b.name for b in comparison.baselines if b} | comparison.errors.keys()
    is_same = list(comparison.figures) == able and compared.issuperset(rivals)
    return is_same and comparison.measured == measured and not comparison.disturbed


def _rivals(opened: OpenStudy) -> list[str]:
    """The baselines to compare.

    Chosen by the figures of the search, so that a repeated comparison has the same ones. If none
    keeps the limits of the latency, all may compete.
    """
    goal, known = opened.goal, opened.record.measured_baselines()
    limit = min(goal.latency_ms, (goal.is_served and goal.workload.limit_ms) or math.inf)
    return strongest([b for b in known if b.latency_ms.median <= limit] or known)


def _measured(
    opened: OpenStudy, chosen: Sequence[Measured], baselines: Sequence[str], count: int
) -> dict[str, Any]:
    """Measure finalists and baselines; ``count``: the number of complete trials."""
    candidates = counted(len(chosen), "candidate")
    others = counted(len(baselines), "baseline")
    opened.notify(f"final comparison: {candidates} and {others}, interleaved")
    trials = {str(m.number): opened.space.deployment(m.stages) for m in chosen}
    contenders = {**trials, **dict.fromkeys(baselines)}
    errors: dict[str, str] = {}

    def disturbances(compared: Compared) -> Sequence[str]:
        results = sorted(compared[0].values(), key=lambda result: result.period_ms.median)
        return results[0].disturbances if results else ()

    compared = Calm(opened.config.measure.seconds, opened.notify).measured(
        "the final comparison", partial(_interleaved, opened, contenders, errors), disturbances
    )
    measured, of_baselines = compared
    return {
        "measured": count,
        "entries": [{"number": int(n), **measured_document(m)} for n, m in measured.items()],
        "errors": errors,
        "baselines": list(map(document_of, of_baselines.values())),
        "disturbed": list(disturbances(compared)),
    }


def _interleaved(
    opened: OpenStudy, contenders: Mapping[str, Deployment | None], errors: dict[str, str]
) -> Compared:
    """Measure trials and baselines by their names; a baseline has no deployment.

    Those that fail are left out, and their errors are added to ``errors``.
    """
    able = {name: each for name, each in contenders.items() if name not in errors}
    trials = {name: deployment for name, deployment in able.items() if deployment}
    if not able:
        return {}, {}
    try:
        names = [name for name in able if name not in trials]
        measured, others = opened.bench.compare_interleaved([*trials.values()], names)
        return dict(zip(trials, measured, strict=True)), others
    except AutosplitError as error:
        if isinstance(error, MachineError):
            raise
        known = len(errors)
        # A crash does not say who caused it, so each is measured alone.
        for name in able if len(able) > 1 else ():
            _interleaved(opened, {name: able[name]}, errors)
        if len(errors) == known:  # they fail only side by side
            name = list(able)[-1]
            errors[name] = str(error)
            trial = "trial " if able[name] else ""
            opened.notify(f"{trial}{name} is left out of the final comparison: {error}")
    return _interleaved(opened, contenders, errors)


def _compare_under_load(opened: OpenStudy, asked: Workload, before: dict[str, LoadTest]) -> None:
    """Measure deployments under the workload of the study file, and store the load tests.

    For throughput only the winner is measured, else all that may be the best, fastest first.
    """
    workload, record, goal = opened.goal.workload, opened.record, opened.goal
    comparison = record.final_comparison
    able = [contender for contender in _contenders(opened, record) if contender.deployment]
    contenders = able if goal.is_served or not able else [judge(able)[0]]
    contenders.sort(key=lambda contender: contender.time.median)
    # A disturbed test of an earlier run is repeated, and those that its goodput has ended early.
    is_calm = comparison.loads != before or not any(t.disturbances for t in before.values())
    loads = dict(comparison.loads) if is_calm and comparison.workload == asked.key else {}

    def to_beat() -> float:
        """The greatest measured goodput; 0 if the objective of the study is another."""
        rates = [test.goodput or 0.0 for test in loads.values()]
        return max(rates, default=0.0) if goal.objective == "goodput" else 0.0

    def is_left(contender: Contender) -> bool:
        # No goodput is above the throughput with all items waiting.
        return contender.name not in loads and 1e3 / contender.time.median > to_beat()

    if any(map(is_left, contenders)):
        opened.notify("measuring the best deployments under load: items that come by themselves")
    if opened.config.objective == "cores":  # its goodput does not matter
        workload = replace(workload, limit_ms=None)
    calm = Calm(opened.config.measure.seconds, opened.notify)
    measured = {m.number: m for m in opened.history().trials}
    for contender in filter(is_left, contenders):
        period, deployment = contender.time, contender.deployment
        assert deployment
        stages, stage_ms = deployment.stages, [period.median * deployment.replicas[0]]
        if contender.trial is not None:
            trial = measured[contender.trial]
            stages, stage_ms = trial.stages, list(trial.stage_ms)
        delay = served(goal.workload, stages, stage_ms, period.median)[1]
        what = deployment, replace(workload, delay_ms=delay), period, to_beat()
        name = f"{'' if contender.baseline else 'trial '}{contender.name}"
        under_load = partial(opened.bench.under_load, *what)
        try:
            test = calm.measured(f"{name} under load", under_load, lambda t: t.disturbances)
        except StageError as error:
            opened.notify(f"{name} is left out: it fails under load: {error}")
            continue
        loads[contender.name] = test
        # Stored at once, so that an interrupted run continues with the next one.
        tests = {"workload": asked.key, "loads": {n: asdict(t) for n, t in loads.items()}}
        document = mapping(opened.study.user_attrs.get(COMPARISON))
        opened.study.set_user_attr(COMPARISON, document | tests)
