"""How much deployments serve within the limit of a workload, by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from autosplit.hardware.measurement.results import Measurement
from autosplit.planner.batch import Batch
from autosplit.planner.workload import Server, Station, Workload, goodput
from autosplit.study.space import Candidate
from autosplit.study.surrogate.correction import Corrected
from autosplit.study.surrogate.posterior import Array

ITEMS = 4_000  # of a simulation; what its goodput lacks in precision all deployments share
_ENOUGH = 0.9  # of the capacity, from which no other delay can gain much


# The same batch is valued under many draws of the costs.
@lru_cache(maxsize=8)
def shares(workload: Workload, corrected: Corrected, batch: Batch) -> Array:
    """What share of its capacity each deployment serves within the limit, by the mean costs.

    Simulated once for the mean: draws of the costs scale all of it.
    """
    periods = corrected.ratio * batch.stage_periods(corrected.loads(batch, corrected.mean))
    parts = []
    for stages, stage_periods in zip(batch.deployments, periods, strict=True):
        slowest = stage_periods.max(initial=0.0)
        rate, _ = _simulated(workload, stages, stage_periods[: len(stages)].tolist())
        parts.append(rate * slowest / 1e3 if 0 < slowest < math.inf else 0.0)
    return np.array(parts)


def measured_goodput(workload: Workload, stages: Candidate, measured: Measurement) -> float:
    """The goodput of a deployment whose stages were measured with all items waiting."""
    return served(workload, stages, measured.stage_ms, measured.period_ms.median)[0]


def served(
    workload: Workload, stages: Candidate, stage_ms: Sequence[float], period_ms: float
) -> tuple[float, float]:
    """The goodput of a deployment with such a period, and the delay in ms that it needs.

    ``stage_ms``: the time of an item in a replica of each stage.
    """
    periods = [ms / stage.replicas for ms, stage in zip(stage_ms, stages, strict=True)]
    # Threads hand over and wait, which takes part of the period too.
    scale = period_ms / (max(periods) or math.inf)
    return _simulated(workload, stages, [scale * period for period in periods])


def _simulated(
    workload: Workload, stages: Candidate, periods: Sequence[float]
) -> tuple[float, float]:
    """As ``served`` for stages whose replicas together take so many ms for an item."""
    batch = stages[0].options[0].row.batch
    best_rate, best_delay = 0.0, workload.delays(batch)[0]
    if max(periods) == math.inf or workload.limit_ms is None:
        return best_rate, best_delay
    stations = tuple(
        Station((period * batch * stage.replicas,), stage.replicas)
        for period, stage in zip(periods, stages, strict=True)
    )
    for delay in workload.delays(batch):
        server = Server(stations, batch, delay)
        rate = goodput(server, workload, items=ITEMS)
        if rate > best_rate:
            best_rate, best_delay = rate, delay
        if best_rate > _ENOUGH * server.capacity:
            break
    return best_rate, best_delay
