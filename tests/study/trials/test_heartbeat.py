"""A silent worker loses its trial, a living one keeps it, whatever the clocks do."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autosplit.study.persistence.optuna_internals import heartbeats, next_trial, record_heartbeat
from autosplit.study.persistence.storage import connect, storage_url
from autosplit.study.trials.heartbeat import SilenceWatch, renewed_heartbeat

LEASE = 8  # seconds, with a heartbeat every 2


class Hosts:
    """A database with one running trial, whose clock and this process's clock are set by hand."""

    def __init__(self, file: Path) -> None:
        self.file, self.now = file, 0.0
        storage = connect(storage_url("x", str(file)), lease=LEASE)
        self.study = optuna.create_study(
            storage=storage, sampler=optuna.samplers.RandomSampler(), study_name="x"
        )
        self.trial = next_trial(self.study)
        record_heartbeat(self.study, self.trial)
        self.watch = SilenceWatch(self.study, LEASE, lambda: self.now)

    def age_heartbeat(self, seconds: int) -> None:
        """What a database clock that jumped forward looks like, or a worker that is silent."""
        with closing(sqlite3.connect(self.file)) as database, database:
            database.execute(
                "UPDATE trial_heartbeats SET heartbeat = datetime('now', ?)",
                [f"{-seconds} seconds"],
            )

    def silent_at(self, now: float) -> bool:
        self.now = now
        return bool(self.watch.silent_trials())


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path / "x.db")


def test_a_silent_worker_loses_its_trial_once_that_is_confirmed(hosts: Hosts) -> None:
    hosts.age_heartbeat(LEASE + 2)
    assert not hosts.silent_at(0.0)
    assert hosts.watch.suspects == {0}
    assert not hosts.silent_at(3.9)
    assert hosts.silent_at(4.0)
    assert hosts.watch.suspects == frozenset()


def test_a_clock_that_jumps_forward_takes_no_trial_from_a_living_worker(hosts: Hosts) -> None:
    for now in range(0, 60, 2):
        hosts.age_heartbeat(3600 + now)  # each heartbeat differs, each looks an hour old
        assert not hosts.silent_at(now)


def test_a_clock_that_is_set_back_keeps_no_dead_worker(hosts: Hosts) -> None:
    hosts.age_heartbeat(-3600)
    assert not hosts.silent_at(0.0)
    assert not hosts.silent_at(LEASE - 0.1)
    assert hosts.silent_at(LEASE)


def test_a_worker_that_reports_keeps_its_lease(tmp_path: Path) -> None:
    storage = connect(storage_url("x", str(tmp_path / "x.db")), lease=2)
    study = optuna.create_study(storage=storage)
    trial = next_trial(study)
    record_heartbeat(study, trial)
    first = heartbeats(study)[0].time
    deadline = time.monotonic() + 20
    with renewed_heartbeat(study, trial):
        while heartbeats(study)[0].time == first and time.monotonic() < deadline:
            threading.Event().wait(0.05)
    assert heartbeats(study)[0].time > first


def test_a_storage_without_heartbeats_calls_nobody_silent(memory_study: optuna.Study) -> None:
    trial = next_trial(memory_study)
    with renewed_heartbeat(memory_study, trial):
        assert SilenceWatch(memory_study, LEASE).silent_trials() == frozenset()
