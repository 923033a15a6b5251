"""The planner's cost table, from measured profiles and links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from autosplit.cuts import bitset
from autosplit.deployment import Option, Row, Stage, resources_of
from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph, Tensor
from autosplit.hardware.devices.device import parse
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.planner import CostModel, Kind, Link, RowCosts, Transfer, evaluate
from autosplit.units import size

Groups = Iterable[Iterable[int]]
_NO_LINK = LinkCost("")


def cost_table(
    graph: FusedGraph,
    profiles: Sequence[Profile],
    links: Sequence[LinkCost] = (),
    keep_together: Mapping[str, Groups] = MappingProxyType({}),
    *,
    rows: Sequence[tuple[str, int]] = (),
    memory: Sequence[float] = (),
    streams: int = 1,
) -> CostModel:
    """Build the cost table of a graph, in ms an item.

    ``profiles`` are in the order of the devices, for one runtime and batch after the other.
    ``links`` are those of the devices; without them moving a tensor costs nothing. An item of a
    batch is charged as much for a transfer as a single item, which is never too little.
    ``keep_together``: for each runtime sets of ops, by index, that no cut may separate. ``rows``:
    the kind and the threads of each device; by default devices with equal costs are one kind, named
    after the first. ``memory``: bytes of each device, or of all. Raises ConfigError where no
    runtime can compute the model.
    """
    by_runtime = _by_runtime(profiles)
    able = {key: each for key, each in by_runtime.items() if any(p.is_possible for p in each)}
    if not able:
        reasons = dict.fromkeys(profile.note for profile in profiles)
        raise ConfigError(f"no runtime can compute '{graph.name}': {'; '.join(reasons)}")
    count = len(next(iter(able.values())))
    of_device = [links[d] if links else _NO_LINK for d in range(count)]
    limits = [memory[d % len(memory)] if memory else math.inf for d in range(count)]
    chosen = rows or [(kind, 1) for kind in device_kinds(profiles, links, memory)]
    tensors = [t for t in graph.tensors.values() if t.consumers]
    table: dict[Row, RowCosts] = {}
    kinds: dict[str, Kind] = {}
    for (name, batch), each in able.items():
        for (kind, threads), profile, link in zip(chosen, each, of_device, strict=True):
            # The time of a call matters only between runtimes and batches: in one it is constant.
            call = profile.call_ms if len(by_runtime) > 1 else 0.0
            row = Row(kind, name, threads, batch)
            times = _times_with_outputs(graph, profile.op_ms, link)
            groups = tuple(map(bitset, keep_together.get(name, ())))
            overhead = link.call_ms / batch + call
            table.setdefault(row, RowCosts(row, times, overhead, groups))
    for (kind, _), link, limit in zip(chosen, of_device, limits, strict=True):
        kinds.setdefault(kind, _kind(graph, kind, link, limit, tensors))
    return CostModel(
        name=graph.name,
        names=tuple(op.name for op in graph.ops),
        predecessors=graph.predecessors,
        rows=tuple(table.values()),
        kinds=tuple(kinds.values()),
        tensors=tuple(Transfer(t.name, t.producer, t.consumers, float(t.bytes)) for t in tensors),
        sizes=tuple(float(op.weight_bytes) for op in graph.ops),
        activations=True,
        flops=tuple(float(op.flops) for op in graph.ops),
        states=tuple(
            (state.input, bitset(ops))
            for state, ops in zip(graph.states, graph.ops_of_states, strict=True)
        ),
        streams=streams,
    )


def device_kinds(
    profiles: Sequence[Profile], links: Sequence[LinkCost] = (), memory: Sequence[float] = ()
) -> list[str]:
    """For each device the name of the first one with the same costs; see ``cost_table``."""
    by_runtime = _by_runtime(profiles)
    first: dict[object, str] = {}
    kinds = []
    for d, of_device in enumerate(zip(*by_runtime.values(), strict=True)):
        costs = tuple((profile.op_ms, profile.call_ms) for profile in of_device)
        link = replace(links[d], device="") if links else _NO_LINK
        limit = memory[d % len(memory)] if memory else math.inf
        name = of_device[0].device
        name += f" {d}" if name in first.values() else ""
        kinds.append(first.setdefault((costs, link, limit), name))
    return kinds


def _by_runtime(profiles: Sequence[Profile]) -> dict[tuple[str, int], list[Profile]]:
    """The profiles of each runtime at each batch, in the order of the devices."""
    by_runtime: dict[tuple[str, int], list[Profile]] = {}
    for profile in profiles:
        by_runtime.setdefault((profile.runtime, profile.batch), []).append(profile)
    return by_runtime


def _kind(
    graph: FusedGraph, name: str, link: LinkCost, memory: float, tensors: Sequence[Tensor]
) -> Kind:
    """A kind of device, with its costs of moving each tensor. No device sends a model input."""
    moves = Link(link.bandwidth, link.latency_ms)
    if not moves.cost(1):
        return Kind(name, memory=memory)
    staying, inputs = _staying(graph, link), {t.name for t in tensors if t.producer is None}
    receive = [0.0 if t.name in staying & inputs else moves.cost(t.bytes) for t in tensors]
    # Sending an output is part of its op's time.
    unsent = inputs | {*graph.outputs} - staying
    pairs = zip(tensors, receive, strict=True)
    send = tuple(0.0 if t.name in unsent else c for t, c in pairs)
    return Kind(name, send, tuple(receive), memory)


def _staying(graph: FusedGraph, link: LinkCost) -> set[str]:
    """The tensors of states, which stay on their device; a TVM server gets them with each item."""
    if link.device.startswith(("rpc:", "tracker:")):
        return set()
    once = {name for name in graph.outputs if graph.outputs.count(name) == 1}
    return {s.input for s in graph.states} | {s.tensor for s in graph.states} & once


def _times_with_outputs(
    graph: FusedGraph, op_ms: Sequence[float], link: LinkCost
) -> tuple[float, ...]:
    """Op times that include sending model outputs, which leave their stage in every deployment."""
    times, moves = list(map(float, op_ms)), Link(link.bandwidth, link.latency_ms)
    leaving = {*graph.outputs} - _staying(graph, link) if moves.cost(1) else ()
    for name in sorted(leaving):
        producer = graph.tensors[name].producer
        if producer is not None and producer < len(times):
            times[producer] += moves.cost(graph.tensors[name].bytes)
    return tuple(times)


def place_regions(
    profiles: Sequence[Profile],
    regions: Mapping[str, Sequence[int]],
    region_devices: Mapping[str, str],
    devices: Sequence[str],
) -> list[Profile]:
    """Profiles in which the ops of external backends have infinite times except on their device.

    ``regions`` are the ops of each backend, ``region_devices`` the device of a backend in any
    spelling, ``devices`` those along the pipeline. Raises ConfigError for a device that is not
    among them.
    """
    changed = list(profiles)
    for backend, spelling in region_devices.items():
        name = str(parse(spelling))
        if name not in devices:
            raise ConfigError(
                f"regions of backend '{backend}' are for device '{spelling}', which is not one of "
                f"{', '.join(devices)}; name one of them"
            )
        ops = set(regions.get(backend, ()))
        for place, profile in enumerate(changed):
            if devices[place % len(devices)] != name:
                times = (math.inf if i in ops else t for i, t in enumerate(profile.op_ms))
                changed[place] = replace(profile, op_ms=tuple(times))
    return changed


def slowed(profiles: Sequence[Profile], devices: Sequence[str]) -> list[Profile]:
    """Profiles whose times are multiplied by the number of devices that share a device's cores.

    While one stage uses the core, the others wait. Where their stages have equal loads, a slowed
    load is the sum of the real ones.
    """
    resources = [set(resources_of(device)) for device in devices]
    users = [max(1, sum(bool(r & other) for other in resources)) for r in resources]
    changed = []
    for place, profile in enumerate(profiles):
        factor = users[place % len(users)]
        changed.append(replace(profile, op_ms=tuple(t * factor for t in profile.op_ms)))
    return changed


def over_memory(costs: CostModel) -> str:
    """A message if the unsplit model exceeds the memory of every device, else empty."""
    limit = max(kind.memory for kind in costs.kinds)
    if limit == math.inf:
        return ""
    whole = Stage(tuple(range(len(costs.names))), (Option(costs.rows[0].row),))
    (needed,) = evaluate(costs, [whole]).memory
    if needed <= limit:
        return ""
    return f"the unsplit model needs {size(needed)}, over the memory limit of {size(limit)}"
