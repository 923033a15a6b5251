"""The order of unequal devices along the pipeline: a search over the orders that differ, cheapest bound first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from autosplit.errors import Infeasible
from autosplit.planner.large.simple_bound import simple_bound
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan
from autosplit.planner.problem.problem import Deadline, pose
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
    """The best plan over all ways to give each stage its own device; ``devices`` of it says which.

    There may be more devices than stages. Devices that cost the same are not tried in each other's place. Pins to a device
    keep meaning the device; pins to a stage the stage. Raises Infeasible where no order has a split that fits.
    """
    if costs.devices is None:
        return plan(
            costs, stages, deadline=deadline, constraints=constraints, allow_empty=allow_empty
        )
    orders = list(islice(device_orders(costs, stages), MOST_ORDERS + 1))
    whole = len(orders) <= MOST_ORDERS
    best: Plan | None = None
    bound, problem = float("inf"), "no order of the devices has a split that fits"
    posed = []
    for order in orders[:MOST_ORDERS]:
        own = _pinned(constraints, order)
        if own is not None:
            posed.append(
                (
                    simple_bound(
                        pose(costs.on_devices(order), stages, own, allow_empty=allow_empty)
                    ),
                    order,
                    own,
                )
            )
    for least, order, own in sorted(posed, key=lambda item: item[:2]):
        if best is not None and (least > best.period or (deadline is not None and deadline())):
            bound = min(bound, least)
            break
        try:
            found = plan(
                costs.on_devices(order),
                stages,
                deadline=deadline,
                constraints=own,
                allow_empty=allow_empty,
            )
        except Infeasible:
            continue
        bound = min(bound, found.lower_bound)
        if best is None or _key(found) < _key(best):
            best = replace(found, devices=tuple(order))
    if best is None:
        raise Infeasible(f"{problem}; loosen a constraint or a memory limit")
    bound = min(bound, best.period)
    note = best.note if whole else f"only {MOST_ORDERS} orders of the devices were tried"
    return replace(
        best, lower_bound=bound if whole else 0.0, optimal=whole and bound >= best.period, note=note
    )


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
            if d not in order and kinds[d] not in tried:
                tried.add(kinds[d])
                yield from extend((*order, d))

    return extend(())


def kinds_of(costs: CostModel, count: int) -> tuple[int, ...]:
    """For each of ``count`` devices the first one that costs the same in every table."""
    tables = (costs.times, costs.send, costs.receive, costs.overheads, costs.memory)
    seen: dict[object, int] = {}
    return tuple(
        seen.setdefault(tuple(row[d] if len(row) > 1 else None for row in tables), d)
        for d in range(count)
    )


def _pinned(constraints: Constraints, order: tuple[int, ...]) -> Constraints | None:
    """The constraints with devices as places in this order; None where a pinned device is left out."""
    if any(d not in order for d in constraints.devices.values()):
        return None
    memory = constraints.memory
    return replace(
        constraints,
        devices={op: order.index(d) for op, d in constraints.devices.items()},
        memory=tuple(memory[d] for d in order) if len(memory) > 1 else memory,
    )


def _key(plan: Plan) -> tuple[float, float, float]:
    return plan.period, plan.latency, plan.bytes_moved
