"""Export the deployment that the verdict of a study advises, or any trial of the study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna

from autosplit.cuts.stages import cuts_of
from autosplit.deploy.targets.formats import NATIVE
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.measurement.results import Measurement, SplitResults
from autosplit.study.config.study_file import StudyConfig, stored
from autosplit.study.documents import differences
from autosplit.study.loop import benches
from autosplit.study.loop.open import OpenStudy, identity_of
from autosplit.study.record import RECORD, mapping, record_of, study_record
from autosplit.study.results import best_number, error_of, tally
from autosplit.study.storage import storage_errors

Exported = tuple[Deployment, SplitResults]


def export_best_split(opened: OpenStudy) -> Path | None:
    """Export the advised deployment to the folder ``export`` of the study file, or return None."""
    if not opened.config.export:
        return None
    with storage_errors(opened.url):
        chosen = _advised(opened.study, opened.config, opened.bench)
    if chosen is None:
        return None
    folder = Path(opened.config.export)
    opened.bench.export(chosen[0], folder, chosen[1], NATIVE, True)
    return folder


def export_stored_split(
    study: optuna.Study,
    folder: Path,
    number: int | None = None,
    format: str = NATIVE,
    onnx: bool = True,
    trust_kernels: bool = False,
) -> Path:
    """Export trial ``number`` of a stored study, by default what its verdict advises.

    Returns ``split.json``. ``format`` and ``onnx`` are those of ``write_split``. Nothing is
    measured, so the cores of the study need not be here. Raises ConfigError where the trial has no
    split to export in this format, or where model or machine are not those of the study; Infeasible
    where no trial was completed.
    """
    # Read without StudyRecord, which shortens long texts.
    document = mapping(study.user_attrs.get(RECORD))
    identity = mapping(document.get("identity"))
    name = study.study_name
    config = _on_stored_devices(document.get("config"), identity, name)
    bench = benches.open_bench(config, measures=False, trust_kernels=trust_kernels)
    try:
        chosen = _advised(study, config, bench, number)
        if chosen is None:
            raise Infeasible(f"study '{name}' has no completed trial; nothing to export")
        # Otherwise the export would state times that are not those of this model and machine.
        different = differences(identity, identity_of(config, bench))
        if different:
            raise ConfigError(
                f"study '{name}' measured something else: {'; '.join(different)}; "
                "export where and as it was measured, or measure again with `autosplit run --force`"
            )
        bench.export(chosen[0], folder, chosen[1], format, onnx)
    finally:
        bench.close()
    return folder / "split.json"


def _on_stored_devices(document: Any, identity: Mapping[str, Any], name: str) -> StudyConfig:
    """The study file with the devices that the study had, not those it would get here."""
    config = stored(document, name)
    key, separator = ("devices", " ") if config.cores is None else ("cores", "; ")
    text = identity.get(key)  # a database may hold anything
    known = [part for part in text.split(separator) if part] if isinstance(text, str) else []
    listed = config.devices or known or getattr(config, key)
    return stored(config.model_dump() | {key: listed}, name)


def _advised(
    study: optuna.Study, config: StudyConfig, bench: Bench, number: int | None = None
) -> Exported | None:
    """The deployment and results of trial ``number``, by default of the verdict or the best trial.

    A study with a given number of stages exports a split, even if the verdict advises a baseline.
    None if nothing was measured. Raises ConfigError if the trial cannot be exported.
    """
    record = study_record(study.user_attrs)
    verdict, baselines = record.verdict, record.compared_baselines()

    def results(name: str, measured: Measurement, predicted: float | None = None) -> SplitResults:
        load = record.final_comparison.loads.get(name)
        text = verdict.text or None
        return SplitResults(measured, predicted, baselines, text, load, config.streams)

    if number is None and config.stages == "auto":
        for baseline in baselines:
            deployment = baseline.deployment(len(bench.description.graph.ops))
            if deployment and baseline.name == verdict.baseline:
                return deployment, results(baseline.name, baseline.measurement)
    trials, final = study.get_trials(deepcopy=False), record.final_comparison
    complete = {t.number: final.of(t.number, record_of(t)) for t in tally(trials).complete}
    number = verdict.trial if number is None else number
    if number is None:
        number = best_number(record, complete, {t.number: t.values for t in trials})
    if number is None:
        return None
    trial = next((t for t in trials if t.number == number), None)
    state = "does not exist" if trial is None else f"is {trial.state.name.lower()}"
    if trial and trial.state.name == "FAIL":
        state = f"failed ({error_of(trial)})"
    if chosen := complete.get(number):
        try:
            measured = results(str(number), chosen.measurement(), chosen.predicted_ms)
            deployment = chosen.deployment()
            cuts_of(bench.description.graph, deployment.split)
            return deployment, measured
        except (ValueError, SplitError) as error:  # a database may hold anything
            state = f"is complete, but {error}"
    raise ConfigError(f"trial {number} {state}; complete trials are {sorted(complete) or 'none'}")
