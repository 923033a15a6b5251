"""Telling a study what became of a trial, where another worker may have told it already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosplit.study.acquisition.samplers import LOST
from autosplit.study.loop.progress import Progress
from autosplit.study.persistence.storage import set_attributes

if TYPE_CHECKING:
    import optuna

LOG = 2000  # characters kept of what a failed worker printed last


@dataclass(frozen=True)
class Teller:
    """Finishes the trials of a study."""

    study: optuna.Study
    progress: Progress

    def fail(
        self, trial_id: int, number: int, error: str, lost: bool = False, log: str = ""
    ) -> None:
        """Finish a trial without a result; ``lost`` leaves its split free, ``log`` is what its worker printed."""
        more = {**({LOST: True} if lost else {}), **({"log": log[-LOG:]} if log else {})}
        self.tell(trial_id, number, {"error": error, **more}, None)

    def tell(
        self, trial_id: int, number: int, attributes: Mapping[str, Any], told: list[float] | None
    ) -> None:
        """Store and tell; where another worker has finished the trial meanwhile, say so and go on."""
        import optuna

        state = optuna.trial.TrialState.FAIL if told is None else optuna.trial.TrialState.COMPLETE
        try:
            set_attributes(self.study, trial_id, attributes)
            self.study.tell(number, told, state=state)
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
            if not self.study._storage.get_trial(trial_id).state.is_finished():
                raise
            self.progress.note(
                f"trial {number}: another worker finished it meanwhile; this result is dropped"
            )
