"""Processes that share a study, in a file and in PostgreSQL, and what happens to them."""

import contextlib
import signal
import subprocess
import sys
import time

import optuna
import pytest
import sqlalchemy

from autosplit.errors import ConfigError, MachineError
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.record import record_of
from autosplit.study.results import error_of
from autosplit.study.storage import connect, storage_url
from tests.study.conftest import chain_bench

pytestmark = pytest.mark.integration
LEASE = 2  # seconds, in worker.py


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return storage_url("w", str(tmp_path / "w.db"))
    return str(request.getfixturevalue("database_server").url)


@contextlib.contextmanager
def worker(url, trials, delay="0.1"):
    """A worker, killed at the end if it still runs; a stopped one too."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.study.worker", url, str(trials), delay]
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def until_measuring(process, times):
    """Wait until a worker has begun that many further measurements."""
    for _ in range(times):
        assert process.stdout.readline() == "measuring\n", process.communicate()


def ended(processes):
    """The standard error of each worker, when it has ended."""
    return [process.communicate(timeout=120)[1] for process in processes]


def trials_of(url):
    return optuna.load_study(study_name="w", storage=connect(url)).trials


def errors_of(url):
    return [error_of(trial) for trial in trials_of(url) if trial.state.name == "FAIL"]


def check_trials(url, complete):
    """So many trials have a result, of a candidate each, and no number is missing."""
    trials = trials_of(url)
    keys = [record_of(trial).key for trial in trials if trial.state.name == "COMPLETE"]
    assert len(keys) == len(set(keys)) == complete
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert "RUNNING" not in {trial.state.name for trial in trials}


def test_a_server_s_database_of_another_program_is_refused_and_left_as_it_is(database_server):
    with database_server.database("other") as url:
        engine = sqlalchemy.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE orders (x integer)"))
        with pytest.raises(ConfigError, match=r"other.* belongs to another program.*--storage"):
            connect(url)
        assert sqlalchemy.inspect(engine).get_table_names() == ["orders"]
        engine.dispose()


def test_four_workers_one_killed_one_stopped_for_longer_than_its_lease(url):
    with worker(url, 60, "held") as dead, worker(url, 60, "held") as stopped:
        until_measuring(dead, 1)
        until_measuring(stopped, 1)
        dead.send_signal(signal.SIGKILL)
        stopped.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        with worker(url, 60) as one, worker(url, 60) as two:
            until_measuring(one, 4)
            time.sleep(max(0.0, stopped_at + 2 * LEASE - time.monotonic()))
            # The other workers confirm a silence before they free its trial.
            while not any("silent" in error for error in errors_of(url)):
                until_measuring(one, 1)
            stopped.send_signal(signal.SIGCONT)
            outputs = ended([stopped, one, two])
            assert [process.returncode for process in (stopped, one, two)] == [0] * 3, outputs
    assert "another worker finished it first; this result is dropped" in outputs[0]
    assert "its candidate is free again" in "".join(outputs[1:])
    check_trials(url, 60)
    assert {trial.state.name for trial in trials_of(url)} == {"COMPLETE", "FAIL"}
    limit = "other workers started the last trials first"
    assert all("silent" in error or error == limit for error in errors_of(url))


def test_a_server_that_is_restarted_under_four_workers_loses_no_trial(database_server):
    with database_server.database("restarted") as url, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker(url, 40)) for _ in range(4)]
        for process in workers:
            until_measuring(process, 2)
        database_server.stop()
        database_server.start()
        outputs = ended(workers)
        time.sleep(2 * LEASE)
        with worker(url, 40) as last:
            outputs += ended([last])
        assert {process.returncode for process in workers} <= {0, 3}, outputs
        assert last.returncode == 0, outputs
        assert "Traceback" not in "".join(outputs)
        check_trials(url, 40)


def test_a_server_that_is_lost_is_one_line_and_the_study_goes_on_afterwards(
    database_server, new_study
):
    bench = chain_bench()
    config = new_study(bench, trials=4, sampler="random").config
    opened = open_study(config, bench, database_server.url, name="lost")
    measure, measured = bench.measure, []

    def losing(stages):
        measured.append(stages)
        if len(measured) == 3:
            database_server.stop()
        return measure(stages)

    bench.measure = losing
    lost = r"storage 'postgresql\+psycopg://.*; repair it and run again"
    with pytest.raises(MachineError, match=lost):
        run_study(opened)
    database_server.start()
    run_study(open_study(config, bench, database_server.url, name="lost"))
    again = optuna.load_study(study_name="lost", storage=connect(database_server.url))
    states = [t.state.name for t in again.trials]
    assert states == ["COMPLETE", "COMPLETE", "RUNNING", "COMPLETE"]  # the lease runs on
