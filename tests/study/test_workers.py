"""The processes that run studies: which are dead, and the lock that they measure under."""

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
from unittest.mock import Mock

import psutil
import pytest

from autosplit.study import workers
from autosplit.study.workers import host_lock, is_dead, this_worker


@pytest.fixture
def process():
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield running
    running.kill()
    running.communicate()


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


OTHERS = [{}, {**this_worker(), "host": "other"}, {**this_worker(), "boot": "x", "pid": 2**30}]


@pytest.mark.parametrize("worker", [this_worker(), *OTHERS])
def test_a_worker_that_lives_or_cannot_be_seen_or_read_is_not_called_dead(worker, monkeypatch):
    assert not is_dead(worker)
    monkeypatch.setattr(psutil.Process, "status", Mock(side_effect=psutil.AccessDenied))
    assert not is_dead(worker)


def test_a_wall_clock_that_jumps_kills_no_worker(monkeypatch):
    worker = this_worker()
    boot, created = psutil.boot_time, psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: boot() + 3600)
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3600)
    assert not is_dead(worker)
    monkeypatch.setattr(psutil, "boot_time", lambda: boot() + 1)
    monkeypatch.setattr(psutil.Process, "create_time", created)
    assert not is_dead(worker)  # the kernel rounds the time of its boot


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(workers, "NOTICE_AFTER", 0.05)
    return tmp_path


def lock(notes):
    """A lock of this test's own, and what it says."""
    return host_lock("key", "the devices", "study 'mine'", notes.append)


def notes_of_waiting(seconds, holder):
    """What is said while one waits for a lock whose holder releases it after some seconds."""
    threading.Timer(seconds, holder.release.set).start()
    with lock(notes := []):
        return notes


def hold(is_locked, release):
    with host_lock("key", "the devices", "study 'theirs'", print):
        is_locked.set()
        release.wait()


@pytest.fixture
def holder():
    """A process that holds the lock until ``release`` is set."""
    context = multiprocessing.get_context("fork")
    is_locked, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(is_locked, release))
    process.release = release
    process.start()
    assert is_locked.wait(60)
    yield process
    process.kill()
    process.join()


def test_a_process_that_waits_says_once_who_holds_the_lock_and_since_when(holder):
    (note,) = notes_of_waiting(0.2, holder)
    assert f"process {holder.pid}" in note
    assert "study 'theirs'" in note
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", note)


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"a\x1b[2J", r"a\x1b[2J"), (b"\xff", "another process"), (None, "another process")],
)
def test_no_terminal_obeys_what_another_program_wrote(folder, holder, content, shown):
    (description,) = folder.rglob("*.txt")
    description.unlink()
    if content is None:
        description.mkdir()
    else:
        description.write_bytes(content)
    assert notes_of_waiting(0.15, holder) == [f"waiting for the devices, held by {shown}"]


@pytest.mark.parametrize("obstacle", ["a file", "another user's folder"])
def test_without_a_folder_for_locks_one_continues_without(monkeypatch, folder, obstacle):
    if obstacle == "a file":
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "file"))
        (folder / "file").touch()
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    with lock([]), lock([]):
        pass
    assert not list(folder.rglob("*.lock"))
