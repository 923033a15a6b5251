import multiprocessing
import os
import re
import tempfile
import threading
from functools import partial

import filelock
import pytest

from autosplit.study import workers
from autosplit.study.workers import host_lock


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(workers, "NOTICE_AFTER", 0.05)
    return tmp_path


class Lock:
    """A lock of this test's own and what it says."""

    def __init__(self):
        self.notes = []
        self.hold = partial(host_lock, "key", "the devices", "study 'mine'", self.notes.append)

    def wait(self, seconds, holder):
        """Wait for a lock whose holder releases it after some seconds."""
        threading.Timer(seconds, holder.release.set).start()
        with self.hold():
            pass


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


def test_a_lock_keeps_others_out_until_it_is_released(folder):
    with Lock().hold():
        (file,) = folder.rglob("*.lock")
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(file).acquire(timeout=0)
    filelock.FileLock(file).acquire(timeout=0).lock.release()


def test_a_process_that_waits_says_once_who_holds_the_lock_and_since_when(holder):
    waiting = Lock()
    waiting.wait(0.2, holder)
    (note,) = waiting.notes
    assert f"process {holder.pid}" in note
    assert "study 'theirs'" in note
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", note)


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"a\x1b[2J", r"a\x1b[2J"), (b"\xff", "another process"), (None, "another process")],
)
def test_what_another_program_wrote_of_the_holder_is_obeyed_by_no_terminal(
    folder, holder, content, shown
):
    (description,) = folder.rglob("*.txt")
    description.unlink()
    if content is None:
        description.mkdir()
    else:
        description.write_bytes(content)
    waiting = Lock()
    waiting.wait(0.15, holder)
    assert waiting.notes == [f"waiting for the devices, held by {shown}"]


@pytest.mark.parametrize("obstacle", ["a file", "another user's folder"])
def test_without_a_folder_for_locks_one_continues_without(monkeypatch, folder, obstacle):
    if obstacle == "a file":
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "file"))
        (folder / "file").touch()
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    with Lock().hold(), Lock().hold():
        pass
    assert not list(folder.rglob("*.lock"))
