import resource
import sqlite3
from contextlib import closing
from unittest.mock import Mock

import optuna
import pytest
import sqlalchemy
import sqlalchemy.exc
from optuna.storages._rdb.models import BaseModel
from optuna.testing.pytest_storages import StorageTestCase

from autosplit.errors import ConfigError, MachineError
from autosplit.study.storage import connect, redact_password, storage_errors, storage_url
from tests.study.processes import Runs

RANDOM = 'sampler = "random"'


def test_what_is_given_goes_before_the_environment_and_the_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOSPLIT_STORAGE", raising=False)
    assert storage_url("net") == f"sqlite:///{tmp_path}/net.db"
    assert storage_url("net", None, "mine.db") == f"sqlite:///{tmp_path}/mine.db"
    monkeypatch.setenv("AUTOSPLIT_STORAGE", "sqlite:///e.db")
    assert storage_url("net", None, "mine.db") == "sqlite:///e.db"
    assert storage_url("net", "given.db") == f"sqlite:///{tmp_path}/given.db"


@pytest.mark.parametrize("name", ["plain.db", "what?.db", "100%.db", "a b#c.db"])
def test_any_file_name_is_that_file(tmp_path, name):
    url = storage_url("x", str(tmp_path / name))
    connect(url)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert redact_password(url) == str(tmp_path / name)


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_line_and_the_study_is_whole(tmp_path):
    Runs(tmp_path, 3, RANDOM).run(0)
    size = (tmp_path / "k.db").stat().st_size + 8192

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    full = Runs(tmp_path, 60, RANDOM).start(0, preexec_fn=little_room)
    errors = full.communicate()[1]
    assert full.returncode == 3, errors
    assert errors.splitlines()[-1].startswith("autosplit: storage '")
    assert "Traceback" not in errors
    (again := Runs(tmp_path, 8, RANDOM)).run(0)
    states = [trial.state.name for trial in again.trials()]
    assert states.count("COMPLETE") >= 8
    assert "RUNNING" not in states


def failing(error):
    url = "postgresql+psycopg://me:secret@host/base"
    with pytest.raises(MachineError) as caught, storage_errors(url):
        raise error
    assert "secret" not in str(caught.value)
    return caught.value


def test_whatever_a_storage_raises_is_one_line_with_its_reason_and_any_other_error_goes_on():
    driver = sqlite3.OperationalError("disk I/O error\nat line 3")
    outer = optuna.exceptions.StorageInternalError("An exception is raised during the commit.")
    outer.__cause__ = sqlalchemy.exc.OperationalError("INSERT INTO t", {}, driver)
    assert "failed: disk I/O error;" in str(failing(outer))
    assert "failed: disk I/O error;" in str(failing(driver))
    assert "lost a write; is its disk full?" in str(failing(AssertionError("Should not reach.")))
    for other in (AssertionError("another"), ZeroDivisionError("another")):
        with pytest.raises(type(other), match="another"), storage_errors("sqlite:///x.db"):
            raise other


def test_a_database_of_another_schema_is_refused_without_its_password(monkeypatch):
    refuse = Mock(side_effect=RuntimeError("schema version 99"))
    monkeypatch.setattr(sqlalchemy, "create_engine", refuse)
    with pytest.raises(MachineError, match="cannot be used: schema version 99; use") as caught:
        connect("postgresql+psycopg://me:secret@host/base")
    assert "secret" not in str(caught.value)


def test_a_storage_is_shown_by_its_file_or_without_its_password():
    shown = {
        "sqlite:////a/b.db": "/a/b.db", "postgresql://u:p@h/d": "postgresql://u:***@h/d",
        "sqlite://": "sqlite://", "nonsense": "nonsense://...",
        "no url://me:secret@host": "no url://...",
    }  # fmt: skip
    assert {url: redact_password(url) for url in shown} == shown


def test_tables_that_another_worker_makes_in_the_same_moment_are_no_failure(monkeypatch, tmp_path):
    real, tried = optuna.storages.RDBStorage.__init__, []

    def second_time(*args, **named):
        tried.append(named)
        if len(tried) == 1:
            raise sqlalchemy.exc.IntegrityError("CREATE TABLE", {}, Exception("exists"))
        real(*args, **named)

    monkeypatch.setattr(optuna.storages.RDBStorage, "__init__", second_time)
    connect(f"sqlite:///{tmp_path}/x.db", lease=9)
    assert [(n["heartbeat_interval"], n["grace_period"]) for n in tried] == [(2, 9)] * 2
    connect(f"sqlite:///{tmp_path}/x.db", lease=2)
    connect(f"sqlite:///{tmp_path}/x.db")
    intervals = [(n["heartbeat_interval"], n["grace_period"]) for n in tried[2:]]
    assert intervals == [(1, 2), (None, None)]


@pytest.mark.parametrize(
    "tables",
    ["t (x)", "studies (patient)", "studies (study_id, study_name); CREATE TABLE orders (x)"],
)
def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path, tables):
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(f"CREATE TABLE {tables}")
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=r"other\.db' belongs to another program.*--storage"):
        connect(storage_url("x", str(file)))
    assert file.read_bytes() == before


def test_a_database_whose_maker_was_killed_among_its_tables_is_completed(tmp_path):
    url = storage_url("x", str(tmp_path / "x.db"))
    engine = sqlalchemy.create_engine(url)
    for table in BaseModel.metadata.sorted_tables[:3]:
        table.create(engine)
    engine.dispose()
    assert connect(url).get_all_studies() == []


def test_a_heartbeat_that_a_database_refuses_ends_no_worker(tmp_path, monkeypatch):
    refuse = Mock(side_effect=optuna.exceptions.StorageInternalError("down"))
    monkeypatch.setattr(optuna.storages.RDBStorage, "record_heartbeat", refuse)
    storage = connect(storage_url("x", str(tmp_path / "x.db")), lease=2)
    storage.record_heartbeat(1)


@pytest.mark.integration
class TestSQLite(StorageTestCase):  # Optuna's own tests of a storage
    @pytest.fixture
    def storage(self, tmp_path):
        return connect(storage_url("suite", str(tmp_path / "suite.db")), lease=60)
