"""The planner's view of what was measured: a profile a device, and what it takes to use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import parse
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.planner import CostModel, Link


def on_own_devices(
    costs: CostModel,
    regions: Mapping[str, Sequence[int]],
    wanted: Mapping[str, str],
    devices: Sequence[str],
) -> CostModel:
    """The costs where the ops of some external backends run on one device of a pipeline only.

    ``regions``: the ops of each backend; ``wanted``: the device of a backend, spelled as any that parses; ``devices``: those
    along the pipeline. Raises ConfigError for a device that is not among them.
    """
    for backend, text in wanted.items():
        name = str(parse(text))
        if name not in devices:
            raise ConfigError(
                f"regions of backend '{backend}' are for device '{text}', which is none of {', '.join(devices)}; "
                "name one of them"
            )
        allowed = [d for d, known in enumerate(devices) if known == name]
        costs = costs.only_on(regions.get(backend, ()), allowed, len(devices))
    return costs


def cost_model(
    graph: FusedGraph,
    profiles: Sequence[Profile],
    links: Sequence[LinkCost] = (),
    keep_together: Iterable[Iterable[int]] = (),
) -> CostModel:
    """The costs of a graph on the devices along a pipeline, in ms; devices that are all alike share one row.

    ``links`` are in the order of ``profiles``; without them moving a tensor costs nothing. ``keep_together``: ops, by index, that
    no cut may part.
    """
    rows = [p.op_ms for p in profiles]
    priced = any(
        link.call_ms or link.latency_ms or link.bandwidth != float("inf") for link in links
    )
    model = CostModel.from_graph(
        graph,
        rows[:1] if len(set(rows)) == 1 else rows,
        links=[Link(link.bandwidth, link.latency_ms) for link in links] if priced else None,
        overheads=[link.call_ms for link in links] if priced else (0.0,),
    )
    return model.with_groups(keep_together)
