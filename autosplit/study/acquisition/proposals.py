"""Which split to measure next: pure functions of what was measured and of random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autosplit.study.acquisition.expected_improvement import Outlook, outlook
from autosplit.study.acquisition.history import History
from autosplit.study.acquisition.least_latency import LatencyOutlook, latency_outlook
from autosplit.study.record import compared_baselines
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.unmeasured import nearest_free

EXPLORATION = 0.1  # share of the trials that go to a split that may be the best
RANDOM_DRAWS = 50  # random splits, until one of them is free


def outlook_for(
    objective: str, space: CandidateSpace, history: History
) -> Outlook | LatencyOutlook:
    """What the corrected costs promise for an objective."""
    return (outlook if objective == "throughput" else latency_outlook)(space, history)


def planned(
    space: CandidateSpace, objective: str, history: History, rng: np.random.Generator
) -> Any | None:
    """The free split that is expected to gain most under the corrected costs.

    Now and then it is the one that would be best for costs drawn from what is known of them.
    """
    is_period = objective == "throughput"
    if not history.taken and is_period:
        return space.plan()
    # It shows costs without contention.
    alone = space.alone if history.taken else None
    if alone is not None and space.key(alone) not in history.taken:
        return alone
    view = outlook_for(objective, space, history)
    if view.free:
        # Thompson sampling: what one draw calls best, so that wrong costs cannot hide a split for
        # ever.
        is_exploring = view.explores and rng.random() < EXPLORATION
        guess = view.guess(rng) if is_exploring else None
        return view.promising if guess is None else guess
    if is_period:
        return None
    latest = history.measured[-1].candidate if history.measured else None
    return nearest_free(space, latest, history.taken)


def unmeasured_baselines(
    space: CandidateSpace, attributes: Mapping[str, Any], history: History
) -> list[str]:
    """The keys of the candidates that were only measured as baselines, the fastest first.

    Only of those that may be faster than every trial: none before the first one. ``attributes``:
    those of the study, which has the baselines.
    """
    if not space.unsplit_keys:
        return []
    best = min((m.period_ms for m in history.measured), default=0.0)
    promising = [b for b in compared_baselines(attributes) if b.period_ms.low < best]
    promising.sort(key=lambda b: b.period_ms.median)
    keys = [space.unsplit_keys.get(b.name) for b in promising]
    return [key for key in keys if key is not None and key not in history.taken]


def randomly(space: CandidateSpace, history: History, rng: np.random.Generator) -> Any | None:
    """A free split at random."""
    stages = None
    for _ in range(RANDOM_DRAWS):
        stages = space.random(rng)
        if stages is not None and space.key(stages) not in history.taken:
            return stages
    return nearest_free(space, stages, history.taken)


def next_listed(space: CandidateSpace, history: History) -> Any | None:
    """The plan, then the next free split in the list of all.

    Raises ConfigError where they are too many to list.
    """
    if not history.taken and space.listed:
        return space.plan()
    return next((stages for stages in space.listed if space.key(stages) not in history.taken), None)
