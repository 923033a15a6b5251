import resource
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autosplit.errors import ConfigError, MachineError
from autosplit.study.leases import beat, lapsed, renewed
from autosplit.study.storage import connect, connect_existing, set_once, shown, storage_url


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
    study = 'name = "k"\nbackend = "simulated"\nstages = 3\n[search]\nsampler = "random"\ntrials = {}\n'
    (tmp_path / "k.toml").write_text(study.format(3))
    command = [sys.executable, "-m", "autosplit", "run", "k.toml"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "k.toml").write_text(study.format(60))
    size = (tmp_path / "k.db").stat().st_size + 8192

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    full = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=little_room)
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
    storage = storage_url("s", str(tmp_path / "s.db")) if kind == "sqlite" else optuna.storages.InMemoryStorage()
    first = optuna.create_study(storage=storage, study_name="s")
    second = optuna.load_study(storage=storage, study_name="s")
    assert set_once(first, "profile", [1, 2]) == [1, 2]
    assert set_once(second, "profile", [3]) == first.user_attrs["profile"] == [1, 2]
