"""What is told of a worker that died, from its exit status and its log; which errors cross from it."""

import signal

import pytest

from autosplit import errors
from autosplit.hardware.isolation import process
from autosplit.hardware.isolation.process import Worker


def died(status, log="", stages=None, phase="running"):
    worker = Worker.__new__(Worker)
    worker.phase, worker.stages = phase, stages or {}
    worker.log_tail = lambda: log
    return worker._death(status)


@pytest.mark.parametrize(
    "word", ["MemoryError", "std::bad_alloc", "CUDA out of memory", "fork: Cannot allocate memory"]
)
@pytest.mark.parametrize("status", [1, 0, -int(signal.SIGABRT), -int(signal.SIGKILL)])
def test_a_log_that_speaks_of_memory_is_out_of_memory_however_it_ended(word, status):
    assert died(status, f"lines\n{word}\nmore") == "out of memory while running"


@pytest.mark.parametrize("status", [0, 1, 77])
def test_an_exit_is_told_with_its_code(status):
    assert died(status, phase="building") == f"exit {status} without a result while building"


def test_a_kill_may_be_the_system_s_and_says_so():
    assert died(-9) == "killed by SIGKILL while running, perhaps out of memory"


def test_a_crash_is_told_with_its_stage_where_the_log_names_the_thread():
    stages = {"0x00000000000000aa": 0, "0x00000000000000bb": 1}
    log = "Fatal Python error: Segmentation fault\n\nThread 0x00000000000000aa:\nCurrent thread 0x00000000000000bb (most"
    assert died(-11, log, stages) == "crash SIGSEGV in stage 1"
    assert died(-11, "Thread 0x00000000000000aa:", stages) == "crash SIGSEGV while running"
    assert died(-6) == "crash SIGABRT while running"


@pytest.mark.parametrize(
    "kind", [errors.ModelError, errors.Infeasible, errors.MachineError, errors.StageError]
)
def test_an_error_of_ours_crosses_as_itself(kind):
    found = process._error(kind.__name__, "one line")
    assert (type(found), str(found)) == (kind, "one line")


@pytest.mark.parametrize(
    "name",
    ["ValueError", "Iterable", "nearest", "line_of", "difflib", "", "__name__", "annotations"],
)
def test_any_other_name_is_a_failed_stage_and_is_never_called(name):
    found = process._error(name, "said no")
    assert (type(found), str(found)) == (errors.StageError, f"{name}: said no".strip())
