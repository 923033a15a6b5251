"""The run loop: the sampler gives a trial its split, the bench measures it, the writer stores it.

Any number of processes may run a study, and each may be killed and started again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import with_unused
from autosplit.errors import AutosplitError, Infeasible, MachineError, SplitError
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.disturbance import state as machine_state
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import history_of
from autosplit.study.config.objectives import objective_value
from autosplit.study.loop import final_comparison, time_left
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.stopping import check_failures, commonest_error, stop_reason, trusted
from autosplit.study.persistence import records
from autosplit.study.persistence.optuna_internals import next_trial, write_trial
from autosplit.study.persistence.storage import storage_errors
from autosplit.study.progress import Progress, Status
from autosplit.study.space.unmeasured import nearest_free
from autosplit.study.trials.heartbeat import renewed_heartbeat
from autosplit.study.trials.recovery import Recovery
from autosplit.study.trials.results import period_of, tally
from autosplit.study.trials.writer import TrialWriter

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

Clock = Callable[[], float]
WATCH_INTERVAL = 0.5  # seconds between two looks at trials that seem lost


class StudyLoop:
    """The trials of one process; ``clock`` is monotonic."""

    def __init__(self, opened: OpenStudy, progress: Progress, clock: Clock) -> None:
        self.opened, self.progress, self.clock = opened, progress, clock
        self.began = clock()
        self.study, config = opened.study, opened.config
        # What is read here is stored before the first trial, and to read it takes long.
        self.attributes = opened.study.user_attrs
        self.writer = TrialWriter(self.study, progress)
        self.calm = Calm(config.measure.seconds, progress.note)
        lease = float(config.search.lease)
        self.recovery = Recovery(self.study, progress, self.writer, opened.is_local, lease)

    def run(self) -> str:
        """Measure until a limit is met, and return which.

        Whatever interrupts it leaves the split that is being measured free.
        """
        from optuna.exceptions import UpdateFinishedTrialError

        measured = 0
        try:
            while True:
                try:
                    with storage_errors(self.opened.url):
                        reason = self._run_trial(measured)
                except UpdateFinishedTrialError:
                    self.progress.note(
                        "this worker was silent for longer than its lease; "
                        "another worker takes over its trial"
                    )
                    continue
                if reason:
                    return reason
                measured += 1
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, KeyboardInterrupt):
                reason = "interrupted"
            # The storage may be what failed.
            with contextlib.suppress(MachineError), storage_errors(self.opened.url):
                self.recovery.release(self._trials(), reason)
            raise

    def next_trial(self) -> tuple[FrozenTrial | None, Any | None, str]:
        """The next trial with its split, or why there is none."""
        while True:
            with self.opened.start_lock.hold():
                trial, reason = self._take_trial()
                if trial is not None:
                    try:
                        return trial, self.opened.sampler.assign(self.study, trial), ""
                    except SplitError as error:  # a user enqueued a key that is no split
                        self.writer.fail(trial, str(error))
                        continue
            if not self.recovery.is_watching:
                return None, None, reason
            # Nothing is left to measure but a trial that seems lost.
            time.sleep(WATCH_INTERVAL)

    def _take_trial(self) -> tuple[FrozenTrial | None, str]:
        """A dead worker's trial or a new one; or why there is none."""
        trials = self._trials()
        check_failures(trials)
        for stale in self.recovery.stale_trials(trials):
            if self.recovery.take_over(stale):
                return stale, ""
        if self.recovery.free_silent_trials():
            trials = self._trials()
        opened, elapsed = self.opened, self.clock() - self.began
        search, objective = opened.config.search, opened.config.objective
        reason = stop_reason(search, opened.space, trials, elapsed, objective, self.attributes)
        if reason:
            return None, reason
        trial = next_trial(self.study)
        if self.exceeds_trial_limit(trial):
            self.writer.fail(trial, "other workers started the last trials first", lost=True)
            return None, f"stopped: {search.trials} trials (limit)"
        return trial, ""

    def exceeds_trial_limit(self, trial: FrozenTrial) -> bool:
        """Whether workers of other hosts, whom no lock holds back, have filled the limit before."""
        if self.opened.is_local:
            return False
        earlier = [
            t
            for t in self._trials()
            if t.number < trial.number and not t.user_attrs.get(records.LOST)
        ]
        return len(earlier) >= self.opened.config.search.trials

    def _run_trial(self, measured: int) -> str:
        """Measure one more trial, ``measured`` before it; or why there is none."""
        trial, candidate, reason = self.next_trial()
        if trial is None:
            return reason
        if candidate is None:
            self.writer.fail(trial, "no unmeasured split is left", lost=True)
            history = history_of(self.opened.space, self._trials())
            if nearest_free(self.opened.space, None, history.taken) is None:
                return "exhausted: no unmeasured split that fits the devices is left"
        else:
            self._measure(trial, candidate)
        self._report(trial.number, measured + 1)
        return ""

    def _measure(self, trial: FrozenTrial, candidate: Any) -> None:
        """Measure a split and write the result; a candidate that fails is a failed trial."""
        opened = self.opened
        trials = self._trials()
        # The sampler has just stored it.
        key = trials[trial.number].user_attrs[records.KEY]
        runtimes = opened.space.runtimes_of(key)
        self._describe(trial, candidate, runtimes, trials)
        try:
            if not opened.space.fits(candidate):
                raise SplitError(
                    f"split {opened.space.key(candidate)[:60]} does not fit the devices; "
                    "enqueue another"
                )
            with renewed_heartbeat(self.study, trial), opened.device_lock():
                deployment = opened.deployment(candidate, runtimes)
                measurement = self.calm.measured(
                    f"trial {trial.number}",
                    lambda: opened.bench.measure(deployment),
                    lambda result: result.disturbances,
                )
        except MachineError:
            raise
        except AutosplitError as error:
            self.writer.fail(trial, str(error), log=error.log)
            return
        value = objective_value(
            opened.config.objective, measurement.period_ms.median, measurement.latency_ms.median
        )
        stage_ms = with_unused(opened.space.stages_of(candidate), measurement.stage_ms)
        shares = opened.space.evaluator.shape(candidate).shares
        measurement = replace(measurement, stage_ms=stage_ms)
        attributes = records.measured_attributes(measurement, shares)
        self.writer.finish(trial, attributes, value)

    def _describe(
        self,
        trial: FrozenTrial,
        candidate: Any,
        runtimes: Sequence[str],
        trials: Sequence[FrozenTrial],
    ) -> None:
        """Store what is known of a split before it is measured; ``trials``: those of the study."""
        space = self.opened.space
        history = history_of(space, trials, trial.number)
        corrected = corrected_costs(space, history.measured)
        graph = self.opened.bench.graph
        attributes = records.split_attributes(graph, space.stages_of(candidate))
        if runtimes:
            attributes["runtimes"] = list(runtimes)
        if isinstance(candidate, DeployedSplit):
            attributes["replicas"] = list(candidate.replicas)
            attributes["threads"] = list(candidate.threads)
            if candidate.kinds:
                attributes["kinds"] = list(candidate.kinds)
        attributes["predicted_ms"] = float(corrected.period(candidate, runtimes))
        attributes["memory_bytes"] = int(space.memory(candidate))
        write_trial(self.study, trial, attributes)

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _report(self, number: int, measured: int) -> None:
        """Tell the user of a finished trial and of the study."""
        trials, attributes = self._trials(), self.attributes
        counts = tally(trials)
        search, objective = self.opened.config.search, self.opened.config.objective
        trial = next(t for t in trials if t.number == number)
        period = period_of(trial, objective)
        periods = [period_of(t, objective) for t in counts.complete]
        elapsed = self.clock() - self.began
        seconds_left = elapsed / measured * max(0, search.trials - counts.finished)
        if search.timeout is not None:
            seconds_left = min(seconds_left, max(0.0, search.timeout - elapsed))
        best_ms = min((p.median for p in periods if p), default=None)
        stage_ms = trial.user_attrs.get("stage_ms", ())
        candidates = [(best_ms or 0.0, len(stage_ms))] * time_left.FINALISTS
        seconds_left += time_left.of_comparison(self.opened.config, attributes, candidates)
        status = Status(
            number=number,
            period_ms=period.median if period else None,
            stage_ms=stage_ms,
            error=trial.user_attrs.get("error"),
            best_ms=best_ms,
            bound_ms=attributes.get("bound_ms"),
            finished=counts.finished,
            total=search.trials,
            seconds_left=seconds_left,
            state="" if self.opened.config.runtime == "simulated" else machine_state(),
        )
        self.progress.trial(status)


def run_study(opened: OpenStudy, progress: Progress, clock: Clock = time.monotonic) -> None:
    """Run trials until a limit is met, then the final comparison and the verdict; all is stored.

    Raises Infeasible where no trial succeeded or more than half of at least five failed,
    MachineError where the storage or the hardware broke. The study is consistent afterwards, and
    running it again continues it.
    """
    with storage_errors(opened.url):
        try:
            stopped = StudyLoop(opened, progress, clock).run()
        except Infeasible as error:
            opened.study.set_user_attr("stopped", f"stopped: {error}")
            raise
        _store_reason(opened.study, stopped)
        counts = tally(opened.study.get_trials(deepcopy=False))
        if not counts.complete:
            raise Infeasible(
                f"no trial succeeded, most often: {commonest_error(counts)}; fix that and run again"
            )
        final_comparison.conclude(opened, progress)
        # It may have measured the best trial on a calmer or a busier machine.
        _store_reason(opened.study, stopped)


def _store_reason(study: optuna.Study, stopped: str) -> None:
    """Store why a study stopped, as far as its best trial can be trusted."""
    reason = trusted(stopped, study.get_trials(deepcopy=False), study.user_attrs)
    study.set_user_attr("stopped", reason)
