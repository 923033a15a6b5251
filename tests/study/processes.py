"""Studies on simulated hardware that processes run, which a test kills, stops and starts again."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time

from autosplit.errors import AutosplitError
from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import find_study
from autosplit.study.record import RESULT, record_of

STUDY = 'name = "k"\nmodel = "net.onnx"\nstages = 3\n[search]\ntrials = {}\n{}\n'


class Runs:
    """A study; a measurement takes ``delay`` seconds in the processes that run it."""

    def __init__(self, folder, trials, more="converge = false", storage=None):
        folder.mkdir(exist_ok=True)
        self._file = folder / "k.toml"
        self._file.write_text(STUDY.format(trials, more))
        self.storage = storage or str(folder / "k.db")

    def start(self, delay, **options):
        """A process that runs the study; its standard error is a pipe."""
        command = [sys.executable, "-m", "studies.simulation", "ops=40", f"delay={delay}"]
        command += ["run", str(self._file), "--storage", self.storage]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, **pipes, **options)

    @contextlib.contextmanager
    def running(self, delay):
        """A process that is killed at the end if it still runs; a stopped one too."""
        with self.start(delay) as process:
            try:
                yield process
            finally:
                process.kill()

    def started_until(self, line):
        """A process that has printed a line that begins so."""
        process = self.start(0.5)
        assert any(printed.startswith(line) for printed in process.stderr), "it ended before"
        return process

    def run(self, delay=0.1):
        process = self.start(delay)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors

    def stop(self, process):
        """Stop a worker outside a transaction, which would lock a file for all others."""
        file = ":memory:" if "://" in self.storage else self.storage
        with contextlib.closing(sqlite3.connect(file, timeout=60)) as database:
            database.execute("BEGIN EXCLUSIVE")
            process.send_signal(signal.SIGSTOP)

    def trials(self):
        """As they are stored now; none before there is a study."""
        with contextlib.suppress(AutosplitError), find_study("k", self.storage).open() as study:
            return study.trials
        return []

    def wait(self, condition):
        """Until the trials are so."""
        deadline = time.monotonic() + 120
        while not condition(self.trials()):
            assert time.monotonic() < deadline, self.trials()
            time.sleep(0.02)

    def stored(self):
        """State, candidate and value of each trial; the best candidate; and the verdict."""
        with find_study("k", self.storage).open() as study:
            trials = [(t.state.name, record_of(t).key, t.value) for t in study.trials]
            best = read(study).best()
            result = study.user_attrs.get(RESULT, {})
            return trials, best and best.record.key, result.get("verdict")
