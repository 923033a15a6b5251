"""The export of a study's best split, where its study file asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autosplit.hardware.results import Accuracy, Measurement, Spread
from autosplit.study import records
from autosplit.study.conclude import best_trial
from autosplit.study.open import OpenStudy
from autosplit.study.storage import guarded


def export_best(on: OpenStudy) -> Path | None:
    """Export the best split into the folder ``export`` of the study file; None where it names none."""
    if not on.config.export:
        return None
    from autosplit import api

    with guarded(on.url):
        attributes: dict[str, Any] = on.study.user_attrs
        best = best_trial(on.study.get_trials(deepcopy=False), attributes)
    if best is None:
        return None
    trial, period = best
    stored = trial.user_attrs
    latency = records.read_spread(stored.get("latency_ms")) or Spread(0.0, 0.0, 0.0)
    error = float(stored.get("max_rel_error", 0.0))
    folder = Path(on.config.export)
    api.export_split(
        on.bench,  # type: ignore[arg-type]  # only the tvm backend may ask for an export
        on.space.split(stored["key"]),
        folder,
        measured=Measurement(period, latency, tuple(stored["stage_ms"]), Accuracy(True, 0.0, error, 0)),
        predicted=stored.get("predicted_ms"),
        baselines=records.read_baselines(attributes.get("baselines")),
        verdict=attributes["verdict"]["text"],
    )
    return folder
