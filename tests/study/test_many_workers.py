"""Processes that share a study, in a file and in PostgreSQL, and what happens to them."""

import contextlib
import signal
import time

import pytest

from autosplit.study.record import record_of
from autosplit.study.results import error_of
from tests.study.processes import Runs

pytestmark = pytest.mark.integration
LEASE = 2  # seconds
SEARCH = f'sampler = "random"\nlease = {LEASE}'


def ended(processes):
    """The standard error of each worker, when it has ended."""
    return [process.communicate(timeout=120)[1] for process in processes]


def errors_of(trials):
    return [error_of(trial) for trial in trials if trial.state.name == "FAIL"]


def check_trials(trials, complete):
    """So many trials have a result, of a candidate each, and no number is missing."""
    keys = [record_of(trial).key for trial in trials if trial.state.name == "COMPLETE"]
    assert len(keys) == len(set(keys)) == complete
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert "RUNNING" not in {trial.state.name for trial in trials}


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
def test_four_workers_one_killed_one_stopped_for_longer_than_its_lease(request, storage, tmp_path):
    server = request.getfixturevalue("database_server") if storage == "postgresql" else None
    study = Runs(tmp_path, 60, SEARCH, server and server.url)
    with study.running(6) as dead, study.running(6) as stopped:
        study.wait(lambda trials: sum(bool(record_of(trial).key) for trial in trials) == 2)
        dead.send_signal(signal.SIGKILL)
        study.stop(stopped)
        with study.running(0.1) as one, study.running(0.1) as two:
            # The other workers confirm a silence before they free its trial.
            study.wait(lambda trials: sum("silent" in error for error in errors_of(trials)) == 2)
            stopped.send_signal(signal.SIGCONT)
            outputs = ended([stopped, one, two])
            assert [process.returncode for process in (stopped, one, two)] == [0] * 3, outputs
    assert "another worker finished it first; this result is dropped" in outputs[0]
    assert "its candidate is free again" in "".join(outputs[1:])
    check_trials(trials := study.trials(), 60)
    assert {trial.state.name for trial in trials} == {"COMPLETE", "FAIL"}
    limit = "other workers started the last trials first"
    assert all("silent" in error or error == limit for error in errors_of(trials))


def test_a_server_that_is_restarted_under_four_workers_loses_no_trial(database_server, tmp_path):
    with database_server.database("restarted") as url, contextlib.ExitStack() as stack:
        study = Runs(tmp_path, 40, SEARCH, url)
        workers = [stack.enter_context(study.running(0.1)) for _ in range(4)]
        study.wait(lambda trials: len(trials) > 8)
        database_server.stop()
        database_server.start()
        outputs = ended(workers)
        time.sleep(2 * LEASE)
        with study.running(0.1) as last:
            outputs += ended([last])
        assert {process.returncode for process in workers} <= {0, 3}, outputs
        assert last.returncode == 0, outputs
        # A loss is a line with a remedy.
        assert "autosplit: unexpected" not in "".join(outputs)
        check_trials(study.trials(), 40)
