import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autosplit.study.trials.worker_identity import is_dead, one_at_a_time, this_worker


def test_this_process_is_alive() -> None:
    assert not is_dead(this_worker())


@pytest.mark.parametrize("changed", [{"start": "another start"}, {"pid": 2**30}])
def test_another_process_of_the_number_or_none_is_dead(changed: dict[str, Any]) -> None:
    assert is_dead({**this_worker(), **changed})


def test_a_process_that_ended_but_was_not_waited_for_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = {**this_worker(), "pid": process.pid, "start": ""}
    assert not is_dead(worker)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(worker)
    process.communicate()


@pytest.mark.parametrize("worker", [None, {}, "x", {"host": "elsewhere", "pid": 1, "start": "x"}])
def test_what_cannot_be_seen_is_not_called_dead(worker: Any) -> None:
    assert not is_dead(worker)


@pytest.mark.parametrize("pid", [None, "1", True, -1, 0, 2**80])
def test_a_pid_that_is_none_is_not_asked_for(pid: Any) -> None:
    assert not is_dead({**this_worker(), "pid": pid})


def test_a_lock_whose_holder_is_stopped_is_waited_for_no_longer_than_asked() -> None:
    with one_at_a_time("held"), one_at_a_time("held", 0.1):
        pass


def test_a_lock_keeps_other_processes_out() -> None:
    code = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with one_at_a_time("a test"):
        held = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if fd.isdigit() and os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        file = next(path for path in held if path.endswith(".lock"))
        assert (
            subprocess.run([sys.executable, "-c", code, file], stderr=subprocess.DEVNULL).returncode
            != 0
        )
    assert subprocess.run([sys.executable, "-c", code, file]).returncode == 0


HOLD = """
import sys
import tempfile
from autosplit.study.workers import one_at_a_time
with one_at_a_time(sys.argv[1]):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A process that holds a lock of this test's own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield str(tmp_path), process
    process.kill()
    process.communicate()


def test_a_stopped_holder_keeps_others_out_no_longer_than_its_lease(
    holder: tuple[str, "subprocess.Popen[str]"],
) -> None:
    name, process = holder
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    with one_at_a_time(name, stopped=0.1):
        assert process.poll() is None


def test_a_holder_that_works_keeps_others_out_as_long_as_it_takes(
    holder: tuple[str, "subprocess.Popen[str]"],
) -> None:
    name, process = holder
    waiting = threading.Thread(
        target=lambda: one_at_a_time(name, stopped=0.1).__enter__(), daemon=True
    )
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    process.communicate("")
    waiting.join(30)
    assert not waiting.is_alive()


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without /proc."""

    def absent(path: Path) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_bytes", absent)


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize(
    ("raised", "dead"), [(None, False), (PermissionError, False), (ProcessLookupError, True)]
)
def test_without_proc_a_signal_tells_whether_a_process_is_there(
    monkeypatch: pytest.MonkeyPatch, raised: type[OSError] | None, dead: bool
) -> None:
    asked = []

    def kill(pid: int, number: int) -> None:
        asked.append((pid, number))
        if raised:
            raise raised

    monkeypatch.setattr(os, "kill", kill)
    assert is_dead({"host": this_worker()["host"], "pid": 4711, "start": ""}) is dead
    assert asked[-1] == (4711, 0)


@pytest.mark.parametrize("why", ["no fcntl", "no folder", "somebody else's folder"])
def test_where_no_lock_can_be_had_one_goes_on_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    if why == "no fcntl":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    elif why == "no folder":
        (tmp_path / "file").touch()
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    else:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    with one_at_a_time("x"), one_at_a_time("x"):
        pass
    assert not list(tmp_path.rglob("*.lock"))
