"""The planner's cost model of measured profiles and links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import parse
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.planner import CostModel, Link


def cost_model(
    graph: FusedGraph,
    profiles: Sequence[Profile],
    links: Sequence[LinkCost] = (),
    keep_together: Iterable[Iterable[int]] = (),
) -> CostModel:
    """The costs of a graph, in ms, on the devices along a pipeline; equal devices share one row.

    ``links`` are in the order of ``profiles``; without them moving a tensor costs nothing.
    ``keep_together`` are sets of ops, by index, that no cut may separate.
    """
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
