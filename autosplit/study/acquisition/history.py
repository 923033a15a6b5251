"""What is known when a split is chosen, and the random numbers that go with the choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosplit.study.surrogate.cost_correction import Measured

FEWEST_MEASURED = 3  # trials, and
FEWEST_STAGES = 10  # times of stages, before the error of the costs is known well enough: five trials of two stages


@dataclass(frozen=True)
class History:
    """What is known when a split is chosen: ``taken`` are the keys of splits measured, failed or being measured."""

    taken: frozenset[str] = frozenset()
    measured: tuple[Measured, ...] = ()

    @property
    def tells_errors(self) -> bool:
        """Whether the error of the costs is known well enough to stop for it."""
        times = sum(bool(ops) for m in self.measured for ops in m.stages)
        return len(self.measured) >= FEWEST_MEASURED and times >= FEWEST_STAGES


def generator(seed: int, place: int, attempt: int = 0) -> np.random.Generator:
    """The random numbers of the trial at a place in its study, whatever process draws them."""
    return np.random.default_rng((seed, place, attempt))
