"""The planner's cost model of measured profiles and links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import parse
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.planner import CostModel, Link, evaluate
from autosplit.planner.problem.runtime_costs import of_device
from autosplit.units import size


def cost_model(
    graph: FusedGraph,
    profiles: Sequence[Profile],
    links: Sequence[LinkCost] = (),
    keep_together: Mapping[str, Iterable[Iterable[int]]] = MappingProxyType({}),
) -> CostModel:
    """The costs of a graph, in ms, on the devices along a pipeline; equal devices share one row.

    ``profiles`` are in the order of the devices, for one runtime after the other. ``links`` are
    those of the devices; without them moving a tensor costs nothing. ``keep_together`` are for each
    runtime sets of ops, by index, that no cut may separate. Raises ConfigError where no runtime
    can compute the model.
    """
    by_runtime: dict[str, list[Profile]] = {}
    for profile in profiles:
        by_runtime.setdefault(profile.runtime, []).append(profile)
    models: dict[str, CostModel] = {}
    for name, rows in by_runtime.items():
        # A stored profile of one runtime may lack its name.
        groups = keep_together.get(name, ()) if name else [*keep_together.values(), ()][0]
        if any(profile.is_possible for profile in rows):
            models[name] = _in_one_runtime(graph, rows, links, groups)
            if len(by_runtime) > 1:
                # Calls decide between runtimes; in one runtime every stage has the same.
                old = models[name].overheads
                new = [of_device(old, d) + profile.call_ms for d, profile in enumerate(rows)]
                models[name] = replace(models[name], overheads=tuple(new))
    if not models:
        reasons = dict.fromkeys(profile.note for profile in profiles)
        raise ConfigError(f"no runtime can compute '{graph.name}': {'; '.join(reasons)}")
    if len(by_runtime) == 1:
        return next(iter(models.values()))
    return CostModel.of_runtimes(models)


def _in_one_runtime(
    graph: FusedGraph,
    profiles: Sequence[Profile],
    links: Sequence[LinkCost],
    keep_together: Iterable[Iterable[int]],
) -> CostModel:
    rows = [profile.op_ms for profile in profiles]
    if len(set(rows)) == 1:
        rows = rows[:1]
    if not any(link.call_ms or link.latency_ms or link.bandwidth != math.inf for link in links):
        return CostModel.from_graph(graph, rows).with_groups(keep_together)
    model = CostModel.from_graph(
        graph,
        rows,
        links=[Link(link.bandwidth, link.latency_ms) for link in links],
        overheads=[link.call_ms for link in links],
    )
    return model.with_groups(keep_together)


def place_regions(
    costs: CostModel,
    regions: Mapping[str, Sequence[int]],
    region_devices: Mapping[str, str],
    devices: Sequence[str],
) -> CostModel:
    """The costs where the ops of some external backends run on one device only.

    ``regions`` are the ops of each backend, ``region_devices`` the device of a backend in any
    spelling, ``devices`` those along the pipeline. Raises ConfigError for a device that is none of
    them.
    """
    for backend, spelling in region_devices.items():
        name = str(parse(spelling))
        if name not in devices:
            raise ConfigError(
                f"regions of backend '{backend}' are for device '{spelling}', which is not one of "
                f"{', '.join(devices)}; name one of them"
            )
        places = [place for place, device in enumerate(devices) if device == name]
        costs = costs.only_on(regions.get(backend, ()), places, len(devices))
    return costs


def over_memory(costs: CostModel) -> str:
    """That the unsplit model exceeds the memory of every device; empty where one holds it."""
    limit = max(costs.memory)
    if limit == math.inf:
        return ""
    needed = evaluate(costs.on_devices([0]), [range(len(costs.names))]).memory[0]
    if needed <= limit:
        return ""
    return f"the unsplit model needs {size(needed)}, over the memory limit of {size(limit)}"
