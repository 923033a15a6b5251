"""Writes the result of a trial; another worker may have finished it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosplit.study.persistence.optuna_internals import is_finished, write_trial
from autosplit.study.persistence.records import LOST
from autosplit.study.progress import Progress

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

LOG_LIMIT = 2000  # characters of the end of a failed worker's log that are stored


@dataclass(frozen=True)
class TrialWriter:
    """Writes what becomes of the trials of a study."""

    study: optuna.Study
    progress: Progress

    def fail(self, trial: FrozenTrial, error: str, *, lost: bool = False, log: str = "") -> None:
        """Finish a trial without a result.

        ``lost``: its split was not measured and is free again; ``log``: what its worker printed.
        """
        attributes: dict[str, Any] = {"error": error}
        if lost:
            attributes[LOST] = True
        if log:
            attributes["log"] = log[-LOG_LIMIT:]
        self.finish(trial, attributes, None)

    def finish(
        self, trial: FrozenTrial, attributes: Mapping[str, Any], value: float | None
    ) -> None:
        """Finish a trial with its measurement and the value of its objective; None if it failed."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        try:
            write_trial(self.study, trial, attributes)
            self.study.tell(trial.number, value, state=state)
        except (UpdateFinishedTrialError, ValueError):
            # Optuna raises ValueError for other mistakes too.
            if not is_finished(self.study, trial):
                raise
            self.progress.note(
                f"trial {trial.number}: another worker finished it first; this result is dropped"
            )
