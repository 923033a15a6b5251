"""Finds the study that a user names, and opens it read-only.

Databases are untrusted: a reader writes nothing and runs no function that a database names.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from autosplit.errors import AutosplitError, ConfigError, MachineError
from autosplit.files import open_regular
from autosplit.study import storage as storages
from autosplit.study.config.study_file import load
from autosplit.study.record import FORMAT, RECORD

_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
# SQLite's answer when Optuna looks for its first rows, finds none and tries to insert them
_UNINITIALISED = "attempt to write a readonly database"
_LOCK_TIMEOUT = 10.0  # seconds a reader waits for a writer of a SQLite file


@dataclass(frozen=True)
class StudyReader:
    """Reads one study: the storage by its URL, and the study in it by name.

    Without a name it is the only autosplit study of the storage.
    """

    url: str
    name: str | None

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for another storage."""
        with storages.storage_errors(self.url):
            url = storages.parsed(self.url)
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    @property
    def location(self) -> str:
        """The storage as it may be printed, without a password."""
        return storages.redact_password(self.url)

    @contextlib.contextmanager
    def open(self) -> Iterator[optuna.Study]:
        """The study, opened read-only: SQLite by its file mode, PostgreSQL by its transactions.

        Raises:
            ConfigError: the storage has no such study, or is damaged.
            MachineError: the storage cannot be reached.
        """
        storages.silence_optuna_logs()
        with self._one_line_errors():
            self._check()
            storage = optuna.storages.RDBStorage(skip_table_creation=True, **self._options())
            try:
                name = self._study_name(storage)
                yield optuna.load_study(study_name=name, storage=storage)
            finally:
                storage.engine.dispose()

    @contextlib.contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turn any error of a missing, locked, damaged or hostile storage into a one-line error."""
        try:
            yield
        except (AutosplitError, BrokenPipeError, MemoryError):
            # what happens while it is open: a reader of the output leaves, the memory is full
            raise
        except ImportError as error:
            raise storages.missing_driver(self.url, error) from error
        except Exception as error:
            # the database is untrusted: its rows can make Optuna raise anything
            line = storages.cause_line(error)
            # Optuna wraps the error of a server that cannot be reached, and of missing tables
            wrapped = self.file is None and isinstance(error.__cause__, OperationalError)
            if isinstance(error, OperationalError) or wrapped:
                raise MachineError(
                    f"storage '{self.location}' cannot be read: {line}; repair it and try again"
                ) from error
            remedy = "give a study file (.toml) or the database of a study"
            problem = f"is damaged or not a study: {line}; {remedy}"
            if self.file is not None and _UNINITIALISED in line:
                problem = "was created but never initialised; run the study again"
            raise ConfigError(f"storage '{self.location}' {problem}") from error

    def _check(self) -> None:
        """Raises ConfigError for an invalid URL, and for a file that cannot be read."""
        file = self.file
        if file is None:
            return
        try:
            open_regular(file).close()
        except FileNotFoundError:
            raise ConfigError(
                f"study database '{file}' does not exist; `autosplit run STUDY.toml` creates one"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"study database '{file}' cannot be read: {error.strerror}; give a readable file"
            ) from None

    def _options(self) -> dict[str, Any]:
        """The arguments of RDBStorage."""
        # SQLAlchemy would keep one connection a thread for a URL without a file.
        options: dict[str, Any] = {"poolclass": NullPool}
        if file := self.file:
            options["creator"] = lambda: _connect(file)
            return {"url": "sqlite://", "engine_kwargs": options}
        if storages.parsed(self.url).get_backend_name() == "postgresql":
            read_only = "-c default_transaction_read_only=on"
            options["connect_args"] = {"options": read_only, "connect_timeout": 10}
        return {"url": self.url, "engine_kwargs": options}

    def _study_name(self, storage: optuna.storages.BaseStorage) -> str:
        """The name of the study to read, checked to be one of ours in a format we know."""
        # Other programs store their studies in the same database, without our mark.
        marks = {s.study_name: s.user_attrs.get(RECORD) for s in storage.get_all_studies()}
        studies = {name: mark for name, mark in marks.items() if isinstance(mark, dict)}
        names = ", ".join(sorted(studies)[:5]) + (", ..." if len(studies) > 5 else "")
        where = f"storage '{self.location}'"
        if self.name is None and not studies:
            raise ConfigError(f"{where} holds no study made by autosplit; give the database of one")
        if self.name is None and len(studies) > 1:
            raise ConfigError(
                f"{where} holds {len(studies)} studies ({names}); "
                f"give a name: NAME --storage {self.location}"
            )
        name = next(iter(studies)) if self.name is None else self.name
        if name not in marks:
            remedy = f"it holds {names}" if studies else "run it first"
            raise ConfigError(f"{where} holds no study '{name}'; {remedy}")
        if name not in studies:
            raise ConfigError(
                f"study '{name}' in {where} was not made by autosplit; give one that was"
            )
        found_format = studies[name].get("format")
        if found_format != FORMAT:
            raise ConfigError(
                f"study '{name}' in {where} has format {found_format!r}, "
                f"this version reads {FORMAT}; use the version that measured it, or measure again"
            )
        return name


def find_study(study: str, storage: str | None = None) -> StudyReader:
    """The study that a user means by a study file, a name in ``storage``, a database or a URL.

    Raises ConfigError for a study file that cannot be read.
    """
    path = Path(study)
    if path.suffix == ".toml":
        config = load(path)
        url = storages.storage_url(config.name, storage, config.storage)
        return StudyReader(url, config.name)
    is_file = path.suffix in _DATABASE_SUFFIXES or path.is_file()
    if "://" in study or (is_file and not storage):
        return StudyReader(storages.storage_url("", study), None)
    return StudyReader(storages.storage_url(study, storage), study)


def _connect(file: Path) -> sqlite3.Connection:
    """A connection that cannot write and runs no function that a hostile schema names."""
    uri = file.absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_TIMEOUT, check_same_thread=False)
    try:
        # Opening reads nothing; only the first query finds a leftover journal.
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        connection = _rolled_back_copy(file)
    # https://www.sqlite.org/security.html: a view or trigger may call functions.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _rolled_back_copy(file: Path) -> sqlite3.Connection:
    """A copy in memory of a database whose writer was killed in a transaction.

    SQLite has to write to undo that transaction, so it does so in a copy.
    """
    with tempfile.TemporaryDirectory(prefix="autosplit-") as folder:
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{file}{suffix}", f"{folder}/copy{suffix}")
        memory = sqlite3.connect(":memory:", check_same_thread=False)
        with contextlib.closing(sqlite3.connect(f"{folder}/copy")) as copy:
            copy.backup(memory)
    return memory
