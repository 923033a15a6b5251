import os
import subprocess
import sys

import psutil
import pytest

from autosplit.study.record import record_of
from autosplit.study.workers import is_dead, this_worker


@pytest.fixture
def process():
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield running
    running.kill()
    running.communicate()


def test_this_process_is_alive():
    assert not is_dead(this_worker())


@pytest.mark.parametrize(
    "changed",
    [{"start": start} for start in ("0.00", "4f2c-99", None)]
    + [{"pid": pid} for pid in (2**30, 2**80, None, "1", True, -1, 0)],
)
def test_another_process_of_the_number_or_none_is_dead(changed):
    assert is_dead({**this_worker(), **changed})


def test_a_process_that_ended_but_was_not_waited_for_is_dead(process):
    started = psutil.Process(process.pid).create_time() - psutil.boot_time()
    worker = {**this_worker(), "pid": process.pid, "start": f"{started:.2f}"}
    assert not is_dead(worker)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(worker)


@pytest.mark.parametrize("worker", [{}, {"host": "elsewhere", "pid": 1, "start": "x"}])
def test_a_worker_that_cannot_be_seen_is_not_called_dead(worker):
    assert not is_dead(worker)


def test_a_process_that_may_not_be_read_is_not_called_dead(monkeypatch):
    def refuse(_):
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "status", refuse)
    assert not is_dead(this_worker())


def test_a_wall_clock_that_jumps_kills_no_worker(monkeypatch):
    worker = this_worker()
    boot, created = psutil.boot_time, psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: boot() + 3600)
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3600)
    assert not is_dead(worker)
    monkeypatch.setattr(psutil, "boot_time", lambda: boot() + 1)
    monkeypatch.setattr(psutil.Process, "create_time", created)
    assert not is_dead(worker)  # the kernel rounds the time of its boot


def test_a_trial_names_its_worker_from_its_first_moment(chain_bench, new_study):
    study = new_study(chain_bench()).study
    assert record_of(study.ask()).worker == this_worker()
    study.enqueue_trial({"cut_1": 1})
    assert record_of(study.trials[-1]).worker == {}
