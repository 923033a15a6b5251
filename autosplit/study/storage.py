"""Where a study is stored: a SQLite file, or any database that Optuna can open.

Every failure of a storage becomes an error of one line: MachineError, or ConfigError for a wrong
name. This module imports Optuna at its top; import it only where a study is opened.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages._rdb.models import BaseModel
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    ProgrammingError,
    SQLAlchemyError,
)

from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.extras import install
from autosplit.printable import printable

OnStale = Callable[[optuna.Study, FrozenTrial], None]

VARIABLE = "AUTOSPLIT_STORAGE"
LOCK_WAIT = 60.0  # seconds that a writer waits for another one on a SQLite file
BEATS_PER_LEASE = 4  # heartbeats in the time of a lease


class Database(optuna.storages.RDBStorage):
    """Optuna's storage, whose heartbeats survive a database that fails for a moment.

    A lasting failure shows when a result is written, not as a traceback of the heartbeat thread.
    ``first_attributes``: attributes that each new trial has from the start, such as its worker.
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


def storage_url(name: str, option: str | None = None, configured: str | None = None) -> str:
    """The URL of a storage.

    It is ``option`` (a URL, or the path of a SQLite file), else AUTOSPLIT_STORAGE, else as
    ``configured`` in the study file, else ``<name>.db`` in the working folder.
    """
    location = option or os.environ.get(VARIABLE) or configured or f"{name}.db"
    if "://" in location:
        return location
    # '?' would begin the options of the URL and '%' an escape.
    return "sqlite:///" + str(Path(location).absolute()).replace("%", "%25").replace("?", "%3F")


def parsed(url: str) -> URL:
    """The parts of a database URL. Raises ArgumentError for another text."""
    try:
        return make_url(url)
    except ValueError:  # whose text may hold a part of the password
        raise ArgumentError("the port is no number") from None


def redact_password(url: str) -> str:
    """A URL for messages: without its password, or for SQLite the path of the file."""
    try:
        parts = parsed(url)
    except ArgumentError:
        return url.split("://")[0] + "://..."
    if parts.get_backend_name() == "sqlite" and parts.database:
        return parts.database
    return parts.render_as_string(hide_password=True)


@contextlib.contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Turn the errors of a full, broken or unreachable storage into one line with a remedy."""
    shown = redact_password(url)
    failures = optuna.exceptions.StorageInternalError, SQLAlchemyError, sqlite3.Error
    try:
        yield
    except ArgumentError:
        remedy = "give a file path or postgresql+psycopg://USER@HOST/NAME"
        raise ConfigError(f"storage '{shown}' is not a database URL; {remedy}") from None
    except (*failures, AssertionError, UnboundLocalError) as error:
        # Optuna 5 raises the last two over the error of a storage that cannot tell the state of a
        # trial, and a failed assertion for a write that never arrived, mostly on a full disk.
        cause = error if isinstance(error, failures) else error.__context__
        if isinstance(cause, failures):
            message = f"failed: {cause_line(cause)}; repair it and run again"
        elif str(error) == "Should not reach.":
            message = "lost a write; is its disk full? free some space and run again"
        else:
            raise
        raise MachineError(f"storage '{shown}' {message}") from error


def missing_driver(url: str, error: ImportError) -> MachineError:
    """The error for a database whose driver is not installed."""
    missing = line_of(error.__cause__ or error)
    remedy = "pip install it"
    if url.startswith("postgresql"):
        spelling = "write postgresql+psycopg://… and " if "psycopg2" in missing else ""
        remedy = spelling + install("postgres")
    return MachineError(
        f"storage '{redact_password(url)}' needs a driver that is not installed: "
        f"{missing}; {remedy}"
    )


def connect(
    url: str,
    lease: int | None = None,
    on_stale: OnStale | None = None,
    first_attributes: dict[str, Any] | None = None,
) -> optuna.storages.BaseStorage:
    """Open a storage and create what is missing; ``lease`` in seconds for workers that measure.

    ``on_stale`` is called for a trial that failed because its worker sent no heartbeat for
    ``lease`` seconds; ``first_attributes`` are set on each new trial. Raises ConfigError if ``url``
    is no database URL or the database belongs to another program, MachineError if the storage
    cannot be used.
    """
    silence_optuna_logs()
    try:
        with storage_errors(url):
            _refuse_other_programs(url)
            try:
                storage = _open(url, lease, on_stale)
            except (IntegrityError, ProgrammingError):  # another worker made the tables meanwhile
                storage = _open(url, lease, on_stale)
            storage.first_attributes = first_attributes
            return optuna.storages.get_storage(storage)
    except ImportError as error:
        raise missing_driver(url, error) from None
    except (RuntimeError, ValueError) as error:  # another schema version
        shown = redact_password(url)
        raise MachineError(f"storage '{shown}' cannot be used: {error}; use another one") from None


def _refuse_other_programs(url: str) -> None:
    """Refuse a database that another program uses: Optuna would add its tables to it."""
    engine = sqlalchemy.create_engine(parsed(url), poolclass=sqlalchemy.pool.NullPool)
    inspector = sqlalchemy.inspect(engine)
    names = inspector.get_table_names()
    tables = {name: {column["name"] for column in inspector.get_columns(name)} for name in names}
    of_optuna = {t.name: {*t.columns.keys()} for t in BaseModel.metadata.sorted_tables}
    # A process that is killed while it makes the tables leaves some of them.
    if {"studies", "trials", "version_info"} <= {*names} or tables.items() <= of_optuna.items():
        return
    shown = ", ".join(sorted(map(printable, names))[:3])
    raise ConfigError(
        f"storage '{redact_password(url)}' belongs to another program (tables {shown}); "
        "give an empty or an Optuna database with --storage"
    )


def _open(url: str, lease: int | None, on_stale: OnStale | None) -> Database:
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": LOCK_WAIT}}
    return Database(
        url,
        options,
        heartbeat_interval=None if lease is None else max(1, lease // BEATS_PER_LEASE),
        grace_period=lease,
        heartbeat_stale_trial_callback=on_stale,
    )


def silence_optuna_logs() -> None:
    """Silence Optuna's log lines and its warnings of experimental parts."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def cause_line(error: BaseException) -> str:
    """The driver's own message: the first line of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    return line_of(error)
