"""Handing a study's split over: the best of a run, or any trial of a stored study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.measurement.results import Accuracy, Measurement, Spread
from autosplit.study.loop.final_comparison import best_trial
from autosplit.study.loop.open import OpenStudy, identity_of
from autosplit.study.persistence import records
from autosplit.study.persistence.storage import guarded

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


def export_best(on: OpenStudy) -> Path | None:
    """Export the best split into the folder ``export`` of the study file; None where it names none."""
    if not on.config.export:
        return None
    with guarded(on.url):
        attributes: dict[str, Any] = on.study.user_attrs
        best = best_trial(on.study.get_trials(deepcopy=False), attributes)
    if best is None:
        return None
    folder = Path(on.config.export)
    _write(on.bench, attributes, *best, folder)
    return folder


def export_trial(study: optuna.Study, folder: Path, number: int | None = None) -> Path:
    """Export trial ``number`` of a stored study, the best by default; returns the path of ``split.json``.

    Raises ConfigError where the trial has no split to export, or where model or machine are no longer those of the study;
    Infeasible where no trial was completed.
    """
    from autosplit.study.config.study_file import stored
    from autosplit.study.loop.benches import open_bench

    attributes = study.user_attrs
    trials = study.get_trials(deepcopy=False)
    if number is None:
        best = best_trial(trials, attributes)
        if best is None:
            raise Infeasible(
                f"study '{study.study_name}' has no completed trial; nothing to export"
            )
        trial, period = best
    else:
        trial, period = _trial(trials, number)
    config = stored(attributes.get("config"), study.study_name)
    bench = open_bench(config)
    try:
        different = records.differences(attributes.get("identity", {}), identity_of(config, bench))
        if different:
            raise ConfigError(
                f"study '{study.study_name}' measured something else: {'; '.join(different)}; "
                "export where and as it was measured, or measure anew with `autosplit run --force`"
            )
        _write(bench, attributes, trial, period, folder)
    finally:
        bench.close()
    return folder / "split.json"


def _trial(trials: list[FrozenTrial], number: int) -> tuple[FrozenTrial, Spread]:
    measured = {
        t.number: (t, period)
        for t in trials
        if t.state.name == "COMPLETE"
        and (period := records.read_spread(t.user_attrs.get("period_ms")))
    }
    if number in measured:
        return measured[number]
    told = f"those that can be exported are {sorted(measured) or 'none'}"
    state = next((t.state.name.lower() for t in trials if t.number == number), None)
    if state == "fail":
        reason = next(t for t in trials if t.number == number).user_attrs.get(
            "error", "no reason recorded"
        )
        raise ConfigError(f"trial {number} failed ({reason}); {told}")
    raise ConfigError(f"trial {number} {f'is {state}' if state else 'does not exist'}; {told}")


def _write(
    bench: Bench, attributes: dict[str, Any], trial: FrozenTrial, period: Spread, folder: Path
) -> None:
    if not hasattr(bench, "export"):
        raise ConfigError(
            "simulated hardware has no stages to export; run the study on a real runtime"
        )
    stored = trial.user_attrs
    latency = records.read_spread(stored.get("latency_ms")) or Spread(0.0, 0.0, 0.0)
    error = float(stored.get("max_rel_error", 0.0))
    verdict = attributes.get("verdict")
    bench.export(
        tuple(tuple(map(int, ops)) for ops in stored["stages"]),
        folder,
        measured=Measurement(
            period, latency, tuple(stored["stage_ms"]), Accuracy(True, 0.0, error, 0)
        ),
        predicted=stored.get("predicted_ms"),
        baselines=records.read_baselines(attributes.get("baselines")),
        verdict=verdict.get("text") if isinstance(verdict, dict) else None,
    )
