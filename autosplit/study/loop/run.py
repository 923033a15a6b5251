"""The run loop: the sampler gives a trial its candidate, the bench measures it, Optuna keeps it.

Any number of processes may run a study, and each may be killed and started again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from autosplit.errors import AutosplitError, Infeasible, MachineError, SplitError
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.disturbance import state as machine_state
from autosplit.study.documents import deployment_document, measured_document
from autosplit.study.loop import comparison, time_left
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.stopping import check_failures, commonest_error, stop_reason, trusted
from autosplit.study.progress import Progress, Status
from autosplit.study.record import (
    RECORD,
    RESULT,
    mapping,
    record_of,
    result_of,
    study_record,
    update,
)
from autosplit.study.results import error_of, is_lost, tally
from autosplit.study.space import Candidate
from autosplit.study.storage import storage_errors
from autosplit.study.workers import LostTrials, Retry, this_worker

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial, Trial

Clock = Callable[[], float]
WATCH_INTERVAL = 0.5  # seconds between two looks at trials that seem lost
LOG_LIMIT = 2000  # characters of the end of a failed worker's log that are stored


class FailedTrial(Exception):
    """A trial without a result, whose record says why."""


class StudyLoop:
    """The trials of one process; ``clock`` is monotonic."""

    def __init__(self, opened: OpenStudy, progress: Progress, clock: Clock) -> None:
        self.opened, self.progress, self.clock = opened, progress, clock
        self.began = clock()
        self.study = opened.study
        # What is read here is stored before the first trial, and to read it takes long.
        self.attributes = opened.study.user_attrs
        self.calm = Calm(opened.config.measure.seconds, progress.note)
        self.lost_trials = LostTrials(self.study, Retry(progress.note))
        self._stopped = ""  # by a trial that could not be measured
        self._number = -1  # of the latest trial of this process
        self._ordinal = 0  # how many trials there were before it

    def run(self) -> str:
        """Measure until a limit is met, and return which.

        Whatever interrupts it leaves the candidate that is being measured free.
        """
        measured = 0
        with storage_errors(self.opened.url):
            while not (reason := self.stop_reason()):
                is_ours = self._run_trial()
                if self._stopped:
                    return self._stopped
                if is_ours:
                    measured += 1
                    self._report(self._number, measured)
        return reason

    def stop_reason(self) -> str | None:
        """Why no further trial starts; None to continue."""
        opened = self.opened
        while True:
            self.lost_trials.free()
            trials, elapsed = self._trials(), self.clock() - self.began
            check_failures(trials)
            reason = stop_reason(opened.config.search, opened.acquisition, trials, elapsed)
            # Lost trials do not count, so an interrupted study goes on as if it had not been.
            self._ordinal = sum(not is_lost(trial) for trial in trials)
            if not reason or not self.lost_trials.is_watching:
                return reason
            # Nothing is left to measure but a trial that seems lost.
            time.sleep(WATCH_INTERVAL)

    def _run_trial(self) -> bool:
        """Run a trial within Optuna; false where another worker finished it meanwhile."""
        from optuna.exceptions import UpdateFinishedTrialError

        errors: list[BaseException] = []

        def objective(trial: Trial) -> float:
            try:
                return self._objective(trial)
            except BaseException as error:
                errors.append(error)
                raise

        self._number = -1
        self.study.sampler = self.opened.assignment.sampler(self._ordinal)
        try:
            self.study.optimize(objective, n_trials=1, catch=(FailedTrial,))
        except BaseException as raised:
            # What Optuna raises after an error of the objective hides that.
            is_own = bool(errors) and not isinstance(errors[0], FailedTrial)
            error = errors[0] if is_own else raised
            # It raises ValueError for the result of a finished trial, and for other mistakes.
            is_late = not is_own and self._number >= 0 and isinstance(raised, ValueError)
            if not is_late and not isinstance(error, UpdateFinishedTrialError):
                raise error from error.__cause__
            self.progress.note(
                f"trial {self._number}: another worker finished it first; this result is dropped"
            )
            return False
        return True

    def _objective(self, trial: Trial) -> float:
        """Measure a new trial, and return its value. Raises FailedTrial for one without a value."""
        from optuna.exceptions import UpdateFinishedTrialError

        self._number = trial.number
        try:
            # Before anything that takes long: a trial without a worker looks lost.
            update(trial, worker=this_worker())
            if self.exceeds_trial_limit(trial.number):
                self._stopped = f"stopped: {self.opened.config.search.trials} trials (limit)"
                self._lose(trial, "other workers started the last trials first")
            candidate = self.opened.assignment.assign(self.study, trial)
            if candidate is not None:
                return self._measure(trial, candidate)
            # Else the rivals of this worker may leave some.
            if self.opened.acquisition().is_exhausted:
                self._stopped = "exhausted: no unmeasured candidate that fits the devices is left"
            self._lose(trial, "no unmeasured candidate is left")
        except (FailedTrial, UpdateFinishedTrialError):
            raise
        except AutosplitError as error:
            if isinstance(error, MachineError):
                self._release(trial, error)
                raise
            log = {"log": error.log[-LOG_LIMIT:]} if error.log else {}
            update(trial, error=str(error), **log)
            raise FailedTrial from error
        except BaseException as error:
            self._release(trial, error)
            raise

    def _lose(self, trial: Trial, reason: str) -> NoReturn:
        update(trial, error=reason, lost=True)
        raise FailedTrial

    def _release(self, trial: Trial, error: BaseException) -> None:
        """Leave the candidate of an interrupted trial free."""
        from optuna.exceptions import UpdateFinishedTrialError

        is_interrupt = isinstance(error, KeyboardInterrupt)
        reason = "interrupted" if is_interrupt else f"{type(error).__name__}: {error}"
        # The storage may be what failed.
        ignored = contextlib.suppress(MachineError, UpdateFinishedTrialError)
        with ignored, storage_errors(self.opened.url):
            update(trial, error=reason, lost=True)

    def exceeds_trial_limit(self, number: int) -> bool:
        """Whether workers that started trials at the same time have filled the limit before."""
        earlier = (t for t in self._trials() if t.number < number and t.state.name != "WAITING")
        return sum(not is_lost(t) for t in earlier) >= self.opened.config.search.trials

    def _measure(self, trial: Trial, candidate: Candidate) -> float:
        """Measure a candidate and store the figures; returns the value of the trial."""
        opened, space = self.opened, self.opened.space
        if not space.fits(candidate):
            raise SplitError(
                f"candidate {space.key(candidate)[:60]} does not fit the devices; enqueue another"
            )
        update(trial, **self._description(trial.number, candidate))
        with opened.device_lock():
            deployment = space.deployment(candidate)
            measurement = self.calm.measured(
                f"trial {trial.number}",
                lambda: opened.bench.measure(deployment),
                lambda result: result.disturbances,
            )
        update(trial, **measured_document(measurement))
        return opened.goal.measured_value(candidate, measurement)

    def _description(self, number: int, candidate: Candidate) -> dict[str, Any]:
        """What is known of a candidate before it is measured, for its record."""
        opened, space = self.opened, self.opened.space
        predicted = opened.corrected(opened.history(exclude=number)).period(candidate)
        return {
            **deployment_document(opened.bench.description.graph, space.deployment(candidate)),
            "predicted_ms": float(predicted),
            "memory_bytes": int(max(space.evaluate(candidate).memory)),
        }

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _report(self, number: int, measured: int) -> None:
        """Tell the user of a finished trial and of the study."""
        trials, config = self._trials(), self.opened.config
        counts = tally(trials)
        trial = next(t for t in trials if t.number == number)
        record = record_of(trial)
        period = record.period_ms if trial.state.name == "COMPLETE" else None
        periods = [result_of(t).period_ms for t in counts.complete]
        best_ms = min((p.median for p in periods if p), default=None)
        elapsed = self.clock() - self.began
        seconds_left = elapsed / measured * max(0, config.search.trials - counts.finished)
        if config.search.timeout is not None:
            seconds_left = min(seconds_left, max(0.0, config.search.timeout - elapsed))
        candidates = [(best_ms or 0.0, len(record.stage_ms))] * time_left.FINALISTS
        seconds_left += time_left.of_comparison(config, self.attributes, candidates)
        status = Status(
            number=number,
            period_ms=period.median if period else None,
            stage_ms=record.stage_ms,
            error=error_of(trial) or None,
            best_ms=best_ms,
            bound_ms=mapping(self.attributes.get(RECORD)).get("bound_ms"),
            finished=counts.finished,
            total=config.search.trials,
            seconds_left=seconds_left,
            state=machine_state(),
        )
        self.progress.trial(status)


def run_study(opened: OpenStudy, progress: Progress, clock: Clock = time.monotonic) -> None:
    """Run trials until a limit is met, then the final comparison and the verdict; all is stored.

    Raises Infeasible where no trial succeeded or more than half of at least five failed,
    MachineError where the storage or the hardware broke. The study is consistent afterwards, and
    running it again continues it.
    """
    study = opened.study
    with storage_errors(opened.url):
        try:
            stopped = StudyLoop(opened, progress, clock).run()
        except Infeasible as error:
            _store_result(study, f"stopped: {error}")
            raise
        _store_result(study, stopped)
        counts = tally(study.get_trials(deepcopy=False))
        if not counts.complete:
            raise Infeasible(
                f"no trial succeeded, most often: {commonest_error(counts)}; fix that and run again"
            )
        comparison.compare(opened, progress)
        # It may have measured the best trial on a calmer or a busier machine.
        _store_result(study, stopped, comparison.verdict(opened))


def _store_result(study: optuna.Study, stopped: str, verdict: dict[str, str] | None = None) -> None:
    """Store why a study stopped, as far as its best trial can be trusted, and its verdict."""
    trials, record = study.get_trials(deepcopy=False), study_record(study.user_attrs)
    reason = trusted(stopped, trials, record)
    study.set_user_attr(RESULT, {"stopped": reason, "verdict": verdict})
