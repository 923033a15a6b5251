"""Export a split of a study: the best one at the end of a run, or any trial of a stored study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import used
from autosplit.deploy.targets.formats import NATIVE
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.bench.interface import Bench, deployed
from autosplit.hardware.measurement.results import (
    Accuracy,
    Measurement,
    RealTime,
    SplitResults,
    Spread,
)
from autosplit.hardware.runtimes.registry import sharing
from autosplit.serialization import load
from autosplit.study.config.objectives import of_study
from autosplit.study.loop.open import OpenStudy, identity_of
from autosplit.study.persistence import records
from autosplit.study.persistence.attributes import compared_baselines, spread_of
from autosplit.study.persistence.storage import storage_errors
from autosplit.study.trials.results import best_trial, period_of
from autosplit.units import milliseconds

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

    from autosplit.study.config.study_file import StudyConfig


def export_best_split(opened: OpenStudy) -> Path | None:
    """Export the best split into the folder ``export`` of the study file; None without one."""
    if not opened.config.export:
        return None
    with storage_errors(opened.url):
        attributes: dict[str, Any] = opened.study.user_attrs
        best = best_trial(opened.study.get_trials(deepcopy=False), attributes)
    if best is None:
        return None
    folder = Path(opened.config.export)
    _export_trial(opened.config, opened.bench, attributes, *best, folder)
    return folder


def faster_baseline(study: optuna.Study) -> str | None:
    """One line on the baseline that was faster than the best trial beyond noise; None without."""
    attributes = study.user_attrs
    best = best_trial(study.get_trials(deepcopy=False), attributes)
    baselines = compared_baselines(attributes)
    if best is None or not baselines:
        return None
    rival = min(baselines, key=lambda b: b.period_ms.median)
    # The intervals overlap: a tie is not called faster.
    if rival.period_ms.high >= best[1].low:
        return None
    times = milliseconds(rival.period_ms.median), milliseconds(best[1].median)
    return (
        f"faster than this split: the whole model ({rival.name}), {times[0]} an item instead of "
        f"{times[1]}; cores = N in the study file searches replicas and threads too"
    )


def export_stored_split(
    study: optuna.Study,
    folder: Path,
    number: int | None = None,
    format: str = NATIVE,
    onnx: bool = True,
    trust_kernels: bool = False,
) -> Path:
    """Export trial ``number`` of a stored study, by default the best; returns ``split.json``.

    ``format`` and ``onnx`` are those of ``write_split``. Nothing is measured, so the cores of the
    study need not be here. Raises ConfigError where the trial has no split to export in this
    format, or where model or machine are not those of the study; Infeasible where no trial was
    completed.
    """
    from autosplit.study.config.study_file import stored
    from autosplit.study.loop.benches import open_bench

    attributes = study.user_attrs
    trials = study.get_trials(deepcopy=False)
    chosen = (
        best_trial(trials, attributes)
        if number is None
        else _measured_trial(trials, attributes, number)
    )
    if chosen is None:
        raise Infeasible(f"study '{study.study_name}' has no completed trial; nothing to export")
    config = _on_stored_devices(stored(attributes.get("config"), study.study_name), attributes)
    bench = open_bench(config, measures=False, trust_kernels=trust_kernels)
    try:
        # The export would state times that this machine does not have.
        different = records.differences(attributes.get("identity", {}), identity_of(config, bench))
        if different:
            raise ConfigError(
                f"study '{study.study_name}' measured something else: {'; '.join(different)}; "
                "export where and as it was measured, or measure again with `autosplit run --force`"
            )
        _export_trial(config, bench, attributes, *chosen, folder, format, onnx)
    finally:
        bench.close()
    return folder / "split.json"


def _on_stored_devices(config: StudyConfig, attributes: Mapping[str, Any]) -> StudyConfig:
    """The study file with the devices that the study had, not those it would get here."""
    from autosplit.study.config.study_file import stored

    # Not as StudyAttributes has it, which cuts long texts. A database may hold anything.
    identity = attributes.get("identity")
    texts = identity.items() if isinstance(identity, dict) else ()
    known = {key: text for key, text in texts if isinstance(text, str)}
    if config.cores is not None:
        stored_cores = known.get("cores", "").split("; ")
        devices: dict[str, Any] = {"cores": stored_cores if any(stored_cores) else config.cores}
    else:
        devices = {"devices": known.get("devices", "").split() or config.devices}
    return stored(config.model_dump() | devices, config.name)


def _measured_trial(
    trials: Sequence[FrozenTrial], attributes: Mapping[str, Any], number: int
) -> tuple[FrozenTrial, Spread]:
    periods = {t.number: period_of(t, of_study(attributes)) for t in trials}
    exportable = sorted(n for n, period in periods.items() if period is not None)
    trial = next((t for t in trials if t.number == number), None)
    period = periods.get(number)
    if trial is not None and period is not None:
        return trial, period
    remedy = f"those that can be exported are {exportable or 'none'}"
    if trial is None:
        raise ConfigError(f"trial {number} does not exist; {remedy}")
    if trial.state.name == "FAIL":
        reason = trial.user_attrs.get("error", "no reason recorded")
        raise ConfigError(f"trial {number} failed ({reason}); {remedy}")
    raise ConfigError(f"trial {number} is {trial.state.name.lower()}; {remedy}")


def _export_trial(
    config: StudyConfig,
    bench: Bench,
    attributes: Mapping[str, Any],
    trial: FrozenTrial,
    period: Spread,
    folder: Path,
    format: str = NATIVE,
    onnx: bool = True,
) -> None:
    stored = trial.user_attrs
    # Studies of before may lack a latency.
    latency = spread_of(stored.get("latency_ms")) or Spread(0.0, 0.0, 0.0)
    accuracy = Accuracy(True, 0.0, float(stored.get("max_rel_error", 0.0)), 0)
    verdict = attributes.get("verdict")
    paced = (attributes.get("duel") or {}).get("real_time") or {}
    stages = tuple(tuple(map(int, ops)) for ops in stored["stages"])
    stage_ms = tuple(used(stages, stored["stage_ms"]))
    if config.cores is None:
        deployment = deployed(bench, stages, stored.get("runtimes") or ())
    else:
        runtimes = stored.get("runtimes") or (bench.runtimes[0],) * len(stages)
        shape = stages, stored["replicas"], stored["threads"], runtimes
        deployment = Deployment.on_cores(*shape, config.core_kinds, stored.get("kinds") or ())
    if stored.get(records.SHARED):
        deployment = sharing(deployment) or deployment
    bench.export(
        deployment,
        folder,
        SplitResults(
            measured=Measurement(period, latency, stage_ms, accuracy),
            predicted=stored.get("predicted_ms"),
            baselines=compared_baselines(attributes),
            verdict=verdict.get("text") if isinstance(verdict, dict) else None,
            real_time=load(RealTime, paced) if paced.get("number") == trial.number else None,
            streams=config.streams,
        ),
        format,
        onnx,
    )
