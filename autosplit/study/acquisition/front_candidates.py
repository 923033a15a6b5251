"""Candidates that may lie on the Pareto front of some costs, as the planner names them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import Infeasible
from autosplit.planner import Constraints, CostModel, least_latency, pareto_front, plan
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.problem.contention import ContentionCosts
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.deployment_space import DeploymentSpace
from autosplit.study.space.search_space import Space
from autosplit.study.space.unmeasured import CANDIDATES
from autosplit.study.surrogate.cost_correction import Measured

LISTED = 60  # splits of a front that are weighed at most
BOUNDS = 6  # limits of memory that are planned for where a front cannot be listed
SECONDS = 2.0  # that listing a front may take


@lru_cache(maxsize=2)
def listed(
    space: CandidateSpace, objectives: tuple[str, ...], measured: tuple[Measured, ...]
) -> tuple[Any, ...]:
    """The candidates that the planner names for each objective, and those on a front of several.

    The costs are those corrected by the ``measured`` trials.
    """
    costs = corrected_costs(space, measured).contention_costs
    count = 2 * len(measured) + CANDIDATES
    others: Iterator[Any]
    if isinstance(space, Space):
        others = _splits(space, costs, objectives, count)
    else:
        others = _deployments(cast("DeploymentSpace", space), costs, objectives, count)
    return tuple(dict.fromkeys([*space.whole_models, *others]))


def _deployments(
    space: DeploymentSpace, costs: ContentionCosts, objectives: tuple[str, ...], count: int
) -> Iterator[DeployedSplit]:
    if "throughput" in objectives:
        yield from _best(space, costs, count)
    # Threads shorten the latency at the cost of the period, so each least number has its best one.
    planned = set()
    for (threads, kind), row in space.rows.items() if objectives != ("memory",) else ():
        if threads not in planned:  # as for another kind of cores
            planned.add(threads)
            yield from space.planned(costs, space.sizes, threads, SECONDS)
        most = min(space.sizes[kind] // threads, space.most_stages)
        for stages in _quickest(costs.all_busy.on_devices([row]), most, True):
            yield space.pipeline(stages, threads, kind)
    if "memory" in objectives:
        least = memory_costs(space.costs.on_devices([0]))
        with contextlib.suppress(Infeasible):
            smallest = plan(least, space.most_stages, deadline=_deadline(), allow_empty=True)
            yield space.pipeline(smallest.stages)


def _splits(
    space: Space, costs: ContentionCosts, objectives: tuple[str, ...], count: int
) -> Iterator[Stages]:
    for name in objectives:
        if name == "throughput":
            yield from _best(space, costs, count)
        elif name == "memory":
            yield from _best(space, memory_costs(space.costs), count)
        else:
            for used in space.stage_counts if costs.varies else [space.stages]:
                for stages in _quickest(costs.at(used), space.stages, space.empty):
                    yield space.placement.canonical(stages)
    if len(objectives) > 1:
        with contextlib.suppress(Infeasible):
            yield from _front(space, costs.all_busy)


def _best(space: Any, costs: Any, count: int) -> list[Any]:
    """The best candidates under some costs; none where none fits the devices."""
    try:
        return list(space.best(costs, count, SECONDS))
    except Infeasible:
        return []


def memory_costs(costs: CostModel) -> CostModel:
    """Costs whose load of a stage are its bytes, so that a plan is the split of least memory."""
    tensor_bytes = tuple(t.bytes if costs.activations else 0.0 for t in costs.tensors)
    # A device that cannot run an op cannot have its weights either.
    rows = np.where(np.isinf(costs.times), math.inf, np.array(costs.sizes))
    times = tuple(map(tuple, rows.tolist()))
    transfers = (tensor_bytes,)
    return replace(costs, times=times, send=transfers, receive=transfers, overheads=(0.0,))


def _quickest(costs: CostModel, stages: int, empty: bool) -> list[Stages]:
    """The split of least latency, whatever its period; none where no split fits the devices."""
    with contextlib.suppress(Infeasible):
        limits: dict[str, Any] = {"deadline": _deadline(), "allow_empty": empty}
        return [least_latency(costs, stages, math.inf, **limits).stages]
    return []


def _front(space: Space, costs: CostModel) -> list[Stages]:
    """Splits on the front of period, latency and memory.

    Where it cannot be listed, the fastest under some limits of memory. Raises Infeasible where no
    split fits the devices.
    """
    stages, empty = space.stages, space.empty
    known = pareto_front(costs, stages, deadline=_deadline(), allow_empty=empty)
    step = max(1, len(known.plans) // LISTED)
    splits = [space.placement.canonical(p.stages) for p in known.plans[::step]]
    if known.complete:
        return splits
    least = plan(memory_costs(costs), stages, deadline=_deadline(), allow_empty=empty).period
    most = max(known.plans[0].memory)
    for limit in np.linspace(least, most, BOUNDS, endpoint=False).tolist():
        bound = Constraints(memory=(math.nextafter(limit, math.inf),))
        fastest = plan(costs, stages, deadline=_deadline(), constraints=bound, allow_empty=empty)
        splits.append(space.placement.canonical(fastest.stages))
    return splits


def _deadline() -> Callable[[], bool]:
    """Whether SECONDS from now have passed."""
    end = time.monotonic() + SECONDS
    return lambda: time.monotonic() > end
