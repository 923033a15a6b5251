"""Optuna's SQL storage, whose heartbeats survive a database that fails for a moment.

Imports Optuna at once, so it is imported late.
"""

from __future__ import annotations

import contextlib

import optuna
from sqlalchemy.exc import SQLAlchemyError


class Database(optuna.storages.RDBStorage):
    """Whatever fails there shows when a result is written, not as a traceback of a thread."""

    def record_heartbeat(self, trial_id: int) -> None:
        """Record that the worker of a trial is alive, if the database can be reached."""
        with contextlib.suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
            super().record_heartbeat(trial_id)
