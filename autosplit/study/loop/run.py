"""The run loop: ask for a split, measure it, tell; in any number of processes, killed and started again at will."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from autosplit.cuts.stages import Stages
from autosplit.errors import AutosplitError, Infeasible, MachineError, SplitError
from autosplit.hardware.measurement.results import Measurement
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.samplers import LOST, history_of
from autosplit.study.config.objectives import values
from autosplit.study.loop import final_comparison
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.progress import Progress, Status
from autosplit.study.loop.stopping import check_failures, commonest_error, stop_reason, tally
from autosplit.study.persistence import records
from autosplit.study.persistence.storage import guarded, set_attributes
from autosplit.study.space.search_space import KEY
from autosplit.study.space.unmeasured import nearest_free
from autosplit.study.trials import heartbeat
from autosplit.study.trials.recovery import Lost
from autosplit.study.trials.worker_identity import one_at_a_time
from autosplit.study.trials.writer import Teller

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

Clock = Callable[[], float]


@dataclass(frozen=True)
class _Loop:
    """One process's run; ``began`` on its clock."""

    on: OpenStudy
    progress: Progress
    clock: Clock
    began: float

    @property
    def study(self) -> optuna.Study:
        return self.on.study

    @cached_property
    def _teller(self) -> Teller:
        return Teller(self.study, self.progress)

    @cached_property
    def _lost(self) -> Lost:
        return Lost(
            self.study, self.progress, self._teller, locked=self.on.url.startswith("sqlite")
        )

    @cached_property
    def _bound(self) -> float | None:
        """The bound of every period that opening the study stored."""
        return cast("float | None", self.study.user_attrs.get("bound_ms"))

    def trials(self) -> Sequence[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def run(self) -> str:
        """Measure until a limit says why not to; whatever interrupts it leaves the split it was at free."""
        import optuna

        measured = 0
        try:
            while True:
                try:
                    if reason := self._one(measured):
                        return reason
                    measured += 1
                except optuna.exceptions.UpdateFinishedTrialError:
                    self.progress.note(
                        "this worker was away for longer than its lease; others go on with its trial"
                    )
        except BaseException as error:
            reason = (
                "interrupted"
                if isinstance(error, KeyboardInterrupt)
                else f"{type(error).__name__}: {error}"
            )
            with contextlib.suppress(MachineError), guarded(self.on.url):
                self._lost.release(self.trials(), reason)
            raise

    def _one(self, before: int) -> str:
        """Measure one more trial, ``before`` having been measured; or why there is none."""
        with one_at_a_time(self.on.lock, self.on.config.search.lease), guarded(self.on.url):
            trials = self.trials()
            check_failures(trials)
            trial, reason = self._next(trials)
        if trial is None:
            return reason
        if not self._measure(trial, trials):
            return "exhausted: no unmeasured split that fits the devices is left"
        with guarded(self.on.url):
            self._report(trial.number, before + 1)
        return ""

    def _next(self, trials: Sequence[FrozenTrial]) -> tuple[optuna.Trial | None, str]:
        """The next trial: one whose worker died, else a new one; or why there is none."""
        import optuna

        for orphan in self._lost.orphans(trials):
            if self._lost.adopt(orphan):
                return optuna.Trial(self.study, orphan._trial_id), ""
        if self._lost.reap():
            trials = self.trials()
        elapsed = self.clock() - self.began
        search, bench = self.on.config.search, self.on.bench
        if reason := stop_reason(
            search, self.on.space, bench.devices, trials, elapsed, self.on.config.objectives
        ):
            return None, reason
        trial = self.study.ask()
        if self._is_one_too_many(trial.number):
            self._teller.fail(
                trial._trial_id,
                trial.number,
                "other workers started the last trials in the same moment",
                True,
            )
            return None, "trial limit: other workers measure the last trials"
        return trial, ""

    def _is_one_too_many(self, number: int) -> bool:
        """Whether workers on other hosts, whom no lock keeps from starting trials, have filled the limit before us."""
        if self.on.url.startswith("sqlite"):
            return False
        earlier = [t for t in self.trials() if t.number < number and not t.user_attrs.get(LOST)]
        return len(earlier) >= self.on.config.search.trials

    def _measure(self, trial: optuna.Trial, known: Sequence[FrozenTrial]) -> bool:
        """Measure the split of a trial and tell; a candidate that fails is a failed trial, a machine is not.

        Returns whether there is any split left to measure.
        """
        space = self.on.space
        with guarded(self.on.url):
            stages = self._describe(trial, known)
            if stages is None:
                self._teller.fail(
                    trial._trial_id, trial.number, "no unmeasured split is left", lost=True
                )
                return nearest_free(space, None, history_of(space, self.trials())) is not None
        try:
            if not space.fits(stages):
                raise SplitError(
                    f"split {space.key(stages)[:60]} does not fit the devices; enqueue another"
                )
            with heartbeat.renewed(self.study, trial._trial_id), self.on.measuring():
                measurement = self.on.bench.measure(stages)
        except MachineError:
            raise
        except AutosplitError as error:
            with guarded(self.on.url):
                self._teller.fail(trial._trial_id, trial.number, str(error), log=error.log)
            return True
        with guarded(self.on.url):
            self._finish(trial, measurement, self.on.space.memory(stages))
        return True

    def _describe(self, trial: optuna.Trial, known: Sequence[FrozenTrial]) -> Stages | None:
        """The split of a trial with all that is known of it beforehand; None where none was left to choose."""
        if trial.user_attrs.get(KEY) == "":
            return None
        stages = self.on.space.suggest(trial)
        history = history_of(self.on.space, known, trial.number)
        corrected = corrected_costs(self.on.space, tuple(self.on.bench.devices), history.measured)
        set_attributes(
            self.study,
            trial._trial_id,
            {
                **records.split_attributes(self.on.bench.graph, stages),
                "predicted_ms": float(corrected.period(stages)),
                "memory_bytes": int(self.on.space.memory(stages)),
            },
        )
        return stages

    def _finish(self, trial: optuna.Trial, measurement: Measurement, memory: float) -> None:
        attributes = records.measured_attributes(measurement)
        period, latency = measurement.period_ms.median, measurement.latency_ms.median
        told = values(self.on.config.objectives, period, latency, memory)
        self._teller.tell(trial._trial_id, trial.number, attributes, told)

    def _report(self, number: int, measured: int) -> None:
        trials = self.trials()
        found, search = tally(trials), self.on.config.search
        told = next(t for t in trials if t.number == number)
        elapsed = self.clock() - self.began
        left = elapsed / measured * max(0, search.trials - found.finished)
        if search.timeout is not None:
            left = min(left, max(0.0, search.timeout - elapsed))
        self.progress.trial(
            Status(
                number=number,
                period_ms=records.period_of(told),
                stage_ms=told.user_attrs.get("stage_ms", ()),
                error=told.user_attrs.get("error"),
                best_ms=min(
                    (p for t in found.complete if (p := records.period_of(t)) is not None),
                    default=None,
                ),
                bound_ms=self._bound,
                finished=found.finished,
                total=search.trials,
                seconds_left=left,
            )
        )


def run_study(on: OpenStudy, progress: Progress, clock: Clock = time.monotonic) -> None:
    """Run trials until a limit is met, then let the best compete once more and give the verdict; all of it is stored.

    Raises Infeasible where more than half of at least five trials failed or none succeeded, MachineError where the
    storage or the hardware broke; the study is whole afterwards, and running it again goes on.
    """
    try:
        stopped = _Loop(on, progress, clock, clock()).run()
    except Infeasible as error:
        with guarded(on.url):
            on.study.set_user_attr("stopped", f"failures: {error}")
        raise
    with guarded(on.url):
        found = tally(on.study.get_trials(deepcopy=False))
        on.study.set_user_attr("stopped", stopped)
    if not found.complete:
        raise Infeasible(
            f"no trial succeeded, most often: {commonest_error(found)}; mend that and run again"
        )
    final_comparison.conclude(on, progress)
