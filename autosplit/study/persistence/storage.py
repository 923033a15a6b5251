"""Where a study lives: a SQLite file, or any database Optuna can open. Every failure of it is one MachineError line."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.extras import install
from autosplit.study.trials.heartbeat import BEATS

if TYPE_CHECKING:
    import optuna

VARIABLE = "AUTOSPLIT_STORAGE"
LOCK_WAIT = 60.0  # seconds a writer waits for another one on a SQLite file


def storage_url(name: str, given: str | None = None, configured: str | None = None) -> str:
    """The URL of a storage: as ``given`` (a URL, or the path of a SQLite file), else AUTOSPLIT_STORAGE, else as
    ``configured`` in the study file, else ``<name>.db`` in this folder.
    """
    given = given or os.environ.get(VARIABLE) or configured or f"{name}.db"
    if "://" in given:
        return given
    # '?' would start the options of the URL and '%' an escape
    return "sqlite:///" + str(Path(given).absolute()).replace("%", "%25").replace("?", "%3F")


def shown(url: str) -> str:
    """A URL as it may be printed: without its password, a SQLite file by its path."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        return url.split("://")[0] + "://..."
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return parsed.database
    return parsed.render_as_string(hide_password=True)


@contextlib.contextmanager
def guarded(url: str) -> Iterator[None]:
    """Turn whatever a storage raises when it is full, broken or gone into one line with what to do."""
    import optuna
    import sqlalchemy.exc

    try:
        yield
    except (
        optuna.exceptions.StorageInternalError,
        sqlalchemy.exc.SQLAlchemyError,
        sqlite3.Error,
    ) as error:
        raise MachineError(
            f"storage '{shown(url)}' failed: {_cause(error)}; see to it and run again"
        ) from error
    except (
        AssertionError
    ) as error:  # how Optuna 5 reports a write that never arrived, on a full disk above all
        raise MachineError(
            f"storage '{shown(url)}' lost a write; is its disk full? free some space and run again"
        ) from error


def without_driver(url: str, error: ImportError) -> MachineError:
    """What to say where the driver of a database is not installed."""
    missing = line_of(error.__cause__ or error)
    spelling = "write postgresql+psycopg://… and " if "psycopg2" in missing else ""
    remedy = spelling + install("postgres") if url.startswith("postgresql") else "pip install it"
    return MachineError(
        f"storage '{shown(url)}' needs a driver that is not installed: {missing}; {remedy}"
    )


def connect(url: str, lease: int | None = None) -> optuna.storages.BaseStorage:
    """Open a storage, made where it is missing; ``lease`` in seconds for those who measure.

    Raises ConfigError for what is no URL, MachineError otherwise.
    """
    import sqlalchemy.exc

    quiet()
    try:
        with guarded(url):
            return _open(url, lease)
    except MachineError as error:
        if isinstance(error.__cause__, sqlalchemy.exc.ArgumentError):
            raise ConfigError(
                f"storage '{shown(url)}' is no database URL; give a file path or postgresql+psycopg://USER@HOST/NAME"
            ) from None
        raise
    except ImportError as error:
        raise without_driver(url, error) from None
    except (RuntimeError, ValueError) as error:  # another schema version
        raise MachineError(
            f"storage '{shown(url)}' cannot be used: {error}; use another one"
        ) from None


def _open(url: str, lease: int | None) -> optuna.storages.BaseStorage:
    import optuna
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    interval = None if lease is None else max(1, lease // BEATS)
    options: dict[str, Any] = (
        {"connect_args": {"timeout": LOCK_WAIT}}
        if url.startswith("sqlite")
        else {"pool_pre_ping": True}
    )

    def database() -> optuna.storages.BaseStorage:
        made = optuna.storages.RDBStorage(
            url, options, heartbeat_interval=interval, grace_period=lease
        )
        return optuna.storages.get_storage(made)

    try:
        return database()
    except (IntegrityError, ProgrammingError):  # another worker made the tables in the same moment
        return database()


def connect_existing(url: str) -> optuna.storages.BaseStorage:
    """Open a storage that must be there; nothing is made. Raises ConfigError where it is not, or holds no studies."""
    from sqlalchemy.engine import make_url

    if url.startswith("sqlite"):
        file = Path(make_url(url).database or "")
        if not file.is_file():
            raise ConfigError(
                f"storage '{file}' does not exist; start one with: autosplit run STUDY.toml"
            )
        with (
            guarded(url),
            contextlib.closing(
                sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
            ) as base,
        ):
            if not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'").fetchone():
                raise ConfigError(
                    f"storage '{file}' holds no studies; give the database of a study"
                )
    return connect(url)


def set_attributes(
    study: optuna.Study,
    trial_id: int,
    values: Mapping[str, Any],
    parameters: Mapping[str, float] | None = None,
) -> None:
    """Write user attributes of a trial that may have been created by another process, and parameters between 0 and 1.

    In a database all is written or nothing. Raises Optuna's UpdateFinishedTrialError where the trial is finished.
    """
    import optuna

    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    storage = study._storage
    backend = getattr(storage, "_backend", storage)
    if not isinstance(backend, optuna.storages.RDBStorage):
        for key, value in values.items():
            storage.set_trial_user_attr(trial_id, key, value)
        for name, share in (parameters or {}).items():
            storage.set_trial_param(trial_id, name, share, unit)
        return
    # Optuna's own writes are a transaction each, with a wait for the disk, and look the trial up each time
    from optuna.storages._rdb.models import TrialModel, TrialParamModel, TrialUserAttributeModel
    from optuna.storages._rdb.storage import _create_scoped_session

    with _create_scoped_session(backend.scoped_session, True) as session:
        state: Any = TrialModel.find_or_raise_by_id(trial_id, session).state
        backend.check_trial_is_updatable(trial_id, state)
        if (upsert := _upsert(backend.engine.name)) is None:
            for key, value in values.items():
                backend._set_trial_attr_without_commit(
                    session, TrialUserAttributeModel, trial_id, key, value
                )
        elif values:
            rows = [
                {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
                for key, value in values.items()
            ]
            session.execute(upsert, rows)
        if parameters:
            told = {
                "trial_id": trial_id,
                "distribution_json": optuna.distributions.distribution_to_json(unit),
            }
            rows = [
                {**told, "param_name": name, "param_value": share}
                for name, share in parameters.items()
            ]
            session.execute(TrialParamModel.__table__.insert(), rows)


@lru_cache
def _upsert(dialect: str) -> Any:
    """The statement that writes user attributes of trials, new or not; None for a database that Optuna does without one."""
    from optuna.storages._rdb.models import TrialUserAttributeModel
    from sqlalchemy.dialects import postgresql, sqlite

    if dialect not in ("sqlite", "postgresql"):
        return None
    table = TrialUserAttributeModel.__table__
    statement: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    return statement.on_conflict_do_update(
        index_elements=[table.c.trial_id, table.c.key],
        set_={"value_json": statement.excluded.value_json},
    )


def set_once(study: optuna.Study, key: str, value: Any) -> Any:
    """Store a user attribute of a study unless it has it; of several who do so at once, on any host, the first one wins.

    Returns what is stored now.
    """
    import optuna

    storage = study._storage
    backend = getattr(storage, "_backend", storage)
    if isinstance(backend, optuna.storages.RDBStorage):
        from optuna.storages._rdb.models import StudyUserAttributeModel
        from optuna.storages._rdb.storage import _create_scoped_session

        with _create_scoped_session(
            backend.scoped_session, True
        ) as session:  # a second row of the key is not taken
            session.add(
                StudyUserAttributeModel(
                    study_id=study._study_id, key=key, value_json=json.dumps(value)
                )
            )
    elif key not in study.user_attrs:
        study.set_user_attr(key, value)
    return study.user_attrs[key]


def quiet() -> None:
    """Silence Optuna's own log lines and its warnings of experimental parts; what matters is said by the run loop."""
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings(
        "ignore", message="Heartbeat of storage is supposed to be used with Study.optimize"
    )


def _cause(error: BaseException) -> str:
    """The driver's own words: the innermost cause, its first line."""
    while error.__cause__ is not None:
        error = error.__cause__
    inner = getattr(error, "orig", None) or error
    return line_of(inner)
