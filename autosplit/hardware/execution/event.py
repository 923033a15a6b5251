"""What a traced pipeline records."""

from __future__ import annotations

from typing import NamedTuple


class StageEvent(NamedTuple):
    """Stage ``stage`` computed item ``item`` from ``start`` to ``end``.

    A pipeline writes seconds of ``time.perf_counter``, a drawing takes milliseconds.
    """

    stage: int
    item: int
    start: float
    end: float
