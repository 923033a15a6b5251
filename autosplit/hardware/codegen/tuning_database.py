"""The database of tuned schedules.

It has MetaSchedule's format (``database_workload.json`` and ``database_tuning_record.json`` in a
folder), so databases of the same kernels can be exchanged with other tools.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, MachineError, explained
from autosplit.extras import meta_schedule as ms

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def require(folder: Path) -> None:
    """Raises ConfigError where ``folder`` has no tuning database."""
    if not all((folder / name).is_file() for name in (WORKLOADS, RECORDS)):
        raise ConfigError(
            f"'{folder}' has no tuning database ({WORKLOADS}, {RECORDS}); "
            "`autosplit tune` makes one"
        )


def database(folder: Path, create: bool = False) -> Any:
    """The database in ``folder``.

    Raises ConfigError where it is damaged or, without ``create``, absent; MachineError where the
    folder cannot be created.
    """
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(f"cannot write the database '{folder}': {error.strerror}") from error
    else:
        require(folder)
    with explained(ConfigError, f"the tuning database '{folder}' is damaged"):
        return ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence MetaSchedule's warnings of unknown kernels and failed samples: both are expected."""
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
