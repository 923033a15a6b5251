"""Optuna's SQL storage, whose heartbeats survive a database that fails for a moment.

Imports Optuna at once, so it is imported late.
"""

from __future__ import annotations

import contextlib
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError


class Database(optuna.storages.RDBStorage):
    """Whatever fails there shows when a result is written, not as a traceback of a thread.

    ``first_attributes``: what a trial that begins has at once, such as its worker.
    """

    first_attributes: dict[str, Any] | None = None

    def record_heartbeat(self, trial_id: int) -> None:
        """Record that the worker of a trial is alive, if the database can be reached."""
        with contextlib.suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
            super().record_heartbeat(trial_id)

    def _create_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None = None
    ) -> FrozenTrial:
        if template_trial is None and self.first_attributes:
            attributes = dict(self.first_attributes)
            template_trial = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        return super()._create_new_trial(study_id, template_trial)
