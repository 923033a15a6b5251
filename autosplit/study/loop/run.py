"""The run loop: the sampler gives a trial its split, the bench measures it, the writer stores it.

Any number of processes may run a study, and each may be killed and started again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from autosplit.cuts.stages import with_unused
from autosplit.errors import AutosplitError, Infeasible, MachineError, SplitError
from autosplit.hardware.measurement.disturbance import state as machine_state
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.history import history_of
from autosplit.study.config.objectives import objective_values
from autosplit.study.loop import final_comparison, time_left
from autosplit.study.loop.calm import Calm
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.stopping import check_failures, commonest_error, stop_reason, trusted
from autosplit.study.persistence import records
from autosplit.study.persistence.optuna_internals import next_trial
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


@dataclass(frozen=True)
class StudyLoop:
    """The trials of one process; ``began`` is when it started, by its monotonic ``clock``."""

    opened: OpenStudy
    progress: Progress
    clock: Clock
    began: float

    @property
    def study(self) -> optuna.Study:
        """The Optuna study."""
        return self.opened.study

    @cached_property
    def writer(self) -> TrialWriter:
        """What stores the results."""
        return TrialWriter(self.study, self.progress)

    @cached_property
    def calm(self) -> Calm:
        """What measures disturbed trials again."""
        return Calm(self.opened.config.measure.seconds, self.progress.note)

    @cached_property
    def recovery(self) -> Recovery:
        """What finds the trials of workers that ended."""
        lease = float(self.opened.config.search.lease)
        return Recovery(self.study, self.progress, self.writer, self.opened.is_local, lease)

    def run(self) -> str:
        """Measure until a limit is met, and return which.

        Whatever interrupts it leaves the split that is being measured free.
        """
        from optuna.exceptions import UpdateFinishedTrialError

        measured = 0
        try:
            while True:
                try:
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
            with contextlib.suppress(MachineError), storage_errors(self.opened.url):
                self.recovery.release(self._trials(), reason)
            raise

    def next_trial(self) -> tuple[FrozenTrial | None, Any | None, str]:
        """The next trial with its split, or why there is none."""
        while True:
            with self.opened.start_lock.hold(), storage_errors(self.opened.url):
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
        search, devices = opened.config.search, opened.bench.devices
        objectives = opened.config.objectives
        reason = stop_reason(search, opened.space, devices, trials, elapsed, objectives)
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
            with storage_errors(self.opened.url):
                self.writer.fail(trial, "no unmeasured split is left", lost=True)
                if not self._has_free_split():
                    return "exhausted: no unmeasured split that fits the devices is left"
        else:
            self._measure(trial, candidate)
        with storage_errors(self.opened.url):
            self._report(trial.number, measured + 1)
        return ""

    def _measure(self, trial: FrozenTrial, candidate: Any) -> None:
        """Measure a split and write the result; a candidate that fails is a failed trial."""
        opened = self.opened
        with storage_errors(opened.url):
            # The sampler has just stored it.
            key = self._trials()[trial.number].user_attrs[records.KEY]
            runtimes = opened.space.runtimes_of(key)
            self._describe(trial, candidate, runtimes)
        try:
            if not opened.space.fits(candidate):
                raise SplitError(
                    f"split {opened.space.key(candidate)[:60]} does not fit the devices; "
                    "enqueue another"
                )
            with renewed_heartbeat(self.study, trial), opened.device_lock.hold():
                deployment = opened.deployment(candidate, runtimes)
                measurement = self.calm.measured(
                    f"trial {trial.number}",
                    lambda: opened.bench.measure(deployment),
                    lambda result: result.disturbances,
                )
        except MachineError:
            raise
        except AutosplitError as error:
            with storage_errors(opened.url):
                self.writer.fail(trial, str(error), log=error.log)
            return
        values = objective_values(
            opened.config.objectives,
            measurement.period_ms.median,
            measurement.latency_ms.median,
            opened.space.memory(candidate),
        )
        stage_ms = with_unused(opened.space.stages_of(candidate), measurement.stage_ms)
        costs = self.opened.space.costs
        shares = candidate.shares(costs) if isinstance(candidate, DeployedSplit) else ()
        measurement = replace(measurement, stage_ms=stage_ms)
        attributes = records.measured_attributes(measurement, shares)
        with storage_errors(opened.url):
            self.writer.complete(trial, attributes, values)

    def _describe(self, trial: FrozenTrial, candidate: Any, runtimes: Sequence[str]) -> None:
        """Store what is known of a split before it is measured."""
        space = self.opened.space
        history = history_of(space, self._trials(), trial.number)
        devices = tuple(self.opened.bench.devices)
        corrected = corrected_costs(space, devices, history.measured)
        graph = self.opened.bench.graph
        attributes = records.split_attributes(graph, space.stages_of(candidate))
        if runtimes:
            attributes["runtimes"] = list(runtimes)
        if isinstance(candidate, DeployedSplit):
            attributes["replicas"] = list(candidate.replicas)
            attributes["threads"] = list(candidate.threads)
        attributes["predicted_ms"] = float(corrected.period(candidate, runtimes))
        attributes["memory_bytes"] = int(space.memory(candidate))
        self.writer.describe(trial, attributes)

    def _has_free_split(self) -> bool:
        history = history_of(self.opened.space, self._trials())
        return nearest_free(self.opened.space, None, history.taken) is not None

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    @cached_property
    def _bound(self) -> float | None:
        """The bound of every period, which opening the study stored."""
        return cast("float | None", self.study.user_attrs.get("bound_ms"))

    def _report(self, number: int, measured: int) -> None:
        """Tell the user of a finished trial and of the study."""
        trials = self._trials()
        counts = tally(trials)
        search, objectives = self.opened.config.search, self.opened.config.objectives
        trial = next(t for t in trials if t.number == number)
        period = period_of(trial, objectives)
        periods = [period_of(t, objectives) for t in counts.complete]
        elapsed = self.clock() - self.began
        seconds_left = elapsed / measured * max(0, search.trials - counts.finished)
        if search.timeout is not None:
            seconds_left = min(seconds_left, max(0.0, search.timeout - elapsed))
        seconds_left += time_left.of_comparison(self.opened.config, self.study.user_attrs)
        status = Status(
            number=number,
            period_ms=period.median if period else None,
            stage_ms=trial.user_attrs.get("stage_ms", ()),
            error=trial.user_attrs.get("error"),
            best_ms=min((p.median for p in periods if p), default=None),
            bound_ms=self._bound,
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
    try:
        stopped = StudyLoop(opened, progress, clock, clock()).run()
    except Infeasible as error:
        with storage_errors(opened.url):
            opened.study.set_user_attr("stopped", f"stopped: {error}")
        raise
    with storage_errors(opened.url):
        trials = opened.study.get_trials(deepcopy=False)
        counts = tally(trials)
        opened.study.set_user_attr("stopped", trusted(stopped, trials, opened.study.user_attrs))
    if not counts.complete:
        raise Infeasible(
            f"no trial succeeded, most often: {commonest_error(counts)}; fix that and run again"
        )
    final_comparison.conclude(opened, progress)
    # The final comparison may have measured the best trial on a calmer or a busier machine.
    with storage_errors(opened.url):
        trials = opened.study.get_trials(deepcopy=False)
        opened.study.set_user_attr("stopped", trusted(stopped, trials, opened.study.user_attrs))
