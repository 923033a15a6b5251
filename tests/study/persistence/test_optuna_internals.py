"""What autosplit does with private names of Optuna, on the installed version."""

import ast
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import create_engine, inspect

from autosplit.study.persistence import optuna_internals as internals
from autosplit.study.persistence.storage import connect, storage_url

PACKAGE = Path(internals.__file__).parents[2]
SQLITE_LEASE = 8


@pytest.fixture(params=["sqlite", "memory"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> optuna.Study:
    storage: Any = optuna.storages.InMemoryStorage()
    if request.param != "memory":
        storage = connect(storage_url("s", str(tmp_path / "s.db")), SQLITE_LEASE)
    unused = optuna.samplers.RandomSampler()
    return optuna.create_study(storage=storage, study_name="s", sampler=unused)


def test_a_new_trial_runs_and_an_enqueued_one_has_its_parameters(study: optuna.Study) -> None:
    study.enqueue_trial({"x": 0.25})
    enqueued, new = internals.next_trial(study), internals.next_trial(study)
    assert [enqueued.state.name, new.state.name] == ["RUNNING", "RUNNING"]
    assert internals.enqueued_parameters(enqueued) == {"x": 0.25}
    assert internals.enqueued_parameters(new) is None


def test_attributes_and_parameters_are_written(study: optuna.Study) -> None:
    trial = internals.next_trial(study)
    internals.write_trial(study, trial, {"a": "old"})
    internals.write_trial(study, trial, {"a": [1, None], "b": "x"}, {"share": 0.25})
    stored = study.trials[0]
    assert (stored.user_attrs, stored.params) == ({"a": [1, None], "b": "x"}, {"share": 0.25})


def test_a_finished_trial_is_not_written(study: optuna.Study) -> None:
    trial = internals.next_trial(study)
    assert not internals.is_finished(study, trial)
    study.tell(trial.number, 1.0)
    assert internals.is_finished(study, trial)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        internals.write_trial(study, trial, {"a": 2, "c": 3})
    assert study.trials[0].user_attrs == {}


def test_a_finished_trial_gets_better_figures_and_may_lose_its_place(study: optuna.Study) -> None:
    for value in (1.0, 2.0):
        trial = internals.next_trial(study)
        internals.write_trial(study, trial, {"a": value, "b": "as it was"})
        study.tell(trial.number, value)
    assert (study.best_trial.number, len(study.trials)) == (0, 2)
    internals.rewrite_trial(study, study.trials[0], {"a": 3.0, "c": [1]}, 3.0)
    for reader in (study, optuna.load_study(storage=study._storage, study_name="s")):
        # A storage in memory remembers its best trial, which no study in use asks for.
        if not isinstance(study._storage, optuna.storages.InMemoryStorage):
            assert (reader.best_trial.number, reader.best_value) == (1, 2.0)
        rewritten = reader.trials[0]
        assert rewritten.user_attrs == {"a": 3.0, "b": "as it was", "c": [1]}
        assert (rewritten.value, rewritten.state.name) == (3.0, "COMPLETE")


def test_of_two_that_write_once_the_first_wins(study: optuna.Study) -> None:
    second = optuna.load_study(storage=study._storage, study_name="s")
    assert internals.write_once(study, "profile", [1, 2]) == [1, 2]
    assert internals.write_once(second, "profile", [3]) == [1, 2]
    assert study.user_attrs["profile"] == [1, 2]


def test_a_heartbeat_is_read_back_where_the_storage_keeps_them(study: optuna.Study) -> None:
    has_heartbeats = internals.heartbeat_interval(study) is not None
    trials = [internals.next_trial(study) for _ in range(3)]
    for trial in trials[1:]:
        internals.record_heartbeat(study, trial)
    study.tell(2, 1.0)
    beats = internals.heartbeats(study)
    assert set(beats) == ({1} if has_heartbeats else set())
    assert all(-5 < beat.silence < 60 for beat in beats.values())


def test_heartbeats_come_four_times_a_lease(tmp_path: Path) -> None:
    for lease, interval in ((9, 2), (2, 1), (None, None)):
        storage = connect(storage_url("s", str(tmp_path / "s.db")), lease)
        study = optuna.create_study(storage=storage)
        assert internals.heartbeat_interval(study) == interval


def test_the_tables_are_those_that_optuna_creates(tmp_path: Path) -> None:
    url = storage_url("s", str(tmp_path / "s.db"))
    connect(url)
    inspector = inspect(create_engine(url))
    tables = {
        name: {column["name"] for column in inspector.get_columns(name)}
        for name in inspector.get_table_names()
    }
    assert tables == internals.optuna_tables()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("optuna.storages._rdb.models", ["BaseModel", "StudyUserAttributeModel", "TrialModel"]),
        ("optuna.storages._rdb.models", ["TrialHeartbeatModel", "TrialParamModel"]),
        ("optuna.storages._rdb.models", ["TrialUserAttributeModel"]),
        ("optuna.storages._rdb.storage", ["_create_scoped_session"]),
        ("optuna.storages._cached_storage", ["_CachedStorage"]),
        ("optuna.storages._heartbeat", ["BaseHeartbeat"]),
    ],
)
def test_private_modules_have_the_names_used(module: str, names: list[str]) -> None:
    imported = __import__(module, fromlist=names)
    assert [name for name in names if not hasattr(imported, name)] == []


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        ("RDBStorage", ["check_trial_is_updatable"]),
        ("RDBStorage", ["record_heartbeat", "get_heartbeat_interval"]),
        ("InMemoryStorage", ["set_trial_user_attr", "set_trial_param", "get_trial"]),
    ],
)
def test_storages_have_the_methods_used(owner: str, names: list[str]) -> None:
    storage = getattr(optuna.storages, owner)
    assert [name for name in names if not callable(getattr(storage, name, None))] == []


def test_objects_have_the_private_attributes_used(tmp_path: Path) -> None:
    storage = connect(storage_url("s", str(tmp_path / "s.db")))
    study = optuna.create_study(storage=storage)
    used = {
        "study": (study, ["_storage", "_study_id"]),
        "trial": (study.ask(), ["_trial_id"]),
        "cached storage": (storage, ["_backend"]),
        "database": (vars(storage)["_backend"], ["scoped_session", "engine"]),
    }
    for owner, names in used.values():
        assert [name for name in names if not hasattr(owner, name)] == []


def test_no_other_module_uses_private_names_of_optuna() -> None:
    private = ("_storage", "_study_id", "_trial_id", "_backend")
    users: list[tuple[str, str]] = []
    for file in sorted((PACKAGE / "study").rglob("*.py")):
        if file.name == "optuna_internals.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optuna._"):
                users.append((file.name, str(node.module)))
            if isinstance(node, ast.ImportFrom) and "._" in (node.module or ""):
                users.append((file.name, str(node.module)))
            if isinstance(node, ast.Attribute) and node.attr in private:
                users.append((file.name, node.attr))
    assert users == []
