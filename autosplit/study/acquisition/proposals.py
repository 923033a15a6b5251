"""Which split to measure next: pure functions of what was measured, the seed and the trial number."""

from __future__ import annotations

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.study.acquisition.expected_improvement import outlook
from autosplit.study.acquisition.history import History
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import nearest_free

EXPLORATION = 0.1  # share of the trials that go to a split that may be the best, not to the one that promises most


def planned(
    space: Space, devices: tuple[str, ...], history: History, rng: np.random.Generator
) -> Stages | None:
    """The free split that is expected to gain most under the corrected costs; now and then one that may be the best."""
    if not history.taken:
        return space.plan()
    if (whole := unmeasured_whole(space, history)) is not None:
        return whole
    view = outlook(space, devices, history)
    if not view.free:
        return None
    if history.measured and rng.random() < EXPLORATION:
        guess = view.guess(rng)
        if space.key(guess) not in history.taken:
            return guess
    return view.promising if history.measured else view.free[0]


def unmeasured_whole(space: Space, history: History) -> Stages | None:
    """The model as one stage, until it has been tried: how much stages slow each other down shows beside it alone."""
    if not space.empty or space.alone is None or space.key(space.alone) in history.taken:
        return None
    return space.alone


def randomly(space: Space, history: History, rng: np.random.Generator) -> Stages | None:
    """A free split at random."""
    start = None
    for _ in range(50):
        start = space.random(rng)
        if start is not None and space.key(start) not in history.taken:
            return start
    return nearest_free(space, start, history)


def next_listed(space: Space, history: History) -> Stages | None:
    """The plan, then the next free split in the list of all. Raises ConfigError where they are too many to list."""
    if not history.taken and space.listed:
        return space.plan()
    return next((stages for stages in space.listed if space.key(stages) not in history.taken), None)
