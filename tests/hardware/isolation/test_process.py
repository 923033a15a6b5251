"""Workers that crash, hang and exhaust the memory: the cause is reported and no process is left."""

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from autosplit import errors
from autosplit.errors import StageError
from autosplit.hardware.isolation import process
from autosplit.hardware.isolation.process import Worker
from tests.hardware.fakes import wait_for
from tests.hardware.faults import open_faulty
from tests.hardware.servers import session_of

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
        assert not session_of(worker._process.pid)


def require_end(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        # An orphan that ended stays a zombie until the init process looks after it.
        wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


ECHO = {"code": "result = [1, 2]", "phase": "running"}
TAKE_ALL = "[b'x' * (1 << 28) for _ in range(1000)]"
FAIL = "raise ValueError('the handler said no')"
FLOOD = "import os\nfor _ in range(30): os.write(1, b'x' * (1 << 20))\nresult = 'done'"
GRANDCHILD = """
import subprocess, sys  # in a session of its own, which no signal to our group reaches
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
result = subprocess.Popen(sleeper, start_new_session=True).pid
"""
IN_STAGE = """
import ctypes, threading, time
ready = threading.Event()
wait = lambda depth: wait(depth - 1) if depth else time.sleep(99)
for _ in range(9): threading.Thread(target=wait, args=[90], daemon=True).start()
thread = threading.Thread(target=lambda: (ready.wait(), ctypes.string_at(0)))
thread.start()
phases.report("running", {f"0x{thread.ident:016x}": 2})
ready.set()
thread.join()
"""


def reason(worker, code, phase="running", timeout_s=30.0):
    with pytest.raises(StageError) as caught:
        worker.call({"code": code, "phase": phase}, timeout_s)
    return str(caught.value)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import ctypes; ctypes.string_at(0)", "crash SIGSEGV while running"),
        ("import os; os.abort()", "crash SIGABRT while running"),
        ("import os; os._exit(7)", "exit 7 without a result while running"),
        (IN_STAGE, "crash SIGSEGV in stage 2"),
        pytest.param(TAKE_ALL, "out of memory while running", marks=pytest.mark.integration),
    ],
)
def test_a_death_is_reported_with_its_cause(start, code, cause):
    setting = {"memory": 2 << 30} if "memory" in cause else {}
    assert reason(start(**setting), code) == cause


@pytest.mark.parametrize(
    "code",
    ["import re; re.match(r'(a+)+$', 'a' * 64 + 'b')",  # holds Python's global lock
     "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
     "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"],
)  # fmt: skip
def test_a_worker_that_hangs_is_killed_at_the_deadline(start, code):
    worker = start()
    worker.call(ECHO, 30)
    assert reason(worker, code, timeout_s=0.5) == "timeout 0.5 s while running"
    assert not worker.is_alive


def test_a_worker_survives_a_flood_and_an_exception_and_its_grandchild_dies_with_it(start):
    worker = start()
    assert worker.call({"code": FLOOD, "phase": "running"}, 60) == "done"
    assert 1000 < len(worker.log_tail()) <= 1 << 16
    assert worker.call(ECHO, 30) == [1, 2]
    assert worker.log_tail() == ""  # it explains no later job
    for _ in range(2):  # beyond the limit of a log, which is truncated then
        worker.call({"code": FLOOD, "phase": "running"}, 60)
    wait_for(lambda: os.fstat(worker._log.fileno()).st_size < 60 << 20)
    worker.call({"code": "import os, time; os.write(1, b'here'); time.sleep(0.5)", "phase": ""}, 30)
    assert worker.log_tail() == "here"
    assert reason(worker, FAIL, "building") == "ValueError: the handler said no"
    pid = worker.call({"code": GRANDCHILD, "phase": "running"}, 30)
    worker.kill()
    require_end(pid)


def test_a_fork_that_closes_its_copy_of_a_worker_does_not_end_it(start):
    worker = start()
    if (child := os.fork()) == 0:
        worker.close()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert worker.call(ECHO, 30) == [1, 2]


def test_a_job_has_its_time_for_each_phase(start):
    worker = start()
    worker.call(ECHO, 30)
    code = "import time\nfor n in range(4): phases.report(f'phase {n}'); time.sleep(0.3)"
    assert worker.call({"code": code, "phase": "building"}, 1.0) is None


def test_nothing_is_left_when_the_asking_process_is_killed(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = f"""
import time
from autosplit.hardware.isolation.process import Worker
from tests.hardware.fakes import wait_for
from tests.hardware.faults import open_faulty
worker = Worker(open_faulty, {{}})
codes = {[FLOOD, "import os; result = os.getpid()", GRANDCHILD]}
_, *pids = [worker.call({{"code": code, "phase": "x"}}, 30) for code in codes]
print(*pids, flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        worker, grandchild = map(int, asking.stdout.readline().split())
        asking.send_signal(signal.SIGKILL)
    require_end(worker)
    require_end(grandchild)
    assert list(tmp_path.iterdir()) == []  # of the log


def test_a_full_disk_under_the_log_hides_no_answer(start, monkeypatch):
    full = partial(Path("/dev/full").open, "r+b")
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    worker = start()
    assert reason(worker, FLOOD) == "OSError: [Errno 28] No space left on device"
    assert reason(worker, FAIL) == "ValueError: the handler said no"
    assert worker.call(ECHO, 30) == [1, 2]


def test_nothing_in_the_current_folder_is_imported(monkeypatch, tmp_path):
    for folder in (tmp_path, tmp_path / "relative"):
        folder.mkdir(exist_ok=True)
        for module in ("queue", "json", "psutil", "autosplit", "tests"):
            (folder / f"{module}.py").write_text("import os; os._exit(99)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":.:relative:{ROOT}")
    worker = Worker(open_faulty, {})
    code = "import queue, psutil; result = f'{queue.__name__} {psutil.__name__}'"
    assert worker.call({"code": code, "phase": "x"}, 30) == "queue psutil"
    worker.close()
    script = "import json, queue, os, sys; print(os.environ['PYTHONPATH'], sys.flags.safe_path)"
    command = process.python_command("-c", script)
    printed = subprocess.check_output(command, env=process.child_environment(), text=True)
    assert printed == f"{ROOT} True\n"


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


MEMORY = ["MemoryError", "std::bad_alloc", "CUDA out of memory", "fork: Cannot allocate memory"]
STATUSES = [1, 0, -int(signal.SIGABRT), -int(signal.SIGKILL)]
NO_MEMORY = "out of memory while building"


@pytest.mark.parametrize(
    ("status", "log", "cause"),
    [
        *((status, f"lines\n{word}\nmore", NO_MEMORY) for status in STATUSES for word in MEMORY),
        (0, "", "exit 0 without a result while building"),
        (-9, "", "killed by SIGKILL while building, perhaps out of memory"),
        (-11, "Thread 0x00000000000000aa:", "crash SIGSEGV while building"),
    ],
)
def test_the_cause_is_memory_that_the_log_names_or_the_status_or_signal(status, log, cause):
    threads = {"0x00000000000000aa": 0}
    assert process.cause_of_death(status, "building", log, threads) == cause


OTHERS = ["ValueError", "Iterable", "nearest", "line_of", "difflib", "", "__name__", "annotations"]


def test_an_error_of_the_project_crosses_as_itself_and_any_other_name_is_never_called():
    for kind in (errors.ModelError, errors.Infeasible, errors.MachineError, errors.StageError):
        error = process.error_of(kind.__name__, "one line")
        assert (type(error), str(error)) == (kind, "one line")
    for name in OTHERS:
        error = process.error_of(name, "text")
        assert (type(error), str(error)) == (errors.StageError, f"{name}: text")
