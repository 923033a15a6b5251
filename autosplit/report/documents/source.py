"""Which study is meant, and a reader of it that cannot change it, whoever wrote the database."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.errors import AutosplitError, ConfigError, MachineError, line_of
from autosplit.report.documents.record import FORMAT
from autosplit.study.persistence.storage import without_driver

if TYPE_CHECKING:
    import optuna

_SQLITE = b"SQLite format 3\x00"
_DATABASES = (".db", ".sqlite", ".sqlite3")
_UNWRITTEN = (
    "attempt to write a readonly database"  # what Optuna says where its first entries are missing
)
_LOCK_WAIT = 10.0  # seconds a reader waits for a writer of a SQLite file


@dataclass(frozen=True)
class Source:
    """A storage by its URL, and the study in it by name; without a name, the only autosplit study there."""

    url: str
    name: str | None

    @property
    def file(self) -> Path | None:
        """The SQLite file, None for another storage."""
        from sqlalchemy.engine import make_url

        url = make_url(self.url)
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    @property
    def shown(self) -> str:
        """The storage as it may be printed, without a password."""
        from autosplit.study.persistence.storage import shown

        return shown(self.url)


def find(study: str, storage: str | None = None) -> Source:
    """The source a user means by a study file, the path of a database, its URL, or a name in ``storage``.

    Raises ConfigError where nothing of that kind is there.
    """
    from autosplit.study.persistence.storage import storage_url

    path = Path(study)
    if path.suffix == ".toml":
        from autosplit.study.config.study_file import load

        config = load(path)
        return _checked(Source(storage_url(config.name, storage or config.storage), config.name))
    if "://" in study or path.suffix in _DATABASES or path.is_file():
        return _checked(Source(storage_url("", study), None))
    return _checked(Source(storage_url(study, storage), study))


@contextlib.contextmanager
def reading(source: Source) -> Iterator[optuna.Study]:
    """The study, opened so that nothing can be written: SQLite read-only, PostgreSQL in read-only transactions.

    Raises ConfigError where the storage holds no such study or is damaged, MachineError where it cannot be reached.
    """
    import optuna

    from autosplit.study.persistence.storage import quiet

    quiet()
    with told(source):
        storage = optuna.storages.RDBStorage(skip_table_creation=True, **_options(source))
        try:
            yield optuna.load_study(study_name=_choose(source, storage), storage=storage)
        finally:
            storage.engine.dispose()


@contextlib.contextmanager
def writing(source: Source) -> Iterator[optuna.Study]:
    """The study, opened for writing. Raises as ``reading`` does; the storage must exist and hold the study."""
    import optuna

    from autosplit.study.persistence.storage import connect_existing

    with reading(source) as found:
        name = found.study_name
    with told(source):
        yield optuna.load_study(study_name=name, storage=connect_existing(source.url))


def _checked(source: Source) -> Source:
    """The source, its URL readable and its SQLite file there; whether it holds a study shows when it is read."""
    import sqlalchemy.exc

    try:
        file = source.file
    except sqlalchemy.exc.ArgumentError:
        raise ConfigError(
            f"storage '{source.shown}' is no database URL; give a file path or postgresql+psycopg://USER@HOST/NAME"
        ) from None
    if file is None:
        return source
    try:
        with file.open("rb") as stream:
            head = stream.read(len(_SQLITE))
    except FileNotFoundError:
        raise ConfigError(
            f"no study at '{file}': the file does not exist; autosplit run STUDY.toml makes one"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"study database '{file}' cannot be read: {error.strerror}; give a readable file"
        ) from None
    if head != _SQLITE:
        found = "is empty" if not head else "is no SQLite database"
        raise ConfigError(f"'{file}' {found}; give a study file (.toml) or the database of a study")
    return source


def _options(source: Source) -> dict[str, Any]:
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import NullPool

    if file := source.file:
        return {
            "url": "sqlite://",
            "engine_kwargs": {"creator": lambda: _open(file), "poolclass": NullPool},
        }
    options: dict[str, Any] = {"poolclass": NullPool}
    if make_url(source.url).get_backend_name() == "postgresql":
        options["connect_args"] = {
            "options": "-c default_transaction_read_only=on",
            "connect_timeout": 10,
        }
    return {"url": source.url, "engine_kwargs": options}


def _open(file: Path) -> sqlite3.Connection:
    """A connection that cannot write and runs no function a hostile schema names."""
    uri = file.absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        connection = _rolled_back(file)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _rolled_back(file: Path) -> sqlite3.Connection:
    """A copy in memory of a database whose writer was killed in a transaction: SQLite must write to undo it."""
    with tempfile.TemporaryDirectory(prefix="autosplit-") as folder:
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{file}{suffix}", f"{folder}/copy{suffix}")
        memory = sqlite3.connect(":memory:", check_same_thread=False)
        with contextlib.closing(sqlite3.connect(f"{folder}/copy")) as copied:
            copied.backup(memory)
    return memory


def _choose(source: Source, storage: optuna.storages.BaseStorage) -> str:
    every = {s.study_name: s.user_attrs.get("autosplit") for s in storage.get_all_studies()}
    own = {name: mark for name, mark in every.items() if isinstance(mark, dict)}
    names = ", ".join(sorted(own)[:5]) + (", ..." if len(own) > 5 else "")
    where = f"storage '{source.shown}'"
    if source.name is None:
        if not own:
            raise ConfigError(f"{where} holds no study made by autosplit; give the database of one")
        if len(own) > 1:
            raise ConfigError(
                f"{where} holds {len(own)} studies ({names}); give a name: NAME --storage {source.shown}"
            )
        name = next(iter(own))
    else:
        name = source.name
        if name not in every:
            raise ConfigError(
                f"{where} holds no study '{name}'"
                + (f"; it holds {names}" if own else "; run it first")
            )
        if name not in own:
            raise ConfigError(
                f"study '{name}' in {where} was not made by autosplit; give one that was"
            )
    form = own[name].get("format")
    if form != FORMAT:
        raise ConfigError(
            f"study '{name}' in {where} has format {form!r}, this version reads {FORMAT}; update autosplit"
        )
    return name


@contextlib.contextmanager
def told(source: Source) -> Iterator[None]:
    """Turn what a missing, locked, damaged or hostile storage raises into one line."""
    import sqlalchemy.exc

    try:
        yield
    except (
        AutosplitError,
        BrokenPipeError,
    ):  # who reads what is printed may leave while the study is open
        raise
    except ImportError as error:
        raise without_driver(source.url, error) from error
    except (
        Exception
    ) as error:  # the database is untrusted: what its rows make Optuna raise is not foreseeable
        operational = sqlalchemy.exc.OperationalError
        # a server that cannot be reached comes wrapped by Optuna, and so does a SQLite file without tables
        if isinstance(error, operational) or (
            source.file is None and isinstance(error.__cause__, operational)
        ):
            raise MachineError(
                f"storage '{source.shown}' cannot be read: {_first_line(error)}; see to it, then again"
            ) from error
        if source.file is not None and _UNWRITTEN in _first_line(error):
            raise ConfigError(
                f"storage '{source.shown}' holds no study yet, the run that began it was stopped; run the study again"
            ) from error
        raise ConfigError(
            f"storage '{source.shown}' is damaged or no study: {_first_line(error)}; give another"
        ) from error


def _first_line(error: BaseException) -> str:
    inner = getattr(error, "orig", None) or error.__cause__ or error
    return line_of(inner)
