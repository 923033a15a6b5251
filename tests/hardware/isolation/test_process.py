"""Workers that crash, hang and eat memory: the reason is told, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autosplit.errors import StageError
from autosplit.hardware.isolation.process import Worker

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="process groups and limits as Linux has them"
)
HERE = Path(__file__).parents[1]
HANDLER = "faults:open_faulty"
PHASES = ("building", "running")


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Worker]]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    started: list[Worker] = []

    def make(memory: int | None = None) -> Worker:
        started.append(Worker(HANDLER, {}, memory))
        return started[-1]

    yield make
    for worker in started:
        worker.discard()
        assert not group(worker.pid)


def group(leader: int) -> list[int]:
    """The live processes of a process group."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[2]) == leader and stat[0] != "Z":
            found.append(int(entry))
    return found


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def reason(worker: Worker, kind: str, phase: str, timeout_s: float = 30.0, **more: Any) -> str:
    with pytest.raises(StageError) as caught:
        worker.call({"kind": kind, "phase": phase, **more}, timeout_s)
    return str(caught.value)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("segfault", "crash SIGSEGV while {}"),
        ("abort", "crash SIGABRT while {}"),
        ("exit", "exit 7 without a result while {}"),
    ],
)
def test_a_crash_is_told_with_its_signal(
    start: Callable[..., Worker], kind: str, told: str, phase: str
) -> None:
    assert reason(start(), kind, phase) == told.format(phase)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", ["sleep", "gil", "stop", "sigterm"])
def test_a_worker_that_hangs_meets_the_deadline(
    start: Callable[..., Worker], kind: str, phase: str
) -> None:
    worker = start()
    worker.call({"kind": "echo", "phase": phase, "value": 1}, 30)
    assert reason(worker, kind, phase, timeout_s=0.5) == f"timeout 0.5 s while {phase}"
    assert not worker.is_alive


@pytest.mark.parametrize("phase", PHASES)
def test_out_of_memory_is_told(start: Callable[..., Worker], phase: str) -> None:
    assert reason(start(memory=2 << 30), "memory", phase) == f"out of memory while {phase}"


def test_a_crash_names_the_stage_it_happened_in(start: Callable[..., Worker]) -> None:
    assert reason(start(), "in stage", "running", stage=2) == "crash SIGSEGV in stage 2"


def test_a_flood_of_output_does_not_stop_the_answer(start: Callable[..., Worker]) -> None:
    worker = start()
    assert worker.call({"kind": "flood", "phase": "running"}, 60) == "done"
    assert len(worker.log_tail()) <= 4096


def test_an_exception_is_an_error_and_the_worker_lives(start: Callable[..., Worker]) -> None:
    worker = start()
    assert reason(worker, "fail", "building") == "ValueError: the handler said no"
    assert worker.call({"kind": "echo", "phase": "running", "value": [1, 2]}, 30) == [1, 2]


def test_a_grandchild_dies_with_the_worker(start: Callable[..., Worker]) -> None:
    worker = start()
    pid = worker.call({"kind": "grandchild", "phase": "running"}, 30)
    worker.close()
    assert gone(pid)


def test_nothing_is_left_when_the_asking_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    script = (
        "import sys, time\nfrom autosplit.hardware.isolation.process import Worker\n"
        f"w = Worker({HANDLER!r}, {{}})\n"
        "print(w.call({'kind': 'pid', 'phase': 'x'}, 30), w.call({'kind': 'grandchild', 'phase': 'x'}, 30), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None
        worker, grandchild = map(int, asking.stdout.readline().split())
        asking.send_signal(signal.SIGKILL)
    assert gone(worker)
    assert gone(grandchild)


def test_a_log_leaves_no_file_even_when_the_asking_process_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = (
        "import os, signal\nfrom autosplit.hardware.isolation.process import Worker\n"
        f"w = Worker({HANDLER!r}, {{}})\n"
        "w.call({'kind': 'flood', 'phase': 'x'}, 30)\n"
        "assert len(w.log_tail()) > 1000\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("phase", PHASES)
def test_a_full_disk_under_the_log_hides_no_answer(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    full = open("/dev/full", "wb")  # noqa: SIM115 - the worker closes it
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
    worker = start()
    assert reason(worker, "flood", phase) == "OSError: [Errno 28] No space left on device"
    assert reason(worker, "fail", phase) == "ValueError: the handler said no"
    assert worker.call({"kind": "echo", "phase": phase, "value": 3}, 30) == 3
