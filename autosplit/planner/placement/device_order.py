"""The order of unequal devices along the pipeline: all orders that differ, least bound first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from autosplit.errors import Infeasible
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, NotFound, pose, work_bound
from autosplit.planner.solve import plan

MOST_ORDERS = 5040


def plan_assigned(
    costs: CostModel,
    stages: int,
    *,
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
    allow_empty: bool = False,
) -> Plan:
    """The best plan over all ways to give each stage its own device; ``devices`` tells which.

    There may be more devices than stages. Equal devices are not tried in each other's place. Pins
    to a device stay pins to the device, pins to a stage to the stage.

    Raises:
        Infeasible: No order of the devices has a split that fits.
    """
    if costs.devices is None:
        return plan(
            costs, stages, deadline=deadline, constraints=constraints, allow_empty=allow_empty
        )
    orders = list(islice(device_orders(costs, stages), MOST_ORDERS + 1))
    complete = len(orders) <= MOST_ORDERS
    best: Plan | None = None
    unsure: NotFound | None = None
    bound = math.inf
    candidates: list[tuple[float, tuple[int, ...], Constraints]] = []
    tried = 0
    for order in orders[:MOST_ORDERS]:
        if candidates and deadline is not None and deadline():
            complete = False
            break
        tried += 1
        pinned = _pinned(constraints, order)
        if pinned is not None:
            problem = pose(costs.on_devices(order), stages, pinned, allow_empty=allow_empty)
            candidates.append((work_bound(problem), order, pinned))
    # Ascending bounds: the first order that cannot be better ends the search.
    for least, order, pinned in sorted(candidates, key=lambda candidate: candidate[:2]):
        if best is not None and (least > best.period or (deadline is not None and deadline())):
            bound = min(bound, least)
            break
        try:
            candidate = plan(
                costs.on_devices(order),
                stages,
                deadline=deadline,
                constraints=pinned,
                allow_empty=allow_empty,
            )
        except NotFound as error:
            # That order may have a better split all the same.
            bound, unsure = min(bound, least), error
            continue
        except Infeasible:
            continue
        bound = min(bound, candidate.lower_bound)
        if best is None or candidate.rank < best.rank:
            best = replace(candidate, devices=tuple(order))
    if best is None:
        raise unsure or Infeasible(
            "no order of the devices has a split that fits; loosen a constraint or a memory limit"
        )
    if not complete:
        note = f"only {tried} orders of the devices were tried"
        return replace(best, lower_bound=0.0, optimal=False, note=note)
    bound = min(bound, best.period)
    return replace(best, lower_bound=bound, optimal=bound >= best.period)


def device_orders(costs: CostModel, stages: int) -> Iterator[tuple[int, ...]]:
    """All choices of a device for each stage, equal devices taken in order of their index."""
    count = costs.devices or 1
    kinds = kinds_of(costs, count)

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == stages:
            yield order
            return
        tried = set()
        for d in range(count):
            # Of equal devices only the first that is left is tried.
            if d not in order and kinds[d] not in tried:
                tried.add(kinds[d])
                yield from extend((*order, d))

    return extend(())


def kinds_of(costs: CostModel, count: int) -> tuple[int, ...]:
    """For each of ``count`` devices the first one that costs the same in every table."""
    first: dict[CostModel, int] = {}
    return tuple(first.setdefault(costs.on_devices([d]), d) for d in range(count))


def _pinned(constraints: Constraints, order: tuple[int, ...]) -> Constraints | None:
    """The constraints with devices as places in this order; None without a pinned device."""
    if any(d not in order for d in constraints.devices.values()):
        return None
    memory = constraints.memory
    if len(memory) > 1:
        memory = [memory[d] for d in order]
    devices = {op: order.index(d) for op, d in constraints.devices.items()}
    return replace(constraints, devices=devices, memory=tuple(memory))
