"""Which study a user means, and reading it from databases that anybody may have written."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from optuna.storages._rdb.models import BaseModel

from autosplit.errors import AutosplitError, ConfigError
from autosplit.report.documents.study_reader import StudyReader, find_study
from tests.report import graphs
from tests.report.studies import make_study


def newer(file):
    study = optuna.create_study(study_name="new", storage=f"sqlite:///{file}")
    study.set_user_attr("autosplit", {"format": 99})


def plain_table(file):
    with contextlib.closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE t (x)")


def begun(file):
    """Of a run that was stopped at once."""
    BaseModel.metadata.create_all(sqlalchemy.create_engine(f"sqlite:///{file}"))


def cut_off(file):
    newer(file)
    file.write_bytes(file.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("make", "says"),
    [(lambda f: None, "does not exist"), (lambda f: f.touch(), "no such table"),
     (lambda f: f.write_text("name = 1"), "file is not a database; give"),
     (Path.mkdir, "cannot be read"), (os.mkfifo, "cannot be read: not a regular file"),
     (plain_table, "no such table|holds no study"),
     (lambda f: optuna.create_study(storage=f"sqlite:///{f}"), "no study made by autosplit"),
     (begun, "was created but never initialised"), (newer, "has format 99"),
     (cut_off, "malformed")],
)  # fmt: skip
def test_a_database_that_cannot_be_shown_is_one_clear_line(tmp_path, make, says):
    file = tmp_path / "some.db"
    make(file)
    with pytest.raises(AutosplitError, match=says) as caught, find_study(str(file)).open():
        pass
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("kind", [BrokenPipeError, MemoryError])
def test_what_fails_while_the_study_is_open_is_no_damage_of_the_database(finished, kind):
    with pytest.raises(kind), find_study(str(finished)).open():
        raise kind


def test_several_studies_need_a_name_and_a_name_picks_one(database):
    make_study(database, graphs.chain(20), "second", 1)
    with find_study("second", str(database)).open() as study:
        assert study.study_name == "second"
    without_name, unknown = find_study(str(database)), find_study("third", str(database))
    with pytest.raises(ConfigError, match=r"2 studies \(fire, second\)"), without_name.open():
        pass
    with pytest.raises(ConfigError, match=r"no study 'third'; .* fire, second"), unknown.open():
        pass


def test_the_environment_goes_before_the_storage_of_the_study_file(tmp_path, monkeypatch):
    (file := tmp_path / "s.toml").write_text('model = "n.onnx"\nstages = 2\nstorage = "a.db"')
    monkeypatch.setenv("AUTOSPLIT_STORAGE", "sqlite:///b.db")
    assert find_study(str(file)).url == "sqlite:///b.db"


def test_a_password_is_never_shown():
    assert "secret" not in StudyReader("postgresql+psycopg://me:secret@host/base", "x").location


def test_a_study_whose_writer_was_killed_can_be_read_and_stays_as_it_was(database, tmp_path):
    files = tmp_path / "killed.db", tmp_path / "killed.db-journal"
    insert = "INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (1, ?, ?)"
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as base:
        base.execute("PRAGMA cache_size = 1")
        base.execute("BEGIN IMMEDIATE")
        base.execute("UPDATE trial_user_attributes SET value_json = '[]'")
        base.executemany(insert, [(f"k{i}", "x" * 2000) for i in range(400)])
        # A killed process leaves both files as they are in the middle of its transaction.
        for file, suffix in zip(files, ("", "-journal"), strict=True):
            shutil.copy(f"{database}{suffix}", file)
    before = [file.read_bytes() for file in files]
    with find_study(str(files[0])).open() as study:
        assert len(study.trials) == 12
        assert "k1" not in study.user_attrs
    assert [file.read_bytes() for file in files] == before


@pytest.mark.integration
def test_postgresql_itself_refuses_to_be_written_through_a_reader(database_server):
    make_study(database_server.url, graphs.fire_net())
    reader = find_study("fire", database_server.url)
    refused = pytest.raises(Exception, match=r"read-only|exception is raised during the commit")
    with refused, reader.open() as study:
        study.set_user_attr("mine", 1)
    with reader.open() as study:
        assert "mine" not in study.user_attrs
