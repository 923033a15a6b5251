"""Heartbeats: a worker that measures reports regularly, so that one that is silent can be replaced.

They are Optuna's heartbeats, stamped by the clock of the database, so workers of any host can
judge each other. That clock may jump. A worker that seems silent is therefore watched for two more
intervals by this process's own monotonic clock before it counts as lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosplit.study.persistence.optuna_internals import (
    heartbeat_interval,
    heartbeats,
    record_heartbeat,
)

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

CONFIRMATION = 2  # intervals without a heartbeat that confirm a suspicion


@contextlib.contextmanager
def renewed_heartbeat(study: optuna.Study, trial: FrozenTrial) -> Iterator[None]:
    """Report from a thread for as long as the body runs.

    A storage that fails meanwhile shows when the result is written.
    """
    import optuna
    import sqlalchemy.exc

    interval = heartbeat_interval(study)
    if interval is None:
        yield
        return
    finished = threading.Event()
    storage_errors = (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError)

    def report() -> None:
        while not finished.wait(interval):
            with contextlib.suppress(*storage_errors):
                record_heartbeat(study, trial)

    thread = threading.Thread(target=report, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


@dataclass
class SilenceWatch:
    """Finds the running trials whose workers have been silent for longer than ``lease`` seconds.

    A trial is suspected when its latest heartbeat is that old by the database's clock. It counts as
    silent when this process sees the same heartbeat for two intervals of ``clock``; or for a whole
    lease, however young the database calls it: its clock may have been set back.
    """

    study: optuna.Study
    lease: float
    clock: Callable[[], float] = time.monotonic
    suspects: frozenset[int] = frozenset()
    _first_seen: dict[tuple[int, object], float] = field(default_factory=dict)

    def silent_trials(self) -> frozenset[int]:
        """The numbers of the silent trials; ``suspects`` are then those not confirmed yet."""
        interval = heartbeat_interval(self.study)
        if interval is None:
            return frozenset()
        latest = heartbeats(self.study)
        now = self.clock()
        self._first_seen = {
            (number, beat.time): self._first_seen.get((number, beat.time), now)
            for number, beat in latest.items()
        }
        silent: set[int] = set()
        suspects: set[int] = set()
        for number, beat in latest.items():
            # This process's monotonic clock: that of the database may jump, and would silence
            # everybody.
            watched = now - self._first_seen[number, beat.time]
            is_suspect = beat.silence > self.lease
            if watched >= self.lease or (is_suspect and watched >= CONFIRMATION * interval):
                silent.add(number)
            elif is_suspect:
                suspects.add(number)
        self.suspects = frozenset(suspects)
        return frozenset(silent)
