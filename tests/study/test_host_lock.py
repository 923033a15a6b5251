import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest

from autosplit.study import workers
from autosplit.study.workers import HostLock


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(workers, "NOTICE_AFTER", 0.05)
    return tmp_path


class Lock:
    """A lock of this test's own and what it says."""

    def __init__(self, stalled_after: float = 30.0) -> None:
        self.notes: list[str] = []
        self.lock = HostLock("key", "the devices", "study 'mine'", self.notes.append, stalled_after)

    def wait(self, seconds: float, holder: "subprocess.Popen[str]") -> None:
        """Wait for a lock whose holder releases it after some seconds."""
        assert holder.stdin is not None
        threading.Timer(seconds, holder.stdin.close).start()
        with self.lock.hold():
            pass


HOLD = """
import sys
from autosplit.study.workers import HostLock
with HostLock("key", "the devices", "study 'theirs'", print).hold():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder() -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock until it reads a line."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_lock_keeps_others_out_until_it_is_released(folder: Path) -> None:
    with Lock().lock.hold():
        (file,) = folder.rglob("*.lock")
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(file).acquire(timeout=0)
    filelock.FileLock(file).acquire(timeout=0).lock.release()


def test_a_process_that_waits_says_once_who_holds_the_lock_and_since_when(
    holder: "subprocess.Popen[str]",
) -> None:
    waiting = Lock()
    waiting.wait(0.5, holder)
    (note,) = waiting.notes
    assert f"process {holder.pid}" in note
    assert "study 'theirs'" in note
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", note)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid": "x", "since": 1e300, "holder": "\\u001b"}']
)
def test_a_damaged_description_of_the_holder_is_not_shown(
    folder: Path, holder: "subprocess.Popen[str]", text: str
) -> None:
    (description,) = folder.rglob("*.json")
    description.write_text(text)
    waiting = Lock()
    waiting.wait(0.3, holder)
    assert waiting.notes == ["waiting for the devices, held by another process"]


def test_a_process_that_waits_disturbs_the_holder_little(
    holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    read_holder = workers._read_holder
    monkeypatch.setattr(workers, "NOTICE_AFTER", 0.5)
    monkeypatch.setattr(
        workers, "_read_holder", lambda path: looks.append(path) or read_holder(path)
    )
    Lock().wait(1.2, holder)
    assert 1 <= len(looks) <= 3


def test_the_holder_describes_itself(folder: Path) -> None:
    with Lock().lock.hold():
        (description,) = folder.rglob("*.json")
        assert json.loads(description.read_text())["pid"] == os.getpid()


def test_a_stopped_holder_keeps_others_out_no_longer_than_the_lease(
    holder: "subprocess.Popen[str]",
) -> None:
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    with Lock(stalled_after=0.1).lock.hold():
        assert holder.poll() is None


def test_a_holder_that_works_keeps_others_out(holder: "subprocess.Popen[str]") -> None:
    def wait() -> None:
        with Lock(stalled_after=0.1).lock.hold():
            pass

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    holder.communicate("\n")
    waiting.join(30)
    assert not waiting.is_alive()


@pytest.mark.parametrize("obstacle", ["a file", "another user's folder"])
def test_without_a_folder_for_locks_one_continues_without(
    monkeypatch: pytest.MonkeyPatch, folder: Path, obstacle: str
) -> None:
    if obstacle == "a file":
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "file"))
        (folder / "file").touch()
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    with Lock().lock.hold(), Lock().lock.hold():
        pass
    assert not list(folder.rglob("*.lock"))
