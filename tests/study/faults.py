"""Faults done to real processes that run studies, and what remains: for tests and benchmarks."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.study.record import record_of
from autosplit.study.results import best_of_study, error_of
from autosplit.study.storage import connect, storage_url

KILLED = "k"  # the name of the study that is killed again and again
SHARED = "w"  # of that which many workers share
LEASE = 2  # seconds, in worker.py
STUDY = """
name = "k"
model = "net.onnx"
stages = 4
[search]
trials = {trials}
converge = false
"""


@dataclass(frozen=True)
class Remains:
    """What is in the storage of a study.

    ``keys`` are those of its complete trials, ``errors`` those of its failed ones, ``best`` is
    period in ms and key.
    """

    states: tuple[str, ...]
    keys: tuple[str, ...]
    numbers: tuple[int, ...]
    errors: tuple[str, ...]
    best: tuple[float, str] | None

    @property
    def measured_twice(self) -> int:
        """How many complete trials measured a split that another had measured."""
        return len(self.keys) - len(set(self.keys))

    @property
    def repeated(self) -> int:
        """How many trials ended without a result, so that another measured their candidate."""
        return self.states.count("FAIL")

    @property
    def running(self) -> int:
        """How many trials nobody finished."""
        return self.states.count("RUNNING")


@dataclass(frozen=True)
class Killed:
    """A study that was killed ``kills`` times; ``lost``: finished trials lost or changed by it."""

    kills: int
    lost: int
    remains: Remains
    uninterrupted: Remains

    @property
    def same_end(self) -> bool:
        """Whether its splits and its best are those of the study that nobody killed."""
        mine, theirs = self.remains, self.uninterrupted
        return (mine.keys, mine.best) == (theirs.keys, theirs.best)


@dataclass(frozen=True)
class Shared:
    """A study that four workers shared: exit codes and standard errors of those that lived."""

    codes: tuple[int, ...]
    stopped_output: str
    other_outputs: str
    remains: Remains


def killed(
    folder: Path, kills: int = 20, trials: int = 40, delay: float = 0.1, seed: int = 0
) -> Killed:
    """Kill a study at random moments and start it again; beside it one that runs through."""
    whole, again = folder / "whole", folder / "killed"
    for place in (whole, again):
        place.mkdir(parents=True)
        (place / "k.toml").write_text(STUDY.format(trials=trials))
    subprocess.run(_command(whole, delay), check=True, capture_output=True)
    rng, met, lost = random.Random(seed), 0, 0
    before: dict[int, Any] = {}
    for _ in range(kills):
        process = subprocess.Popen(
            _command(again, delay), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(rng.uniform(0.5, 4.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            met += 1
        now = _complete(again)
        lost += sum(now.get(number) != result for number, result in before.items())
        before = now
    subprocess.run(_command(again, delay), check=True, capture_output=True)
    return Killed(met, lost, remains(KILLED, _url(again)), remains(KILLED, _url(whole)))


def shared(url: str, trials: int = 60) -> Shared:
    """Four workers on one study: one is killed, one stopped for longer than its lease."""
    with _worker(url, trials, "held") as dead, _worker(url, trials, "held") as stopped:
        until_measuring(dead, 1)
        until_measuring(stopped, 1)
        dead.send_signal(signal.SIGKILL)
        stopped.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        with _worker(url, trials) as one, _worker(url, trials) as two:
            until_measuring(one, 4)
            time.sleep(max(0.0, stopped_at + 2 * LEASE - time.monotonic()))
            # The other workers confirm a silence before they free its trial.
            while not any("silent" in error for error in remains(SHARED, url).errors):
                until_measuring(one, 1)
            stopped.send_signal(signal.SIGCONT)
            outputs = [w.communicate(timeout=120)[1] for w in (stopped, one, two)]
            codes = tuple(w.returncode for w in (stopped, one, two))
    return Shared(codes, outputs[0], "".join(outputs[1:]), remains(SHARED, url))


def restarted(url: str, restart: Callable[[], None], trials: int = 40) -> Shared:
    """Four workers on one study whose server is restarted meanwhile; another one finishes it."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(url, trials)) for _ in range(4)]
        for worker in workers:
            until_measuring(worker, 2)
        restart()
        outputs = [worker.communicate(timeout=120)[1] for worker in workers]
        codes = tuple(worker.returncode for worker in workers)
    time.sleep(2 * LEASE)
    with _worker(url, trials) as last:
        outputs.append(last.communicate(timeout=120)[1])
    return Shared((*codes, last.returncode), "", "".join(outputs), remains(SHARED, url))


def remains(name: str, url: str) -> Remains:
    """What is in the storage now."""
    import optuna

    study = optuna.load_study(study_name=name, storage=connect(url))
    trials = study.trials
    best = best_of_study(study)
    period = best and best.record.measurement().period_ms
    return Remains(
        states=tuple(t.state.name for t in trials),
        keys=tuple(record_of(t).key for t in trials if t.state.name == "COMPLETE"),
        numbers=tuple(t.number for t in trials),
        errors=tuple(error_of(t) for t in trials if t.state.name == "FAIL"),
        best=(period.median, best.record.key) if best and period else None,
    )


def until_measuring(worker: subprocess.Popen[str], times: int) -> None:
    """Wait until a worker has begun that many further measurements."""
    assert worker.stdout is not None
    for _ in range(times):
        assert worker.stdout.readline() == "measuring\n", worker.communicate()


@contextmanager
def _worker(url: str, trials: int, delay: str = "0.1") -> Iterator[subprocess.Popen[str]]:
    """A worker, killed at the end if it still runs; a stopped one too."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.study.worker", url, str(trials), delay]
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def _command(folder: Path, delay: float) -> Sequence[str]:
    return [
        sys.executable,
        "-m",
        "studies.simulation",
        "ops=40",
        f"delay={delay}",
        "run",
        str(folder / "k.toml"),
        "--storage",
        str(folder / "k.db"),
    ]


def _url(folder: Path) -> str:
    return storage_url(KILLED, str(folder / "k.db"))


def _complete(folder: Path) -> dict[int, Any]:
    """The split and the value of each complete trial; none where there is no study yet."""
    import optuna

    try:
        study = optuna.load_study(study_name=KILLED, storage=connect(_url(folder)))
    except KeyError:
        return {}
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    return {trial.number: (record_of(trial).key, trial.values) for trial in complete}
