"""The run loop: the sampler chooses a candidate, the bench measures it, Optuna stores the trial.

Any number of processes may run a study, and each may be killed and started again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial

from autosplit import phases
from autosplit.errors import AutosplitError, Infeasible, MachineError, SplitError
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.disturbance import state as machine_state
from autosplit.planner import evaluate
from autosplit.study.acquisition import corrected_costs
from autosplit.study.documents import deployment_document, measured_document
from autosplit.study.loop import comparison
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.stopping import commonest_error, stop_reason
from autosplit.study.record import RESULT, mapping, record_of, update
from autosplit.study.results import error_of, is_lost, tally
from autosplit.study.space import Candidate
from autosplit.study.storage import storage_errors
from autosplit.study.workers import free_lost_trials, this_worker
from autosplit.units import bound_text, duration, milliseconds

Clock = Callable[[], float]
LOG_LIMIT = 2000  # characters of the end of a failed worker's log that are stored


class FailedTrial(Exception):
    """A trial without a result, whose record says why."""


class StudyLoop:
    """Runs the trials of one process; ``clock`` is monotonic."""

    def __init__(self, opened: OpenStudy, clock: Clock) -> None:
        self.opened, self.study, self.clock = opened, opened.study, clock
        self.began = clock()
        self.calm = Calm(opened.config.measure.seconds, opened.notify)
        self.bound_ms = opened.record.bound_ms
        self._number = -1  # of the latest trial of this process
        self._error: BaseException | None = None  # the error that interrupted the latest trial
        self._ordinal = 0  # the number of trials, without lost ones
        self._known: list[FrozenTrial] = []  # the trials, as they were read last

    def run(self) -> str:
        """Run trials until a limit is met, and return which limit.

        An interruption leaves the candidate that is being measured free for another trial.
        """
        measured, most = 0, self.opened.config.search.trials
        self._read()
        while not (reason := self.stop_reason()):
            with phases.step(f"candidate {self._ordinal + 1} of {most}"):
                is_measured = self._run_trial()
            self._read()
            if is_measured and not is_lost(trial := self._known[self._number]):
                measured += 1
                self._report(trial, measured)
        return reason

    def _read(self) -> None:
        """Fail the trials of lost workers, then read all trials."""
        # Optuna tells its sampler of lost trials too, and that of brute force would stop the study.
        self.study.sampler = self.opened.assignment.planner
        self._known = free_lost_trials(self.study, self.opened.notify)
        # Lost trials do not count, so an interrupted study goes on as if it had not been.
        self._ordinal = sum(not is_lost(trial) for trial in self._known)

    def stop_reason(self) -> str | None:
        """Why no further trial starts; None to continue."""
        elapsed = self.clock() - self.began
        promised = partial(self.opened.assignment.planner.view, self._known)
        return stop_reason(self.opened.config.search, promised, self._known, elapsed)

    def _run_trial(self) -> bool:
        """Run a trial within Optuna; false where another worker finished it meanwhile."""
        self._number, self._error, is_late = -1, None, False
        self.study.sampler = self.opened.assignment.sampler(self._ordinal)
        try:
            self.study.optimize(self._objective, n_trials=1, catch=(FailedTrial,))
        except Exception as error:
            # Optuna raises ValueError for the result of a finished trial, and for other mistakes.
            is_late = self._number >= 0 and isinstance(error, ValueError)
            if not is_late and self._error is None:
                raise
        if self._error is not None:
            raise self._error
        if is_late:
            dropped = "another worker finished it first; this result is dropped"
            self.opened.notify(f"trial {self._number}: {dropped}")
        return not is_late

    def _objective(self, trial: Trial) -> float:
        """Measure a new trial, and return its value. Raises FailedTrial for one without a value."""
        self._number = trial.number
        try:
            # Before anything that takes long, so that others notice if this process dies.
            if record_of(trial).worker != this_worker():
                update(trial, worker=this_worker())
            return self._measure(trial, self._candidate(trial))
        except (FailedTrial, UpdateFinishedTrialError) as error:
            raise FailedTrial from error
        except BaseException as error:
            # An error of the candidate is its result; any other error leaves the candidate free.
            is_result = isinstance(error, AutosplitError) and not isinstance(error, MachineError)
            reason = str(error) if is_result else f"{type(error).__name__}: {error}"
            if isinstance(error, KeyboardInterrupt):
                reason = "interrupted"
            log = str(getattr(error, "log", ""))[-LOG_LIMIT:]
            # The storage itself may have failed.
            ignored = contextlib.suppress(MachineError, UpdateFinishedTrialError)
            with ignored, storage_errors(self.opened.url):
                update(trial, error=reason, lost=not is_result, log=log)
            self._error = None if is_result else error
            raise FailedTrial from error

    def _candidate(self, trial: Trial) -> Candidate:
        """The candidate of a trial. Raises FailedTrial where there is none to measure."""
        trials = self.study.get_trials(deepcopy=False)
        # Workers that started trials at the same time may have reached the limit first.
        earlier = tally(trials[: trial.number])
        if earlier.finished + len(earlier.running) >= self.opened.config.search.trials:
            self._lose(trial, "other workers started the last trials first")
        candidate = self.opened.assignment.assign(self.study, trial, trials)
        if candidate is None:
            self._lose(trial, "no unmeasured candidate is left")
        return candidate

    def _lose(self, trial: Trial, reason: str) -> NoReturn:
        update(trial, error=reason, lost=True)
        raise FailedTrial

    def _measure(self, trial: Trial, candidate: Candidate) -> float:
        """Measure a candidate and store the figures; returns the value of the trial."""
        opened, space = self.opened, self.opened.space
        if not space.fits(candidate):
            key = space.key(candidate)[:60]
            raise SplitError(f"candidate {key} does not fit the devices; enqueue another")
        measured = opened.history().measured
        deployment = space.deployment(candidate)
        update(
            trial,
            **deployment_document(opened.bench.description.graph, deployment),
            predicted_ms=corrected_costs(space, measured).period(candidate),
            memory_bytes=int(max(evaluate(space.costs, candidate).memory)),
        )
        with opened.device_lock():
            measurement = self.calm.measured(
                f"trial {trial.number}",
                lambda: opened.bench.measure(deployment),
                lambda result: result.disturbances,
            )
        update(trial, **measured_document(measurement))
        return opened.goal.measured_value(candidate, measurement)

    def _report(self, trial: FrozenTrial, measured: int) -> None:
        """Tell the user about the latest trial and the progress of the study."""
        search = self.opened.config.search
        counts = tally(self._known)
        result, record = f"failed: {error_of(trial)}", record_of(trial)
        if trial.state.name == "COMPLETE" and record.period_ms:
            times = ", ".join(map(milliseconds, record.stage_ms))
            result = f"{milliseconds(record.period_ms.median)}, stages {times}"
        parts = [f"{counts.finished} of {search.trials} trials"]
        limit_ms = self.opened.goal.latency_ms
        allowed = [m for m in self.opened.history().trials if m.latency_ms <= limit_ms]
        best_ms = min((m.period_ms for m in allowed), default=None)
        if best_ms is not None:
            parts.append(f"best {milliseconds(best_ms)}")
        if self.bound_ms is not None:
            parts.append(f"predicted bound {bound_text(self.bound_ms, best_ms)}")
        elapsed = self.clock() - self.began
        left = elapsed / measured * max(0, search.trials - counts.finished)
        left = min(left, max(0.0, (search.timeout or float("inf")) - elapsed))
        parts += filter(None, [f"about {duration(left)} left", machine_state()])
        self.opened.notify(f"trial {trial.number}: {result}; {', '.join(parts)}")


def run_study(opened: OpenStudy, clock: Clock = time.monotonic) -> None:
    """Run trials until a limit is met, then the final comparison and the verdict; all is stored.

    Raises Infeasible where no trial succeeded, MachineError where the storage or the hardware
    broke. The study is consistent afterwards, and running it again continues it.
    """
    study = opened.study
    with storage_errors(opened.url):
        stopped = StudyLoop(opened, clock).run()
        counts = tally(study.get_trials(deepcopy=False))
        # Until there is a new verdict, that of the same trials stays.
        is_new = opened.record.final_comparison.measured != len(counts.complete)
        known = None if is_new else mapping(study.user_attrs.get(RESULT)).get("verdict")
        study.set_user_attr(RESULT, {"stopped": stopped, "verdict": known})
        if not counts.finished:
            raise Infeasible(f"no trial has ended: {stopped.removeprefix('stopped: ')}; run again")
        if not counts.complete:
            remedy = "fix that and start a new study with --force"
            reason = commonest_error(counts)
            raise Infeasible(f"no trial succeeded, most often: {reason}; {remedy}")
        comparison.compare(opened)
        # The comparison may have measured the best trial on a calmer or a busier machine.
        study.set_user_attr(RESULT, {"stopped": stopped, "verdict": comparison.verdict(opened)})
