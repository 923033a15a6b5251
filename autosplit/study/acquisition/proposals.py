"""Which split to measure next: pure functions of what was measured and of random numbers."""

from __future__ import annotations

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.study.acquisition.expected_improvement import outlook
from autosplit.study.acquisition.history import History
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import nearest_free

EXPLORATION = 0.1  # share of the trials that go to a split that may be the best
RANDOM_DRAWS = 50  # random splits, until one of them is free


def planned(
    space: Space, devices: tuple[str, ...], history: History, rng: np.random.Generator
) -> Stages | None:
    """The free split that is expected to gain most under the corrected costs.

    Now and then it is the one that would be best for costs drawn from what is known of them.
    """
    if not history.taken:
        return space.plan()
    whole_model = unmeasured_whole_model(space, history)
    if whole_model is not None:
        return whole_model
    view = outlook(space, devices, history)
    if not view.free:
        return None
    # Thompson sampling: what one draw calls best, so that wrong costs cannot hide a split for ever.
    if history.measured and rng.random() < EXPLORATION:
        guess = view.guess(rng)
        if space.key(guess) not in history.taken:
            return guess
    return view.promising if history.measured else view.free[0]


def unmeasured_whole_model(space: Space, history: History) -> Stages | None:
    """The model as one stage, until it was tried.

    How much stages slow each other down shows beside a stage that runs alone.
    """
    whole_model = space.whole_model if space.empty else None
    if whole_model is None or space.key(whole_model) in history.taken:
        return None
    return whole_model


def randomly(space: Space, history: History, rng: np.random.Generator) -> Stages | None:
    """A free split at random."""
    stages = None
    for _ in range(RANDOM_DRAWS):
        stages = space.random(rng)
        if stages is not None and space.key(stages) not in history.taken:
            return stages
    return nearest_free(space, stages, history.taken)


def next_listed(space: Space, history: History) -> Stages | None:
    """The plan, then the next free split in the list of all.

    Raises ConfigError where they are too many to list.
    """
    if not history.taken and space.listed:
        return space.plan()
    return next((stages for stages in space.listed if space.key(stages) not in history.taken), None)
