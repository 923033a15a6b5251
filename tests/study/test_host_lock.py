import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import filelock
import pytest

from autosplit.study import workers
from autosplit.study.workers import host_lock


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(workers, "NOTICE_AFTER", 0.05)
    return tmp_path


class Lock:
    """A lock of this test's own and what it says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.hold = partial(host_lock, "key", "the devices", "study 'mine'", self.notes.append)

    def wait(self, seconds: float, holder: "subprocess.Popen[str]") -> None:
        """Wait for a lock whose holder releases it after some seconds."""
        assert holder.stdin is not None
        threading.Timer(seconds, holder.stdin.close).start()
        with self.hold():
            pass


HOLD = """
import sys
from autosplit.study.workers import host_lock
with host_lock("key", "the devices", "study 'theirs'", print):
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
    with Lock().hold():
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
    ("content", "shown"),
    [(b"a\x1b[2J", r"a\x1b[2J"), (b"\xff", "another process"), (None, "another process")],
)
def test_what_another_program_wrote_of_the_holder_is_obeyed_by_no_terminal(
    folder: Path, holder: "subprocess.Popen[str]", content: bytes | None, shown: str
) -> None:
    (description,) = folder.rglob("*.txt")
    description.unlink()
    if content is None:
        description.mkdir()
    else:
        description.write_bytes(content)
    waiting = Lock()
    waiting.wait(0.3, holder)
    assert waiting.notes == [f"waiting for the devices, held by {shown}"]


@pytest.mark.parametrize("obstacle", ["a file", "another user's folder"])
def test_without_a_folder_for_locks_one_continues_without(
    monkeypatch: pytest.MonkeyPatch, folder: Path, obstacle: str
) -> None:
    if obstacle == "a file":
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "file"))
        (folder / "file").touch()
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    with Lock().hold(), Lock().hold():
        pass
    assert not list(folder.rglob("*.lock"))
