"""When a study stops: limits of trials, time and stagnation, nothing left to gain, failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial

from autosplit.study.acquisition import WORTH, Acquisition
from autosplit.study.config.sections import Search
from autosplit.study.results import Tally, error_of, tally

FEWEST_TRIALS = 5  # finished trials before failures can stop a study


def stop_reason(
    search: Search,
    promised: Callable[[], Acquisition],
    trials: Sequence[FrozenTrial],
    elapsed: float,
) -> str | None:
    """Why no further trial starts, as text for the summary; None to continue.

    ``promised``: what the planner expects of further trials; ``elapsed``: seconds of this run.
    """
    counts = tally(trials)
    failed = len(counts.failed)
    if counts.finished >= FEWEST_TRIALS and failed > counts.finished / 2:
        reason = commonest_error(counts)
        return f"stopped: {failed} of {counts.finished} trials failed, most often: {reason}"
    if counts.finished >= search.trials:
        return f"stopped: {counts.finished} trials (limit)"
    if counts.finished + len(counts.running) >= search.trials:
        others = f"other workers measure the last {len(counts.running)}"
        return f"stopped: {search.trials} trials (limit); {others}"
    if search.timeout is not None and elapsed >= search.timeout:
        return f"stopped: {search.timeout:g} s (limit)"
    if counts.waiting:  # a candidate that a dead worker left, or that a user enqueued
        return None
    if search.stagnation and (stagnant := _trials_since_best(counts)) >= search.stagnation:
        return f"stopped: no improvement in {stagnant} trials (limit)"
    view, is_planner = promised(), search.sampler == "planner"
    # The planner has computed the gains of free candidates; other samplers have to look for one.
    is_exhausted = not view.gains if is_planner else view.nearest() is None
    if is_exhausted:
        return "exhausted: no unmeasured candidate that fits the devices is left"
    if not is_planner or not search.converge or not view.converged:
        return None
    gain = WORTH * view.margin
    return f"converged: no remaining candidate is expected to beat the best by {gain:.2%} or more"


def commonest_error(counts: Tally) -> str:
    """The reason that most of the failed trials give; at least one trial must have failed."""
    reasons = Counter(error_of(t) or "no reason recorded" for t in counts.failed)
    return reasons.most_common(1)[0][0]


def _trials_since_best(counts: Tally) -> int:
    """How many trials have passed since one improved the best value."""
    trials = sorted((*counts.complete, *counts.failed), key=lambda trial: trial.number)
    values = [math.inf, *(trial.values[0] if trial.values else math.inf for trial in trials)]
    return len(values) - 1 - values.index(min(values))
