"""When a study stops, and why: limits of trials, time and stagnation, nothing left to gain, or too many failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosplit.errors import Infeasible
from autosplit.study.acquisition import multi_objective
from autosplit.study.acquisition.expected_improvement import outlook
from autosplit.study.acquisition.history import History
from autosplit.study.acquisition.samplers import LOST, history_of
from autosplit.study.config.sections import Search
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import nearest_free

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

FEWEST_FAILED = 5  # trials before failures can stop a study


@dataclass(frozen=True)
class Tally:
    """The trials of a study by what became of them; lost ones, whose split is free again, do not count."""

    complete: tuple[FrozenTrial, ...]
    failed: tuple[FrozenTrial, ...]
    running: tuple[FrozenTrial, ...]

    @property
    def finished(self) -> int:
        """How many count towards the limit of trials."""
        return len(self.complete) + len(self.failed)


def tally(trials: Sequence[FrozenTrial]) -> Tally:
    """Sort the trials of a study."""
    by_state: dict[str, list[FrozenTrial]] = {}
    for t in trials:
        by_state.setdefault(t.state.name, []).append(t)
    failed = [
        t
        for t in (*by_state.get("FAIL", ()), *by_state.get("PRUNED", ()))
        if not t.user_attrs.get(LOST)
    ]
    return Tally(
        tuple(by_state.get("COMPLETE", ())), tuple(failed), tuple(by_state.get("RUNNING", ()))
    )


def stop_reason(
    search: Search,
    space: Space,
    devices: Sequence[str],
    trials: Sequence[FrozenTrial],
    elapsed: float,
    objectives: Sequence[str] = ("throughput",),
) -> str | None:
    """Why no further trial shall start, as text for the summary; None to go on. ``elapsed`` in seconds of this run."""
    found = tally(trials)
    if found.finished >= search.trials:
        return f"trial limit: {found.finished} trials are finished"
    if found.finished + len(found.running) >= search.trials:
        return f"trial limit: other workers measure the last {len(found.running)} trials"
    if search.timeout is not None and elapsed >= search.timeout:
        return f"time limit: {search.timeout:g} s have passed"
    if search.stagnation is not None and (since := _since_best(found)) >= search.stagnation:
        return f"stagnation: the last {since} trials found nothing better"
    history = history_of(space, trials)
    if space.size is not None and len(history.taken) >= space.size:
        return f"exhausted: all {space.size} legal splits are measured"
    if search.sampler == "planner" and search.converge:
        if tuple(objectives) == ("throughput",):
            return _converged(space, tuple(devices), history)
        return _settled(space, tuple(devices), tuple(objectives), history)
    return None


def check_failures(trials: Sequence[FrozenTrial]) -> None:
    """Raise Infeasible, with the commonest reason, where more than half of at least five trials failed."""
    found = tally(trials)
    if found.finished >= FEWEST_FAILED and len(found.failed) > found.finished / 2:
        raise Infeasible(
            f"{len(found.failed)} of {found.finished} trials failed, most often: {commonest_error(found)}; "
            "mend that and start anew with --force"
        )


def commonest_error(found: Tally) -> str:
    """The reason that most of the failed trials give."""
    reasons = Counter(str(t.user_attrs.get("error", "no reason recorded")) for t in found.failed)
    return reasons.most_common(1)[0][0] if reasons else "no trial failed"


def _since_best(found: Tally) -> int:
    """How many trials have passed since one was better than all before it, or lay beyond their front."""
    seen: list[list[float]] = []
    since = 0
    for t in sorted((*found.complete, *found.failed), key=lambda t: t.number):
        own = t.values
        if own and not any(all(a <= b for a, b in zip(old, own, strict=True)) for old in seen):
            seen, since = [*seen, own], 0
        else:
            since += 1
    return since


def _converged(space: Space, devices: tuple[str, ...], history: History) -> str | None:
    """Whether no free split can beat the best by more than the noise, under the corrected costs and their error."""
    view = outlook(space, devices, history)
    if not view.free:
        return "exhausted: every split that fits the devices is measured"
    if view.converged:
        return f"converged: no unmeasured split can beat the best by more than half the noise ({view.margin:.1%})"
    return None


def _settled(
    space: Space, devices: tuple[str, ...], objectives: tuple[str, ...], history: History
) -> str | None:
    """Whether no free split is expected to extend the front of what was measured by more than the noise."""
    view = multi_objective.prospects(space, devices, objectives, history)
    if not view.free and nearest_free(space, None, history) is None:
        return "exhausted: every split that fits the devices is measured"
    if not view.settled:
        return None
    what = "extend the Pareto front" if len(objectives) > 1 else "beat the best"
    return (
        f"converged: no unmeasured split is expected to {what} by more than {max(view.margins):.1%}"
    )
