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
from autosplit.serialization import load
from autosplit.study.documents import differences
from autosplit.study.loop.open import OpenStudy, identity_of
from autosplit.study.record import (
    RECORD,
    StudyRecord,
    compared_baselines,
    mapping,
    record_of,
    study_record,
)
from autosplit.study.results import BestTrial, best_of_study, error_of
from autosplit.study.storage import storage_errors
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
        record, best = study_record(opened.study.user_attrs), best_of_study(opened.study)
    if best is None:
        return None
    folder = Path(opened.config.export)
    _export_trial(opened.config, opened.bench, record, best, folder)
    return folder


def faster_baseline(study: optuna.Study) -> str | None:
    """One line on the baseline that was faster than the best trial beyond noise; None without."""
    best, baselines = best_of_study(study), compared_baselines(study.user_attrs)
    if best is None or not baselines:
        return None
    rival = min(baselines, key=lambda b: b.period_ms.median)
    # The intervals overlap: a tie is not called faster.
    if rival.period_ms.high >= best.period_ms.low:
        return None
    times = milliseconds(rival.period_ms.median), milliseconds(best.period_ms.median)
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
    record, stored_record = study_record(attributes), mapping(attributes.get(RECORD))
    trials = study.get_trials(deepcopy=False)
    chosen = best_of_study(study) if number is None else _measured_trial(trials, record, number)
    if chosen is None:
        raise Infeasible(f"study '{study.study_name}' has no completed trial; nothing to export")
    config = stored(stored_record.get("config"), study.study_name)
    config = _on_stored_devices(config, stored_record)
    bench = open_bench(config, measures=False)
    try:
        # The export would state times that this machine does not have.
        identity = mapping(stored_record.get("identity"))
        different = differences(identity, identity_of(config, bench))
        if different:
            raise ConfigError(
                f"study '{study.study_name}' measured something else: {'; '.join(different)}; "
                "export where and as it was measured, or measure again with `autosplit run --force`"
            )
        _export_trial(config, bench, record, chosen, folder, format, onnx)
    finally:
        bench.close()
    return folder / "split.json"


def _on_stored_devices(config: StudyConfig, stored_record: Mapping[str, Any]) -> StudyConfig:
    """The study file with the devices that the study had, not those it would get here."""
    from autosplit.study.config.study_file import stored

    # Not as StudyRecord has it, which cuts long texts. A database may hold anything.
    texts = mapping(stored_record.get("identity")).items()
    known = {key: text for key, text in texts if isinstance(text, str)}
    if config.cores is not None:
        stored_cores = known.get("cores", "").split("; ")
        devices: dict[str, Any] = {"cores": stored_cores if any(stored_cores) else config.cores}
    else:
        devices = {"devices": known.get("devices", "").split() or config.devices}
    return stored(config.model_dump() | devices, config.name)


def _measured_trial(trials: Sequence[FrozenTrial], study: StudyRecord, number: int) -> BestTrial:
    """The trial of a number as if it were the best."""
    complete = [t for t in trials if t.state.name == "COMPLETE"]
    records = {t.number: study.final_comparison.of(t.number, record_of(t)) for t in complete}
    exportable = sorted(n for n, record in records.items() if record.period_ms)
    record = records.get(number)
    if record is not None and record.period_ms:
        return BestTrial(number, record.period_ms, record)
    trial = next((t for t in trials if t.number == number), None)
    remedy = f"those that can be exported are {exportable or 'none'}"
    if trial is None:
        raise ConfigError(f"trial {number} does not exist; {remedy}")
    if trial.state.name == "FAIL":
        raise ConfigError(f"trial {number} failed ({error_of(trial)}); {remedy}")
    raise ConfigError(f"trial {number} is {trial.state.name.lower()}; {remedy}")


def _export_trial(
    config: StudyConfig,
    bench: Bench,
    study: StudyRecord,
    best: BestTrial,
    folder: Path,
    format: str = NATIVE,
    onnx: bool = True,
) -> None:
    record, paced = best.record, study.final_comparison.real_time
    latency = record.latency_ms or Spread(0.0, 0.0, 0.0)
    accuracy = Accuracy(True, 0.0, record.max_rel_error or 0.0, 0)
    stages = record.stages
    stage_ms = tuple(used(stages, record.stage_ms))
    if config.cores is None:
        deployment = deployed(bench, stages, record.runtimes)
    else:
        runtimes = record.runtimes or (bench.runtimes[0],) * len(stages)
        shape = stages, record.replicas, record.threads, runtimes
        deployment = Deployment.on_cores(*shape, config.core_kinds, record.kinds)
    is_paced = paced.get("number") == best.number
    paced = {key: value for key, value in paced.items() if key != "number"}
    bench.export(
        deployment,
        folder,
        SplitResults(
            measured=Measurement(best.period_ms, latency, stage_ms, accuracy),
            predicted=record.predicted_ms,
            baselines=study.compared_baselines(),
            verdict=study.verdict.text or None,
            real_time=load(RealTime, paced) if is_paced else None,
            streams=config.streams,
        ),
        format,
        onnx,
    )
