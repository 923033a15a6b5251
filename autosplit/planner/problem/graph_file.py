"""The graph file of dnn-partitioning (Tarnawski et al., NeurIPS 2020) as a cost model, and back.

Parsed JSON in and out. ``cpuLatency``, ``isBackwardNode`` and ``maxCPUs`` are not used.
``overhead`` (a stage) and ``deviceLatencies`` (a node: one time per device) are this package's own
additions; other planners ignore them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autosplit.cuts import bitset, contract, members
from autosplit.errors import GraphError
from autosplit.planner.partition.costs import Transfer
from autosplit.planner.problem.cost_model import CostModel

_Id = str | int
_MOST = 1e200  # so that no sum of times is infinite


def from_workload(document: object, name: str = "graph") -> CostModel:
    """The cost model of a parsed graph file.

    Raises GraphError, naming the node or edge, for anything malformed.
    """
    top = _Fields(document, "the graph file")
    memory = top.number("maxSizePerFPGA")
    nodes = _nodes(top)
    if not nodes:
        raise GraphError("the graph file has no nodes; give it at least one")
    ids = [node.id("id") for node in nodes]
    place: dict[_Id, int] = {}
    for i in range(len(nodes)):
        if place.setdefault(ids[i], i) != i:
            raise GraphError(f"node id {ids[i]!r} appears twice; ids must be unique")
    outputs = _outputs(top, place)
    order = _order(nodes, ids, outputs)
    rank = {i: op for op, i in enumerate(order)}
    tensors, transfer_costs = [], []
    predecessors = [0] * len(nodes)
    for i in sorted(outputs, key=rank.__getitem__):
        readers = tuple(sorted(rank[reader] for reader in outputs[i].readers))
        tensors.append(Transfer(str(ids[i]), rank[i], readers, outputs[i].bytes))
        transfer_costs.append(outputs[i].cost)
        for reader in readers:
            predecessors[reader] |= 1 << rank[i]
    ordered = [nodes[i] for i in order]
    return CostModel(
        name=name,
        names=tuple(str(ids[i]) for i in order),
        ids=tuple(ids[i] for i in order),
        predecessors=tuple(predecessors),
        times=_times(ordered),
        tensors=tuple(tensors),
        send=(tuple(transfer_costs),),
        receive=(tuple(transfer_costs),),
        overheads=(top.cost("overhead", default=0.0),),
        sizes=tuple(node.number("size") for node in ordered),
        memory=(memory,),
        groups=_colour_groups(ordered),
    )


def to_workload(costs: CostModel, stages: int = 1) -> dict[str, Any]:
    """A cost model as a graph file that ``from_workload`` and other planners of the format read.

    The format has one transfer cost per source node: an op's tensors become one edge cost, the sum
    of the larger of their send and receive costs on the first device. Model inputs and the memory
    of activations have no place in it.
    """
    outputs: dict[int, _Output] = {}
    for t, tensor in enumerate(costs.tensors):
        if tensor.producer is not None:
            output = outputs.setdefault(tensor.producer, _Output())
            output.cost += max(costs.send[0][t], costs.receive[0][t])
            output.bytes += tensor.bytes
            output.readers.update(dict.fromkeys(tensor.consumers))
    edges = []
    for i, output in outputs.items():
        fields = {"cost": output.cost, "size": output.bytes}
        for reader in output.readers:
            edges.append({"sourceId": costs.ids[i], "destId": costs.ids[reader], **fields})
    memory = min(costs.memory)
    colours = {}
    for colour, ops in enumerate(costs.contraction.groups):
        if ops.bit_count() > 1:
            colours.update(dict.fromkeys(members(ops), colour))
    return {
        "maxFPGAs": costs.devices or stages,
        "maxCPUs": 0,
        "maxSizePerFPGA": memory if memory < math.inf else math.fsum(costs.sizes),
        "overhead": max(costs.overheads),
        "nodes": [_node(costs, i, colours) for i in range(len(costs.names))],
        "edges": edges,
    }


def _node(costs: CostModel, i: int, colours: Mapping[int, int]) -> dict[str, Any]:
    times = [row[i] for row in costs.times]
    supported = times[0] < math.inf
    node: dict[str, Any] = {
        "name": costs.names[i],
        "id": costs.ids[i],
        "supportedOnFpga": int(supported),
        "cpuLatency": 0.0,
        "fpgaLatency": times[0] if supported else 0.0,
        "isBackwardNode": 0,
        "size": costs.sizes[i],
    }
    if i in colours:
        node["colorClass"] = colours[i]
    if len(times) > 1:
        node["deviceLatencies"] = [t if t < math.inf else None for t in times]
    return node


@dataclass
class _Output:
    """What the edges tell of one source: its cost, bytes and readers, in the order of the edges."""

    cost: float = 0.0
    bytes: float = 0.0
    readers: dict[int, None] = field(default_factory=dict)


class _Fields:
    """An object of the file; ``where`` names it in errors."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        if not isinstance(value, Mapping):
            raise GraphError(f"{where} is {_short(value)}; give an object")
        self.fields: Mapping[str, Any] = value

    def get(self, key: str) -> Any:
        if key not in self.fields:
            raise GraphError(f"{self.where} has no {key}; add it")
        return self.fields[key]

    def list(self, key: str) -> Sequence[Any]:
        value = self.get(key)
        return value if isinstance(value, list) else self._refuse(key, "a list")

    def id(self, key: str) -> _Id:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | str):
            self._refuse(key, "a whole number or a string")
        return value  # type: ignore[no-any-return]

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if value not in (0, 1) or not isinstance(value, int | float):
            self._refuse(key, "true or false")
        return bool(value)

    def number(self, key: str, default: float | None = None) -> float:
        if default is not None and self.fields.get(key) is None:
            return default
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
        return number if number >= 0 else self._refuse(key, "a number that is not negative")

    def cost(self, key: str, default: float | None = None) -> float:
        """A finite time that can be summed up."""
        number = self.number(key, default)
        if number == math.inf:
            raise GraphError(f"{self.where} has {key} {number}; give a finite number")
        if number > _MOST:
            raise GraphError(
                f"{self.where} has {key} {number:g}; give at most {_MOST:g}, "
                "in another unit of time"
            )
        return number

    def _refuse(self, key: str, expected: str) -> Any:
        raise GraphError(f"{self.where} has {key} {_short(self.fields[key])}; give {expected}")


def _nodes(top: _Fields) -> list[_Fields]:
    """The nodes of the file; errors name them by id."""
    nodes = [_Fields(node, f"node {i}") for i, node in enumerate(top.list("nodes"))]
    for node in nodes:
        node.where = f"node {node.id('id')!r}"
    return nodes


def _outputs(top: _Fields, place: Mapping[_Id, int]) -> dict[int, _Output]:
    """What the edges tell of each source, by the place of its node."""
    outputs: dict[int, _Output] = {}
    for n, item in enumerate(top.list("edges")):
        edge = _Fields(item, f"edge {n}")
        for key in ("sourceId", "destId"):
            if edge.id(key) not in place:
                raise GraphError(
                    f"edge {n} has {key} {edge.id(key)!r}, which is not a node; "
                    "add the node or remove the edge"
                )
        cost = edge.cost("cost")
        output = outputs.setdefault(place[edge.id("sourceId")], _Output(cost))
        if output.cost != cost:
            raise GraphError(
                f"the edges of source {edge.id('sourceId')!r} have different costs, "
                f"{output.cost} and {cost}; a source has one cost"
            )
        output.bytes = max(output.bytes, edge.number("size", default=0.0))
        output.readers[place[edge.id("destId")]] = None
    return outputs


def _order(
    nodes: Sequence[_Fields], ids: Sequence[_Id], outputs: Mapping[int, _Output]
) -> list[int]:
    """A topological order of the nodes, in the file's order where that is free."""
    predecessors = [0] * len(nodes)
    for source, output in outputs.items():
        if source in output.readers:
            raise GraphError(f"{nodes[source].where} reads its own output; a graph has no cycle")
        for reader in output.readers:
            predecessors[reader] |= 1 << source
    # A group of several nodes is a cycle, because nothing else is contracted here.
    groups = contract(predecessors).groups
    for group in groups:
        if group.bit_count() > 1:
            names = ", ".join(repr(ids[i]) for i in list(members(group))[:8])
            raise GraphError(f"the nodes {names} lie on a cycle; remove one of its edges")
    return [next(members(group)) for group in groups]


def _times(nodes: Sequence[_Fields]) -> tuple[tuple[float, ...], ...]:
    """The times of all nodes, a row a device or one for all."""
    columns = []
    for node in nodes:
        node.number("cpuLatency", default=0.0)
        times = [node.cost("fpgaLatency") if node.flag("supportedOnFpga") else math.inf]
        if node.fields.get("deviceLatencies") is not None:
            times = []
            for time in node.list("deviceLatencies"):
                single = _Fields({"deviceLatencies": time}, node.where)
                # null and infinity are devices that cannot run the node.
                unsupported = time is None or single.number("deviceLatencies") == math.inf
                times.append(math.inf if unsupported else single.cost("deviceLatencies"))
        columns.append(times)
    devices = max(map(len, columns))
    for node, times in zip(nodes, columns, strict=True):
        if len(times) not in (1, devices) or not times:
            raise GraphError(
                f"{node.where} has {len(times)} deviceLatencies, others {devices}; "
                "give one per device"
            )
    full = [times * devices if len(times) == 1 else times for times in columns]
    return tuple(zip(*full, strict=True))


def _colour_groups(nodes: Sequence[_Fields]) -> tuple[int, ...]:
    """Ops of the same colour, which stay together."""
    ops_of: dict[_Id, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.fields.get("colorClass") is not None:
            ops_of.setdefault(node.id("colorClass"), []).append(i)
    return tuple(bitset(ops) for ops in ops_of.values() if len(ops) > 1)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
