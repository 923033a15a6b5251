"""Measures again, on a calm machine, what was disturbed; the patience of a run is bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from autosplit.hardware.measurement.disturbance import wait_until_calm

T = TypeVar("T")
# In measurements: how long a run waits and measures again in all, and waits for one of them. A
# machine that never gets calm so costs a run no more than a dozen trials.
_PATIENCE, _WAIT = 12, 4


class Calm:
    """Repeats measurements that take ``seconds``; ``note`` says what happens."""

    def __init__(self, seconds: float, note: Callable[[str], None]) -> None:
        self._seconds, self._note = seconds, note
        self._patience = _PATIENCE * seconds

    def measured(
        self, name: str, measure: Callable[[], T], reasons: Callable[[T], Sequence[str]]
    ) -> T:
        """The result of ``measure``, or of a second one where ``reasons`` disturbed the first."""
        result = measure()
        disturbances = reasons(result)
        if not disturbances or self._patience <= 0:
            return result
        self._note(f"{name} was disturbed: {'; '.join(disturbances)}; measuring again when calm")
        limit = min(_WAIT * self._seconds, self._patience)
        self._patience -= wait_until_calm(limit) + self._seconds
        result = measure()
        if reasons(result):
            self._note(f"{name} was disturbed again, its figures are marked")
        return result
