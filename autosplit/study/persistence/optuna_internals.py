"""The private names of Optuna that autosplit uses; no other module of the package uses one.

Optuna's public interface has no write of several attributes in one transaction, no attribute that
is written once, and no heartbeats outside of ``Study.optimize``. A test holds every name used here
against the installed version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime

    import optuna
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Heartbeat:
    """The latest sign of life of a running trial, by the clock of the database.

    ``silence``: seconds since then, negative where the clock was set back.
    """

    time: datetime.datetime
    silence: float


def next_trial(study: optuna.Study) -> FrozenTrial:
    """A new running trial, or the first enqueued one; no parameter is suggested."""
    return study._storage.get_trial(study.ask()._trial_id)


def enqueued_parameters(trial: FrozenTrial) -> dict[str, Any] | None:
    """The parameters that a user enqueued a trial with; None for any other trial."""
    parameters: dict[str, Any] | None = trial.system_attrs.get("fixed_params")
    return parameters


def is_finished(study: optuna.Study, trial: FrozenTrial) -> bool:
    """Whether some worker has finished a trial by now."""
    return study._storage.get_trial(trial._trial_id).state.is_finished()


def write_trial(
    study: optuna.Study,
    trial: FrozenTrial,
    attributes: Mapping[str, Any],
    parameters: Mapping[str, float] | None = None,
) -> None:
    """Write user attributes of a running trial, and parameters between 0 and 1 that it lacks.

    In a database all of them are written or none. Raises Optuna's UpdateFinishedTrialError where
    the trial is finished.
    """
    import optuna

    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    database = _database(study)
    if database is None:
        for key, value in attributes.items():
            study._storage.set_trial_user_attr(trial._trial_id, key, value)
        for name, share in (parameters or {}).items():
            study._storage.set_trial_param(trial._trial_id, name, share, unit)
        return
    from optuna.storages._rdb.models import TrialModel, TrialParamModel
    from optuna.storages._rdb.storage import _create_scoped_session

    trial_id = trial._trial_id
    with _create_scoped_session(database.scoped_session, True) as session:
        state: Any = TrialModel.find_or_raise_by_id(trial_id, session).state
        database.check_trial_is_updatable(trial_id, state)
        _write_attributes(session, trial_id, attributes)
        text = optuna.distributions.distribution_to_json(unit)
        for name, share in (parameters or {}).items():
            row = {"param_name": name, "param_value": share, "distribution_json": text}
            session.add(TrialParamModel(trial_id=trial_id, **row))


def _write_attributes(session: Any, trial_id: int, attributes: Mapping[str, Any]) -> None:
    """Write user attributes of a trial, new or not, as a part of a transaction.

    Optuna's own writes are a transaction each, with a wait for the disk, and each looks the trial
    up again.
    """
    from optuna.storages._rdb.models import TrialUserAttributeModel as Row

    of_trial = session.query(Row.key).filter(Row.trial_id == trial_id)
    old = [key for (key,) in of_trial if key in attributes]
    # A deletion that finds nothing locks the gap in InnoDB, and two workers wait for each other.
    if old:
        session.query(Row).filter(Row.trial_id == trial_id, Row.key.in_(old)).delete()
    rows = [
        {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
        for key, value in attributes.items()
    ]
    session.bulk_insert_mappings(Row, rows)


def rewrite_trial(
    study: optuna.Study, trial: FrozenTrial, attributes: Mapping[str, Any], value: float
) -> None:
    """Replace value and user attributes of a finished trial, all of them or none.

    The final comparison measures trials again, and its values are what the best one is judged by.
    Optuna has no public way to say so. Further trials would leave the first, often luckier values
    in the race, and everything that counts or reads trials would meet candidates twice; so the
    trial itself gets the better figures. Nothing is lost: the first ones stay among its attributes.
    """
    from optuna.storages._cached_storage import _CachedStorage
    from optuna.storages._rdb.models import TrialValueModel
    from optuna.storages._rdb.storage import _create_scoped_session

    database, trial_id = _database(study), trial._trial_id
    if database is None:
        stored: Any = study._storage.get_trial(trial_id)
        stored.user_attrs, stored.values = {**stored.user_attrs, **attributes}, [value]
        return
    with _create_scoped_session(database.scoped_session, True) as session:
        _write_attributes(session, trial_id, attributes)
        session.query(TrialValueModel).filter(TrialValueModel.trial_id == trial_id).delete()
        number, kind = TrialValueModel.value_to_stored_repr(value)
        row = {"objective": 0, "value": number, "value_type": kind}
        session.add(TrialValueModel(trial_id=trial_id, **row))
    # Optuna keeps finished trials in memory, since it never changes them.
    if isinstance(study._storage, _CachedStorage):
        study._storage._studies.pop(study._study_id, None)
        study._storage._trial_id_to_study_id_and_number.clear()


def write_once(study: optuna.Study, key: str, value: Any) -> Any:
    """Store a user attribute of a study unless it has it, and return what is stored then.

    Of several workers that do so at once, on any host, the first one wins.
    """
    database = _database(study)
    if database is not None:
        from optuna.storages._rdb.models import StudyUserAttributeModel
        from optuna.storages._rdb.storage import _create_scoped_session

        # The session ignores the error of the database that a second row of the key is.
        with _create_scoped_session(database.scoped_session, True) as session:
            session.add(
                StudyUserAttributeModel(
                    study_id=study._study_id, key=key, value_json=json.dumps(value)
                )
            )
    elif key not in study.user_attrs:
        study.set_user_attr(key, value)
    return study.user_attrs[key]


def heartbeat_interval(study: optuna.Study) -> int | None:
    """Seconds between two heartbeats of a trial; None for a storage without heartbeats."""
    from optuna.storages._heartbeat import BaseHeartbeat

    storage = study._storage
    return storage.get_heartbeat_interval() if isinstance(storage, BaseHeartbeat) else None


def record_heartbeat(study: optuna.Study, trial: FrozenTrial) -> None:
    """Record that the worker of a trial is alive, where the storage keeps heartbeats."""
    from optuna.storages._heartbeat import BaseHeartbeat

    if heartbeat_interval(study) is not None and isinstance(study._storage, BaseHeartbeat):
        study._storage.record_heartbeat(trial._trial_id)


def heartbeats(study: optuna.Study) -> dict[int, Heartbeat]:
    """The latest heartbeat of each running trial that has one, by the number of the trial."""
    database = _database(study)
    if database is None:
        return {}
    import sqlalchemy
    from optuna.storages._rdb.models import TrialHeartbeatModel, TrialModel
    from optuna.storages._rdb.storage import _create_scoped_session
    from optuna.trial import TrialState

    with _create_scoped_session(database.scoped_session) as session:
        now: Any = session.execute(sqlalchemy.func.now()).scalar()
        now = now.replace(tzinfo=None)  # as Optuna stores heartbeats
        rows: Any = (
            session.query(TrialModel.number, TrialHeartbeatModel.heartbeat)
            .join(TrialHeartbeatModel, TrialHeartbeatModel.trial_id == TrialModel.trial_id)
            .filter(TrialModel.study_id == study._study_id, TrialModel.state == TrialState.RUNNING)
            .all()
        )
        return {number: Heartbeat(time, (now - time).total_seconds()) for number, time in rows}


def optuna_tables() -> dict[str, set[str]]:
    """The tables of an Optuna database, each with the names of its columns."""
    from optuna.storages._rdb.models import BaseModel

    tables: Any = BaseModel.metadata.tables
    columns = {name: set(table.columns.keys()) for name, table in tables.items()}
    return {**columns, "alembic_version": {"version_num"}}


def _database(study: optuna.Study) -> optuna.storages.RDBStorage | None:
    """The SQL database behind a study; None for a study in memory."""
    import optuna
    from optuna.storages._cached_storage import _CachedStorage

    storage = study._storage
    if isinstance(storage, _CachedStorage):
        return storage._backend
    return storage if isinstance(storage, optuna.storages.RDBStorage) else None
