"""What is known when a split is chosen, and the random numbers that go with the choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.study.record import result_of
from autosplit.study.results import is_lost
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.surrogate.cost_correction import Measured

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# The error of the costs is known well enough after five trials of two stages.
FEWEST_MEASURED = 3  # trials
FEWEST_STAGES = 10  # times of stages


@dataclass(frozen=True)
class History:
    """What is known when a split is chosen.

    ``taken``: the keys of the splits that are measured, failed or being measured.
    """

    taken: frozenset[str] = frozenset()
    measured: tuple[Measured, ...] = ()

    @property
    def tells_errors(self) -> bool:
        """Whether the error of the costs is known well enough to stop because of it."""
        times = sum(bool(ops) for m in self.measured for ops in m.stages)
        return len(self.measured) >= FEWEST_MEASURED and times >= FEWEST_STAGES


def history_of(
    space: CandidateSpace, trials: Iterable[FrozenTrial], but: int | None = None
) -> History:
    """What the trials of a study say, the one numbered ``but`` left out."""
    others = sorted((t for t in trials if t.number != but), key=lambda t: t.number)
    keys = {t.number: key_of(t) for t in others}
    measured: list[Measured] = []
    for trial in others:
        key, figures = keys[trial.number], result_of(trial)
        # A database is untrusted, and trials of other programs may be in it.
        if trial.state.name != "COMPLETE" or key is None:
            continue
        if figures.period_ms is None or not figures.stage_ms:
            continue
        stage_ms, candidate = figures.stage_ms, space.split(key)
        deployment = candidate if isinstance(candidate, DeployedSplit) else None
        measured.append(
            Measured(
                trial.number,
                space.stages_of(candidate),
                stage_ms,
                figures.period_ms.median,
                figures.latency_ms.median if figures.latency_ms else 0.0,
                space.runtimes_of(key),
                deployment,
            )
        )
    return History(frozenset(key for key in keys.values() if key is not None), tuple(measured))


def key_of(trial: FrozenTrial) -> str | None:
    """The key of a trial's split; None for a trial without one and for a lost one."""
    return None if is_lost(trial) else result_of(trial).key or None


def generator(seed: int, ordinal: int, attempt: int = 0) -> np.random.Generator:
    """The random numbers of the trial at a place in its study, whatever process draws them."""
    return np.random.default_rng((seed, ordinal, attempt))
