"""Leases: a worker that measures reports every while, and one that is silent for longer than its lease is taken for lost.

The beats are Optuna's heartbeats, stamped by the database's clock, so that workers on any host can be judged by any other;
a storage without heartbeats has no leases. ``study.optimize`` is not used, so it is the run loop that beats and reaps.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna

BEATS = 4  # reports in the time of a lease


def beat(study: optuna.Study, trial_id: int) -> None:
    """Report that the worker of a trial lives."""
    if (storage := _beating(study)) is not None:
        storage.record_heartbeat(trial_id)


def lapsed(study: optuna.Study) -> frozenset[int]:
    """The ids of the running trials whose workers have been silent for longer than the lease."""
    storage = _beating(study)
    return (
        frozenset(storage._get_stale_trial_ids(study._study_id))
        if storage is not None
        else frozenset()
    )


@contextlib.contextmanager
def renewed(study: optuna.Study, trial_id: int) -> Iterator[None]:
    """Report from a thread for as long as the body runs; a storage that fails meanwhile shows when the result is told."""
    import optuna
    import sqlalchemy.exc

    storage = _beating(study)
    if storage is None:
        yield
        return
    over = threading.Event()

    def report() -> None:
        while not over.wait(storage.get_heartbeat_interval()):
            with contextlib.suppress(
                optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError
            ):
                storage.record_heartbeat(trial_id)

    thread = threading.Thread(target=report, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _beating(study: optuna.Study) -> Any:
    """The storage, where it keeps heartbeats."""
    from optuna.storages._heartbeat import is_heartbeat_enabled

    return study._storage if is_heartbeat_enabled(study._storage) else None
