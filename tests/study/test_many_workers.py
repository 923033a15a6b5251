import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from autosplit.errors import MachineError
from autosplit.study.open import OpenStudy, open_study
from autosplit.study.progress import Silent
from autosplit.study.run import run_study
from autosplit.study.simulated import SimulatedBench
from autosplit.study.space import KEY
from autosplit.study.storage import connect, storage_url
from tests.study.server import Server, postgresql

Make = Callable[..., SimulatedBench]
Open = Callable[..., OpenStudy]
WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return storage_url("w", str(tmp_path / "w.db"))
    return str(request.getfixturevalue("server").url)


def start(url: str, trials: int, delay: str = "0.1") -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), url, str(trials), delay]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def until_measuring(worker: subprocess.Popen[str], times: int) -> None:
    assert worker.stdout is not None
    for _ in range(times):
        assert worker.stdout.readline() == "measuring\n", worker.communicate()


def test_four_workers_one_killed_one_stopped_for_longer_than_its_lease(url: str) -> None:
    killed, stopped = start(url, 60, "held"), start(url, 60, "held")
    until_measuring(killed, 1)
    until_measuring(stopped, 1)
    killed.send_signal(signal.SIGKILL)
    stopped.send_signal(signal.SIGSTOP)
    away = time.monotonic()
    others = [start(url, 60), start(url, 60)]
    until_measuring(others[0], 4)
    time.sleep(max(0.0, away + 4 - time.monotonic()))  # the lease is 2 s
    until_measuring(others[0], 2)
    stopped.send_signal(signal.SIGCONT)
    told = {worker: worker.communicate(timeout=120)[1] for worker in (stopped, *others)}
    killed.communicate()
    assert [worker.returncode for worker in told] == [0, 0, 0], told
    assert "another worker finished it meanwhile; this result is dropped" in told[stopped]
    assert "silent for longer than its lease" in "".join(map(told.__getitem__, others))
    trials = optuna.load_study(study_name="w", storage=connect(url)).trials
    assert [t.number for t in trials] == list(range(len(trials)))
    measured = [t.user_attrs[KEY] for t in trials if t.state.name == "COMPLETE"]
    assert len(measured) == len(set(measured)) == 60
    assert {t.state.name for t in trials} == {"COMPLETE", "FAIL"}
    assert all("silent" in t.user_attrs["error"] for t in trials if t.state.name == "FAIL")


def test_a_server_that_is_lost_is_one_line_and_the_study_goes_on_afterwards(
    server: Server, chain_bench: Make, opened: Open
) -> None:
    bench = chain_bench()
    config = opened(bench, trials=4, sampler="random").config
    on = open_study(config, bench, server.url, Silent(), name="lost")
    measure, seen = bench.measure, []

    def losing(stages: object) -> object:
        seen.append(stages)
        if len(seen) == 3:
            server.stop()
        return measure(stages)  # type: ignore[arg-type]

    bench.measure = losing  # type: ignore[method-assign, assignment]
    with pytest.raises(MachineError, match=r"storage 'postgresql\+psycopg://.*; see to it and run again"):
        run_study(on, Silent())
    server.start()
    run_study(open_study(config, bench, server.url, Silent(), name="lost"), Silent())
    again = optuna.load_study(study_name="lost", storage=connect(server.url))
    assert [t.state.name for t in again.trials] == ["COMPLETE"] * 2 + ["RUNNING", "COMPLETE"]  # the lease runs on
