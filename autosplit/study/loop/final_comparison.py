"""The end of a run: the best candidates and the baselines measured interleaved, then the verdict.

Both results are stored with the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.baselines import strongest
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import history_of
from autosplit.study.loop.deployment_verdict import judge_deployment
from autosplit.study.loop.verdict import Verdict, judge
from autosplit.study.persistence import records
from autosplit.study.persistence.attributes import StudyAttributes, compared_baselines
from autosplit.study.persistence.storage import storage_errors
from autosplit.study.progress import Progress, duration
from autosplit.study.surrogate.cost_correction import Corrected, Measured
from autosplit.study.trials.results import best_trial
from autosplit.units import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from autosplit.study.loop.open import OpenStudy

FINALISTS = 4  # candidates in the final comparison at most
NOISES = 3  # a candidate expected to be slower than the best by more times the noise is left out


def conclude(opened: OpenStudy, progress: Progress) -> None:
    """Compare the best candidates, judge, and store corrected costs, comparison and verdict."""
    with storage_errors(opened.url):
        trials = opened.study.get_trials(deepcopy=False)
        attributes = opened.study.user_attrs
    history = history_of(opened.space, trials)
    corrected = corrected_costs(opened.space, tuple(opened.bench.devices), history.measured)
    results: dict[str, Any] = {"corrected": _costs_document(corrected)}
    chosen: list[Measured] = []
    if "throughput" in opened.config.objectives:
        chosen = finalists(corrected, history.measured)
    is_new = not covers(attributes.get("duel"), chosen, len(history.measured))
    if chosen and is_new:
        progress.note(_announcement(opened, attributes, len(chosen)))
        with opened.device_lock.hold():
            known = compared_baselines(attributes)
            results["duel"] = _compare(opened, chosen, known, len(history.measured))
    stored = {**attributes, **results}
    fastest = best_trial(trials, stored, ("throughput",))
    if fastest is not None:
        verdict = _verdict(opened, *fastest, history.measured, stored)
        results["verdict"] = {"choice": verdict.choice, "text": verdict.text}
    with storage_errors(opened.url):
        for key, value in results.items():
            opened.study.set_user_attr(key, value)


def _verdict(
    opened: OpenStudy,
    trial: FrozenTrial,
    period: Spread,
    measured: Sequence[Measured],
    stored: Mapping[str, Any],
) -> Verdict:
    """What to make of the fastest trial; ``stored`` are the attributes of the study."""
    baselines = compared_baselines(stored)
    key = trial.user_attrs[records.KEY]
    candidate, runtimes = opened.space.split(key), opened.space.runtimes_of(key)
    if not isinstance(candidate, DeployedSplit):
        name = "best" if opened.config.objectives[0] == "throughput" else "fastest"
        names = [runtime for runtime in runtimes if runtime]
        return judge(sum(map(bool, candidate)), period, baselines, name, names)
    compared = StudyAttributes.model_validate(stored).duel.periods(len(measured))
    periods: dict[Deployment, Spread] = {}
    for m in measured:
        spread = compared.get(m.number, Spread(m.period_ms, m.period_ms, m.period_ms))
        periods[opened.deployment(m.candidate, m.runtimes)] = spread
    best = opened.deployment(candidate, runtimes)
    return judge_deployment(best, period, baselines, periods)


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
    """Whether a stored comparison is of these finalists, with nothing measured since."""
    if not isinstance(comparison, dict) or comparison.get("measured") != measured:
        return False
    numbers = [entry.get("number") for entry in comparison.get("entries", ())]
    return numbers == [m.number for m in chosen]


def _announcement(opened: OpenStudy, attributes: dict[str, Any], candidates: int) -> str:
    """What the comparison is of, and its limit where hardware is measured."""
    baselines = len(strongest(compared_baselines(attributes)))
    text = (
        f"final comparison: {counted(candidates, 'candidate')} and "
        f"{counted(baselines, 'baseline')}, interleaved"
    )
    if opened.config.runtime == "simulated":
        return text
    seconds = (candidates + baselines) * opened.config.measure.seconds
    return f"{text}, up to {duration(seconds)}"


def _compare(
    opened: OpenStudy, chosen: Sequence[Measured], known: Sequence[Baseline], measured: int
) -> dict[str, Any]:
    """Compare the finalists with the fastest of the ``known`` baselines; null stands for others."""
    candidates = [opened.deployment(m.candidate, m.runtimes) for m in chosen]
    rivals = strongest(known)
    candidate_periods, baseline_periods = opened.bench.compare_interleaved(candidates, rivals)
    entries = [
        {"number": m.number, "period_ms": records.document_of(period)}
        for m, period in zip(chosen, candidate_periods, strict=True)
    ]
    baselines: list[Any] = []
    for baseline in known:
        period = baseline_periods.get(baseline.name)
        baselines.append(None if period is None else records.document_of(period))
    return {"measured": measured, "entries": entries, "baselines": baselines}


def _costs_document(corrected: Corrected) -> dict[str, Any]:
    op_ms: list[list[float | None]] = []
    for row in corrected.costs.times:
        op_ms.append([t if t < float("inf") else None for t in row])
    return {
        "error": corrected.error,
        "noise": corrected.noise,
        "period_over_slowest_stage": corrected.ratio,
        "op_ms": op_ms,
        "overhead_ms": list(corrected.costs.overheads),
    }
