"""Workers that crash, hang and exhaust the memory: the cause is reported and no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from autosplit.errors import StageError
from autosplit.hardware.isolation.process import Worker, child_environment, python_command
from tests.hardware import faults
from tests.hardware.faults import open_faulty

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="process groups and limits as Linux has them"
)
ROOT = Path(__file__).parents[3]


@pytest.fixture
def start(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started = []

    def new_worker(**setting):
        started.append(Worker(open_faulty, setting))
        return started[-1]

    yield new_worker
    for worker in started:
        worker.close()
        assert not group(worker.pid)


def group(leader: int) -> list[int]:
    """The live processes of a process group."""
    members = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader and process.info["status"] != "zombie":
                members.append(process.pid)
    return members


def ends(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        # An orphan that ended stays a zombie until the init process looks after it.
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
    return True


def reason(worker: Worker, kind: str, phase: str, timeout_s: float = 30.0, **more: Any) -> str:
    with pytest.raises(StageError) as caught:
        worker.call({"kind": kind, "phase": phase, **more}, timeout_s)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("segfault", "crash SIGSEGV while running"),
        ("abort", "crash SIGABRT while running"),
        ("exit", "exit 7 without a result while running"),
        ("in stage", "crash SIGSEGV in stage 2"),
        pytest.param("memory", "out of memory while running", marks=pytest.mark.integration),
    ],
)
def test_a_death_is_reported_with_its_cause(start, kind, cause):
    setting = {"memory": 2 << 30} if kind == "memory" else {}
    assert reason(start(**setting), kind, "running", stage=2) == cause


@pytest.mark.parametrize("kind", ["sleep", "gil", "stop", "sigterm"])
def test_a_worker_that_hangs_is_killed_at_the_deadline(start, kind):
    worker = start()
    worker.call({"kind": "echo", "phase": "building", "value": 1}, 30)
    assert reason(worker, kind, "running", timeout_s=0.5) == "timeout 0.5 s while running"
    assert not worker.is_alive


def test_a_flood_of_output_stops_no_answer_and_explains_no_later_job(start):
    worker = start()
    assert worker.call({"kind": "flood", "phase": "running"}, 60) == "done"
    assert 1000 < len(worker.log_tail()) <= 4096
    assert worker.call({"kind": "echo", "phase": "running", "value": 1}, 30) == 1
    assert worker.log_tail() == ""


def test_a_job_has_its_time_for_each_phase(start):
    worker = start()
    worker.call({"kind": "echo", "phase": "building", "value": 1}, 30)
    job = {"kind": "phases", "phase": "building", "count": 6, "seconds": 0.25}
    assert worker.call(job, 1.0) == "done"


def test_a_worker_survives_an_exception(start):
    worker = start()
    assert reason(worker, "fail", "building") == "ValueError: the handler said no"
    assert worker.call({"kind": "echo", "phase": "running", "value": [1, 2]}, 30) == [1, 2]


def test_a_grandchild_dies_with_the_worker(start):
    worker = start()
    pid = worker.call({"kind": "grandchild", "phase": "running"}, 30)
    worker.kill()
    assert ends(pid)


def test_nothing_is_left_when_the_asking_process_is_killed(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = (
        "import time\nfrom autosplit.hardware.isolation.process import Worker\n"
        "from tests.hardware.faults import open_faulty\n"
        "worker = Worker(open_faulty, {})\n"
        "worker.call({'kind': 'flood', 'phase': 'x'}, 30)\n"
        "pids = [worker.call({'kind': k, 'phase': 'x'}, 30) for k in ('pid', 'grandchild')]\n"
        "print(*pids, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        worker, grandchild = map(int, asking.stdout.readline().split())
        asking.send_signal(signal.SIGKILL)
    assert ends(worker)
    assert ends(grandchild)
    assert list(tmp_path.iterdir()) == []  # of the log


def test_a_full_disk_under_the_log_hides_no_answer(start, monkeypatch):
    full = partial(Path("/dev/full").open, "r+b")
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    worker = start()
    assert reason(worker, "flood", "running") == "OSError: [Errno 28] No space left on device"
    assert reason(worker, "fail", "running") == "ValueError: the handler said no"
    assert worker.call({"kind": "echo", "phase": "running", "value": 3}, 30) == 3


@pytest.mark.parametrize("handler", [lambda *_: None, Worker.call])
def test_only_a_top_level_function_can_be_a_handler(handler):
    with pytest.raises(ValueError, match="top-level"):
        Worker(handler, {})


@pytest.mark.parametrize("search_path", ["", ".", ":", "relative"])
def test_nothing_in_the_current_folder_is_imported(monkeypatch, tmp_path, search_path):
    for folder in (tmp_path, tmp_path / "relative"):
        folder.mkdir(exist_ok=True)
        for module in ("queue", "json", "psutil", "autosplit", "tests"):
            (folder / f"{module}.py").write_text("import os; os._exit(99)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{search_path}:{ROOT}")
    worker = Worker(faults.open_faulty, {})
    assert worker.call({"kind": "import", "phase": "x"}, 30) == "queue psutil"
    worker.close()
    script = "import json, queue, os, sys; print(os.environ['PYTHONPATH'], sys.flags.safe_path)"
    output = subprocess.check_output(
        python_command("-c", script), env=child_environment(), text=True
    )
    assert output == f"{ROOT} True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_freed_memory_is_returned_to_the_system():
    script = """
import psutil
from autosplit.hardware.isolation.worker import release_memory
resident = lambda: psutil.Process().memory_info().rss
blocks = [bytearray(50_000) for _ in range(2_000)]  # 100 MB, small enough for the heap
last = bytearray(50_000)  # above them, so that the heap cannot shrink by itself
del blocks
before = resident()
release_memory()
print(before - resident())
"""
    freed = subprocess.check_output([sys.executable, "-c", script])
    assert int(freed) > 50_000_000
