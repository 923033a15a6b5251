import resource
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy.exc

from autosplit.errors import ConfigError, MachineError
from autosplit.study.persistence.storage import (
    connect,
    connect_existing,
    guarded,
    set_attributes,
    set_once,
    shown,
    storage_url,
)
from autosplit.study.trials.heartbeat import beat, lapsed, renewed


def test_what_is_given_goes_before_the_environment_and_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOSPLIT_STORAGE", raising=False)
    assert storage_url("net") == f"sqlite:///{tmp_path}/net.db"
    assert storage_url("net", None, "mine.db") == f"sqlite:///{tmp_path}/mine.db"
    monkeypatch.setenv("AUTOSPLIT_STORAGE", "sqlite:///e.db")
    assert storage_url("net", None, "mine.db") == "sqlite:///e.db"
    assert storage_url("net", "given.db") == f"sqlite:///{tmp_path}/given.db"


@pytest.mark.parametrize("name", ["plain.db", "what?.db", "100%.db", "a b#c.db"])
def test_any_file_name_is_that_file(tmp_path: Path, name: str) -> None:
    url = storage_url("x", str(tmp_path / name))
    connect(url)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert shown(url) == str(tmp_path / name)
    connect_existing(url)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in shown("postgresql+psycopg://me:secret@host/base")
    assert "secret" not in shown("no url://me:secret@host")


def test_a_missing_database_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        connect_existing(storage_url("x", str(tmp_path / "x.db")))
    assert not list(tmp_path.iterdir())


def test_a_broken_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database " * 100)
    with pytest.raises(MachineError, match="file is not a database; see to it"):
        connect(storage_url("x", str(tmp_path / "x.db")))


def test_a_worker_that_reports_keeps_its_lease_and_a_silent_one_loses_it(tmp_path: Path) -> None:
    storage = connect(storage_url("x", str(tmp_path / "x.db")), lease=2)
    study = optuna.create_study(storage=storage)
    kept, silent = study.ask()._trial_id, study.ask()._trial_id
    for trial in (kept, silent):
        beat(study, trial)
    with closing(sqlite3.connect(tmp_path / "x.db")) as base, base:
        base.execute("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'")
    over = time.monotonic() + 20
    with renewed(study, kept):
        while kept in lapsed(study) and time.monotonic() < over:
            threading.Event().wait(0.05)
    assert lapsed(study) == {silent}


def test_a_storage_without_heartbeats_has_no_leases() -> None:
    study = optuna.create_study()
    with renewed(study, study.ask()._trial_id):
        assert lapsed(study) == frozenset()


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_line_and_the_study_is_whole(tmp_path: Path) -> None:
    study = (
        'name = "k"\nruntime = "simulated"\nstages = 3\n[search]\nsampler = "random"\ntrials = {}\n'
    )
    (tmp_path / "k.toml").write_text(study.format(3))
    command = [sys.executable, "-m", "autosplit", "run", "k.toml"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "k.toml").write_text(study.format(60))
    size = (tmp_path / "k.db").stat().st_size + 8192

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    full = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=little_room
    )
    assert full.returncode == 3, full.stderr
    assert full.stderr.splitlines()[-1].startswith("autosplit: storage '")
    assert "Traceback" not in full.stderr
    (tmp_path / "k.toml").write_text(study.format(8))
    again = subprocess.run([*command, "-f", "json"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count('"COMPLETE"') >= 8
    assert "RUNNING" not in again.stdout


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_of_two_who_store_once_the_first_wins(tmp_path: Path, kind: str) -> None:
    storage = (
        storage_url("s", str(tmp_path / "s.db"))
        if kind == "sqlite"
        else optuna.storages.InMemoryStorage()
    )
    first = optuna.create_study(storage=storage, study_name="s")
    second = optuna.load_study(storage=storage, study_name="s")
    assert set_once(first, "profile", [1, 2]) == [1, 2]
    assert set_once(second, "profile", [3]) == first.user_attrs["profile"] == [1, 2]


def failing(error: BaseException) -> MachineError:
    with pytest.raises(MachineError) as caught, guarded("postgresql+psycopg://me:secret@host/base"):
        raise error
    assert "secret" not in str(caught.value)
    return caught.value


def test_whatever_a_storage_raises_is_one_line_with_the_drivers_own_words() -> None:
    driver = sqlite3.OperationalError("disk I/O error\nat line 3")
    outer = optuna.exceptions.StorageInternalError("An exception is raised during the commit.")
    outer.__cause__ = sqlalchemy.exc.OperationalError("INSERT INTO t", {}, driver)
    assert "failed: disk I/O error; see to it and run again" in str(failing(outer))
    assert "failed: disk I/O error; see to it" in str(failing(driver))
    assert "lost a write; is its disk full?" in str(failing(AssertionError("Should not reach.")))


def test_an_error_that_is_none_of_a_storages_goes_on_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), guarded("sqlite:///x.db"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("raised", "error", "told"),
    [
        (
            ModuleNotFoundError("No module named 'psycopg'"),
            MachineError,
            "needs a driver that is not installed: No module",
        ),
        (
            RuntimeError("schema version 99"),
            MachineError,
            "cannot be used: schema version 99; use another one",
        ),
        (
            sqlalchemy.exc.ArgumentError("nonsense"),
            ConfigError,
            "is no database URL; give a file path or postgresql",
        ),
    ],
)
def test_a_storage_that_cannot_be_opened_says_why(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception], told: str
) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise raised

    monkeypatch.setattr(optuna.storages, "RDBStorage", refuse)
    with pytest.raises(error) as caught:
        connect("postgresql+psycopg://me:secret@host/base")
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_tables_that_another_worker_makes_in_the_same_moment_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, tried = optuna.storages.RDBStorage.__init__, []

    def second_time(*args: Any, **named: Any) -> None:
        tried.append(named)
        if len(tried) == 1:
            raise sqlalchemy.exc.IntegrityError("CREATE TABLE", {}, Exception("exists"))
        real(*args, **named)

    monkeypatch.setattr(optuna.storages.RDBStorage, "__init__", second_time)
    connect(f"sqlite:///{tmp_path}/x.db", lease=9)
    assert [(n["heartbeat_interval"], n["grace_period"]) for n in tried] == [(2, 9)] * 2
    connect(f"sqlite:///{tmp_path}/x.db", lease=2)
    connect(f"sqlite:///{tmp_path}/x.db")
    assert [(n["heartbeat_interval"], n["grace_period"]) for n in tried[2:]] == [
        (1, 2),
        (None, None),
    ]


def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as base:
        base.execute("CREATE TABLE t (x)")
    before = (tmp_path / "x.db").read_bytes()
    with pytest.raises(ConfigError, match="holds no studies"):
        connect_existing(storage_url("x", str(tmp_path / "x.db")))
    assert (tmp_path / "x.db").read_bytes() == before


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_attributes_and_shares_of_a_trial_of_another_process_are_written(
    tmp_path: Path, kind: str
) -> None:
    storage = (
        connect(storage_url("s", str(tmp_path / "s.db")))
        if kind == "sqlite"
        else optuna.storages.InMemoryStorage()
    )
    study = optuna.create_study(storage=storage)
    trial = study.ask()
    set_attributes(study, trial._trial_id, {"a": "old"})
    set_attributes(study, trial._trial_id, {"a": [1, None], "b": "x"}, {"share": 0.25})
    found = study.trials[0]
    assert (found.user_attrs, found.params) == ({"a": [1, None], "b": "x"}, {"share": 0.25})
    study.tell(trial, 1.0)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        set_attributes(study, trial._trial_id, {"a": 2, "c": 3})
    assert study.trials[0].user_attrs == {"a": [1, None], "b": "x"}


@pytest.mark.parametrize(
    ("url", "told"),
    [("sqlite:////a/b.db", "/a/b.db"), ("sqlite://", "sqlite://"), ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
     ("nonsense", "nonsense://...")],
)  # fmt: skip
def test_a_storage_is_shown_by_its_file_or_without_its_password(url: str, told: str) -> None:
    assert shown(url) == told
