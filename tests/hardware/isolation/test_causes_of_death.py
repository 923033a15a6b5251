"""Why a worker died, from its exit status and its log; and which errors cross from it."""

import signal

import pytest

from autosplit import errors
from autosplit.hardware.isolation.process import cause_of_death, error_of

STAGES = {"0x00000000000000aa": 0, "0x00000000000000bb": 1}


@pytest.mark.parametrize(
    "word", ["MemoryError", "std::bad_alloc", "CUDA out of memory", "fork: Cannot allocate memory"]
)
@pytest.mark.parametrize("status", [1, 0, -int(signal.SIGABRT), -int(signal.SIGKILL)])
def test_a_log_that_names_memory_is_out_of_memory_whatever_the_status(word, status):
    log = f"lines\n{word}\nmore"
    assert cause_of_death(status, "running", log, {}) == "out of memory while running"


@pytest.mark.parametrize(
    ("status", "log", "cause"),
    [
        (0, "", "exit 0 without a result while building"),
        (77, "", "exit 77 without a result while building"),
        (-9, "", "killed by SIGKILL while building, perhaps out of memory"),
        (-11, "Current thread 0x00000000000000bb (most", "crash SIGSEGV in stage 1"),
        (-11, "Thread 0x00000000000000aa:", "crash SIGSEGV while building"),
        (-6, "", "crash SIGABRT while building"),
    ],
)
def test_the_cause_names_status_signal_and_stage(status, log, cause):
    assert cause_of_death(status, "building", log, STAGES) == cause


def test_an_error_of_the_project_crosses_as_itself():
    for kind in (errors.ModelError, errors.Infeasible, errors.MachineError, errors.StageError):
        error = error_of(kind.__name__, "one line")
        assert (type(error), str(error)) == (kind, "one line")


OTHERS = ["ValueError", "Iterable", "nearest", "line_of", "difflib", "", "__name__", "annotations"]


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_name_is_a_stage_error_and_is_never_called(name):
    error = error_of(name, "text")
    assert (type(error), str(error)) == (errors.StageError, f"{name}: text")
