"""A study copied into memory for optuna-dashboard, so that nothing reaches its storage."""

from __future__ import annotations

from copy import copy as shallow_copy
from typing import Any

import optuna

from autosplit.report.documents.record import Study, Trial
from autosplit.study.config.sections import METRICS, objective_of

STUDY_ID = 1  # of the copy
_MAX_ATTRIBUTE = 2000  # characters


def copy(study: optuna.Study, record: Study) -> optuna.Study:
    """The trials, numbers and short attributes of a study.

    Notes and artifacts are not copied: they may come from anybody.
    """
    storage = optuna.storages.InMemoryStorage()
    # The pages take a study ID of 0 for a missing one.
    first = storage.create_new_study([optuna.study.StudyDirection.MINIMIZE])
    storage.create_new_trial(first)
    storage.delete_study(first)
    target = optuna.create_study(
        study_name=study.study_name, directions=study.directions, storage=storage
    )
    if len(study.directions) == 1:
        target.set_metric_names([METRICS[objective_of(record.record.config)]])
    target.set_user_attr("verdict", record.record.verdict.text)
    # A trial of a running study may have begun after ``record`` was read.
    for trial, read in zip(study.get_trials(deepcopy=False), record.trials, strict=False):
        bare = shallow_copy(trial)
        bare.user_attrs, bare.system_attrs = _attributes(read), {}
        target.add_trial(bare)
    return target


def _attributes(trial: Trial) -> dict[str, Any]:
    """The short values in the record of a trial, and each of its figures, for axes of plots."""
    record = trial.record
    short: dict[str, Any] = {
        key: value
        for key, value in record
        if isinstance(value, int | float | str) and 0 < len(str(value)) <= _MAX_ATTRIBUTE
    }
    short |= {f"stage{i}_ms": t for i, t in enumerate(record.stage_ms)}
    spreads = {"period": record.period_ms, "latency": record.latency_ms}
    spreads["final_period"] = trial.final.period_ms if trial.final else None
    return short | {name: spread.median for name, spread in spreads.items() if spread}
