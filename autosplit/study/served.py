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


# The same batch is valued under many draws of the costs.
@lru_cache(maxsize=8)
def shares(workload: Workload, corrected: Corrected, batch: Batch) -> Array:
    """What share of its capacity each deployment serves within the limit, by the mean costs.

    Simulated once for the mean: draws of the costs scale all of it.
    """
    periods = corrected.ratio * batch.stage_periods(corrected.loads(batch, corrected.mean))
    served = []
    for stages, stage_periods in zip(batch.deployments, periods, strict=True):
        slowest = stage_periods.max(initial=0.0)
        rate = goodput_of(workload, stages, stage_periods[: len(stages)].tolist())
        served.append(rate * slowest / 1e3 if 0 < slowest < math.inf else 0.0)
    return np.array(served)


def measured_goodput(workload: Workload, stages: Candidate, measured: Measurement) -> float:
    """The goodput of a deployment whose stages were measured with all items waiting."""
    pairs = zip(measured.stage_ms, stages, strict=True)
    periods = [ms / stage.replicas for ms, stage in pairs]
    # Threads hand over and wait, which takes part of the period too.
    scale = measured.period_ms.median / (max(periods) or math.inf)
    return goodput_of(workload, stages, [scale * period for period in periods])


def goodput_of(workload: Workload, stages: Candidate, periods: Sequence[float]) -> float:
    """The simulated goodput of stages whose replicas together take so many ms for an item."""
    batch, limit = stages[0].options[0].row.batch, workload.p99_ms or math.inf
    if max(periods) == math.inf or limit == math.inf:
        return 0.0
    stations = tuple(
        Station((period * batch * stage.replicas,), stage.replicas)
        for period, stage in zip(periods, stages, strict=True)
    )
    return goodput(Server(stations, batch, workload.delay_of(batch)), limit, items=ITEMS)
