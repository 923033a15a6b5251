"""How long the parts of a study measure at most, by the times of its study file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.devices.device import parse
from autosplit.hardware.measurement.baselines import BRIEFER, COMPARED, strongest, unsplit_runs
from autosplit.hardware.measurement.measure import Budget, longest_comparison
from autosplit.hardware.measurement.open_loop import STEPS
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.record import RECORD, mapping, study_record

FINALISTS = 4  # candidates in the final comparison at most


def before_trials(config: StudyConfig, bench: Bench) -> float:
    """The baselines, the trials and the final comparison of a study that has measured nothing."""
    described = bench.description
    places = [parse(name, anywhere=True) for name in described.devices]
    runs = sum(len(unsplit_runs(name, places, has_hint=True)) for name in described.runtimes)
    trials = config.search.trials * config.measure.seconds
    if config.search.timeout is not None:
        trials = min(trials, config.search.timeout)
    return runs * config.measure.seconds / BRIEFER + trials + of_comparison(config, {})


def of_comparison(
    config: StudyConfig,
    attributes: Mapping[str, Any],
    candidates: Sequence[tuple[float, int]] = ((0.0, 1),) * FINALISTS,
) -> float:
    """The final comparison; before the baselines are known, with as many as it may have.

    ``candidates``: the period in ms, 0 where it is not known, and the replicas of each.
    """
    if config.objective == "latency":
        return 0.0
    baselines = [(0.0, 1)] * COMPARED
    if "baselines" in mapping(attributes.get(RECORD)):
        known = study_record(attributes).compared_baselines()
        names = strongest(known)
        baselines = [(b.period_ms.median, b.copies * b.batch) for b in known if b.name in names]
    budget = Budget(**config.measure.model_dump())
    seconds = longest_comparison([*candidates, *baselines], budget)
    return seconds + under_load(config, len(candidates) + len(baselines))


def under_load(config: StudyConfig, contenders: int) -> float:
    """The test under the workload of the study, where it has one."""
    if config.workload is None:
        return 0.0
    if config.objective == "throughput":
        contenders = 1
    has_search = config.workload.p99_ms is not None and config.objective != "cores"
    return contenders * (STEPS if has_search else 1) * config.measure.seconds
