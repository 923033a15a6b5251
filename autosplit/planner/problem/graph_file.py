"""The graph file of dnn-partitioning (Tarnawski et al., NeurIPS 2020) as a cost model, and back. Parsed JSON in and
out.

Only accelerators are planned: ``cpuLatency``, ``isBackwardNode`` and ``maxCPUs`` are checked where present and not
used. ``overhead`` (a stage) and ``deviceLatencies`` (a node: one time per device) are this package's own additions;
other planners ignore them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.cuts import bitset, contract, members
from autosplit.errors import GraphError
from autosplit.planner.problem.cost_model import CostModel, Transfer

_Id = str | int
_MOST = 1e200  # so that no sum of times is infinite


def from_workload(document: object, name: str = "graph") -> CostModel:
    """The cost model of a parsed graph file. Raises GraphError, naming the node or edge, for anything malformed."""
    top = _object(document, "the graph file")
    limit = _number(top, "maxSizePerFPGA", "the graph file")
    nodes = [_object(n, f"node {i}") for i, n in enumerate(_list(top, "nodes", "the graph file"))]
    if not nodes:
        raise GraphError("the graph file has no nodes; give it at least one")
    place: dict[_Id, int] = {}
    for i, node in enumerate(nodes):
        if place.setdefault(_id(node, "id", f"node {i}"), i) != i:
            raise GraphError(f"node id {node['id']!r} appears twice; ids must be unique")
    made = _edges(top, place)
    order = _order(nodes, made)
    rank = {old: new for new, old in enumerate(order)}
    ordered = [nodes[i] for i in order]
    sources = [i for i in order if i in made]
    predecessors = [0] * len(nodes)
    for source in sources:
        for reader in made[source].readers:
            predecessors[rank[reader]] |= 1 << rank[source]
    return CostModel(
        name=name,
        names=tuple(str(node["id"]) for node in ordered),
        ids=tuple(node["id"] for node in ordered),
        predecessors=tuple(predecessors),
        times=_times(ordered),
        tensors=tuple(
            Transfer(
                str(nodes[i]["id"]),
                rank[i],
                tuple(sorted(rank[r] for r in made[i].readers)),
                made[i].bytes,
            )
            for i in sources
        ),
        send=(tuple(made[i].cost for i in sources),),
        receive=(tuple(made[i].cost for i in sources),),
        overheads=(_cost(top, "overhead", "the graph file", default=0.0),),
        sizes=tuple(_number(node, "size", _label(node)) for node in ordered),
        memory=(limit,),
        groups=_colours(ordered),
    )


def to_workload(costs: CostModel, stages: int = 1) -> dict[str, Any]:
    """A cost model as a graph file that ``from_workload`` and other planners of the format read.

    The format has one transfer cost per source node: an op's tensors become one edge cost, the sum of the larger of
    their send and receive costs on the first device. Model inputs and the memory of activations have no place in it.
    """
    made: dict[int, tuple[float, float, dict[int, None]]] = {}
    for t, tensor in enumerate(costs.tensors):
        if tensor.producer is not None:
            cost, size, readers = made.get(tensor.producer, (0.0, 0.0, {}))
            cost += max(costs.send[0][t], costs.receive[0][t])
            made[tensor.producer] = (
                cost,
                size + tensor.bytes,
                readers | dict.fromkeys(tensor.consumers),
            )
    total = math.fsum(costs.sizes)
    return {
        "maxFPGAs": costs.devices or stages,
        "maxCPUs": 0,
        "maxSizePerFPGA": min(costs.memory) if min(costs.memory) < math.inf else total,
        "overhead": max(costs.overheads),
        "nodes": [_node(costs, i) for i in range(len(costs.names))],
        "edges": [
            {"sourceId": costs.ids[i], "destId": costs.ids[r], "cost": cost, "size": size}
            for i, (cost, size, readers) in made.items()
            for r in readers
        ],
    }


def _node(costs: CostModel, i: int) -> dict[str, Any]:
    times = [row[i] for row in costs.times]
    colour = {
        j: c
        for c, ops in enumerate(costs.contraction.groups)
        if ops.bit_count() > 1
        for j in members(ops)
    }
    node: dict[str, Any] = {
        "name": costs.names[i],
        "id": costs.ids[i],
        "supportedOnFpga": int(times[0] < math.inf),
        "cpuLatency": 0.0,
        "fpgaLatency": times[0] if times[0] < math.inf else 0.0,
        "isBackwardNode": 0,
        "size": costs.sizes[i],
    }
    if i in colour:
        node["colorClass"] = colour[i]
    if len(times) > 1:
        node["deviceLatencies"] = [t if t < math.inf else None for t in times]
    return node


class _Made:
    """What the edges say of one source: its cost, bytes and readers."""

    def __init__(self, cost: float, size: float) -> None:
        self.cost, self.bytes = cost, size
        self.readers: dict[int, None] = {}


def _edges(top: Mapping[str, Any], place: Mapping[_Id, int]) -> dict[int, _Made]:
    made: dict[int, _Made] = {}
    for n, item in enumerate(_list(top, "edges", "the graph file")):
        edge = _object(item, f"edge {n}")
        ends = []
        for key in ("sourceId", "destId"):
            end = _id(edge, key, f"edge {n}")
            if end not in place:
                raise GraphError(
                    f"edge {n} has {key} {end!r}, which is no node; add the node or remove the edge"
                )
            ends.append(place[end])
        cost = _cost(edge, "cost", f"edge {n}")
        if cost == math.inf:
            raise GraphError(f"edge {n} has cost {cost}; give a finite number")
        entry = made.setdefault(ends[0], _Made(cost, 0.0))
        if entry.cost != cost:
            raise GraphError(
                f"the edges of source {edge['sourceId']!r} have different costs, {entry.cost} and {cost}; "
                "a source has one cost"
            )
        entry.bytes = max(entry.bytes, _number(edge, "size", f"edge {n}", default=0.0))
        entry.readers[ends[1]] = None
    return made


def _order(nodes: Sequence[Mapping[str, Any]], made: Mapping[int, _Made]) -> list[int]:
    """A topological order of the nodes, in the file's order where that is free."""
    predecessors = [0] * len(nodes)
    for source, entry in made.items():
        if source in entry.readers:
            raise GraphError(f"{_label(nodes[source])} reads its own output; a graph has no cycle")
        for reader in entry.readers:
            predecessors[reader] |= 1 << source
    groups = contract(predecessors).groups
    for group in groups:
        if group.bit_count() > 1:
            names = ", ".join(repr(nodes[i]["id"]) for i in list(members(group))[:8])
            raise GraphError(f"the nodes {names} lie on a cycle; remove one of its edges")
    return [next(members(group)) for group in groups]


def _times(nodes: Sequence[Mapping[str, Any]]) -> tuple[tuple[float, ...], ...]:
    rows = []
    for node in nodes:
        own = [_finite(node, "fpgaLatency") if _flag(node, "supportedOnFpga") else math.inf]
        for key in ("cpuLatency",):
            _number(node, key, _label(node), default=0.0)
        if node.get("deviceLatencies") is not None:
            given = _list(node, "deviceLatencies", _label(node))
            own = [
                math.inf
                if t is None
                else _cost({"deviceLatencies": t}, "deviceLatencies", _label(node))
                for t in given
            ]
        rows.append(own)
    most = max(map(len, rows))
    for node, own in zip(nodes, rows, strict=True):
        if len(own) not in (1, most) or not own:
            raise GraphError(
                f"{_label(node)} has {len(own)} deviceLatencies, others {most}; give one per device"
            )
    return tuple(tuple(own[d if len(own) > 1 else 0] for own in rows) for d in range(most))


def _colours(nodes: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    found: dict[_Id, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.get("colorClass") is not None:
            found.setdefault(_id(node, "colorClass", _label(node)), []).append(i)
    return tuple(bitset(ops) for ops in found.values() if len(ops) > 1)


def _label(node: Mapping[str, Any]) -> str:
    return f"node {node['id']!r}"


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GraphError(f"{where} is {_short(value)}; give an object")
    return value


def _list(holder: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = _field(holder, key, where)
    if not isinstance(value, list):
        raise GraphError(f"{where} has {key} {_short(value)}; give a list")
    return value


def _id(holder: Mapping[str, Any], key: str, where: str) -> _Id:
    value = _field(holder, key, where)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise GraphError(f"{where} has {key} {_short(value)}; give a whole number or a string")
    return value


def _number(holder: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    if default is not None and holder.get(key) is None:
        return default
    value = _field(holder, key, where)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GraphError(f"{where} has {key} {_short(value)}; give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.nan
    if not number >= 0:
        raise GraphError(f"{where} has {key} {_short(value)}; give a number that is not negative")
    return number


def _cost(holder: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    """A time that can be summed up, or infinity."""
    number = _number(holder, key, where, default)
    if _MOST < number < math.inf:
        raise GraphError(
            f"{where} has {key} {number:g}; give at most {_MOST:g}, in another unit of time"
        )
    return number


def _finite(node: Mapping[str, Any], key: str) -> float:
    number = _cost(node, key, _label(node))
    if number == math.inf:
        raise GraphError(
            f"{_label(node)} has {key} inf; give a finite number, or supportedOnFpga 0"
        )
    return number


def _flag(node: Mapping[str, Any], key: str) -> bool:
    value = _field(node, key, _label(node))
    if value not in (0, 1) or not isinstance(value, int | float):
        raise GraphError(f"{_label(node)} has {key} {_short(value)}; give true or false")
    return bool(value)


def _field(holder: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in holder:
        raise GraphError(f"{where} has no {key}; add it")
    return holder[key]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
