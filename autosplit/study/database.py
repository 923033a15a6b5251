"""Optuna's SQL storage, whose heartbeats survive a database that fails for a moment.

Imports Optuna at once, so it is imported late.
"""

from __future__ import annotations

import contextlib

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from autosplit.study.record import RECORD
from autosplit.study.workers import this_worker


class Database(optuna.storages.RDBStorage):
    """Whatever fails there shows when a result is written, not as a traceback of a thread."""

    def record_heartbeat(self, trial_id: int) -> None:
        """Record that the worker of a trial is alive, if the database can be reached."""
        with contextlib.suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
            super().record_heartbeat(trial_id)

    def _create_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None = None
    ) -> FrozenTrial:
        # A trial that begins names its worker at once, so that others see when it dies.
        named = {RECORD: {"worker": this_worker()}}
        begun = template_trial or create_trial(state=TrialState.RUNNING, user_attrs=named)
        return super()._create_new_trial(study_id, begun)
