"""Graph files as JSON documents that are read: the cost table of a graph, checked by pydantic.

The format is that of dnn-partitioning (Tarnawski et al., NeurIPS 2020). ``cpuLatency``,
``isBackwardNode`` and ``maxCPUs`` are not used. ``overhead`` (of a stage), ``devices`` and
``deviceLatencies`` (of a node: a time for each device) are this package's own additions; other
planners ignore them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from autosplit.cuts import bitset, contract, members
from autosplit.errors import GraphError
from autosplit.planner import CostModel, Kind, Row, RowCosts, Transfer

_MOST = 1e200  # so that no sum of times is infinite

_Whole = Annotated[int, Field(strict=True)]
_Id = _Whole | Annotated[str, Field(strict=True)]
_Number = Annotated[float, Field(strict=True, ge=0)]
_Cost = Annotated[float, Field(strict=True, ge=0, le=_MOST)]
# Null and infinity are devices that cannot run the node.
_Time = Annotated[_Cost | None, BeforeValidator(lambda time: None if time == math.inf else time)]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, allow_inf_nan=True)


class _Node(_Part):
    id: _Id
    supported_on_fpga: Literal[0, 1, False, True]
    fpga_latency: _Cost | None = None
    cpu_latency: _Number | None = None
    device_latencies: list[_Time] | None = None
    size: _Number
    color_class: _Id | None = None


class _Edge(_Part):
    source_id: _Id
    dest_id: _Id
    cost: _Cost
    size: _Number | None = None


class _Device(_Part):
    name: Annotated[str, Field(strict=True)]
    speed: Annotated[float, Field(strict=True, gt=0, le=_MOST)] = 1.0
    max_size: _Number | None = None


class _Graph(_Part):
    memory: _Number = Field(alias="maxSizePerFPGA")
    overhead: _Cost | None = None
    nodes: list[_Node] = Field(min_length=1)
    edges: list[_Edge]
    devices: list[_Device] | None = Field(default=None, min_length=1)


@dataclass
class _Output:
    """What the edges tell of one source: its cost, bytes and readers, in the order of the edges."""

    cost: float = 0.0
    bytes: float = 0.0
    readers: dict[int, None] = field(default_factory=dict)


def from_document(document: object, name: str = "graph") -> CostModel:
    """The cost table of a parsed graph file; its unlike devices are kinds called 0, 1, ….

    Raises GraphError, naming the node or edge, for anything malformed.
    """
    try:
        graph = _Graph.model_validate(document)
    except ValidationError as error:
        raise GraphError(_problem(document, error)) from None
    ids = [node.id for node in graph.nodes]
    place: dict[str | int, int] = {}
    for i in range(len(ids)):
        if place.setdefault(ids[i], i) != i:
            raise GraphError(f"node id {ids[i]!r} appears twice; ids must be unique")
    outputs = _outputs(graph, place)
    order = _order(ids, outputs)
    rank = {i: op for op, i in enumerate(order)}
    tensors, moves = [], []
    predecessors = [0] * len(ids)
    for i in sorted(outputs, key=rank.__getitem__):
        readers = tuple(sorted(rank[reader] for reader in outputs[i].readers))
        tensors.append(Transfer(str(ids[i]), rank[i], readers, outputs[i].bytes))
        moves.append(outputs[i].cost)
        for reader in readers:
            predecessors[reader] |= 1 << rank[i]
    nodes = [graph.nodes[i] for i in order]
    count = max(len(node.device_latencies or ()) for node in nodes) or 1
    devices = graph.devices or [_Device(name="")] * count
    kinds = list(map(str, range(len(devices)))) if graph.devices or count > 1 else [""]
    return CostModel(
        name=name,
        names=tuple(str(ids[i]) for i in order),
        ids=tuple(ids[i] for i in order),
        predecessors=tuple(predecessors),
        rows=tuple(
            RowCosts(Row(kind), row, graph.overhead or 0.0)
            for kind, row in zip(kinds, _times(devices, nodes), strict=True)
        ),
        kinds=tuple(
            Kind(
                kind,
                tuple(moves),
                tuple(moves),
                graph.memory if device.max_size is None else device.max_size,
            )
            for kind, device in zip(kinds, devices, strict=True)
        ),
        tensors=tuple(tensors),
        sizes=tuple(node.size for node in nodes),
        groups=_colour_groups(nodes),
    )


def _problem(document: object, error: ValidationError) -> str:
    """The first problem in one line, with its node, edge or device."""
    first = error.errors(include_url=False)[0]
    path, value = first["loc"], first["input"]
    where, key = "the graph file", path[0] if path else ""
    if len(path) > 1:
        number, key = path[1], path[2] if len(path) > 2 else ""
        part = document[path[0]][number]  # type: ignore[index]
        name = part.get("id", part.get("name", number)) if isinstance(part, dict) else number
        where = f"{str(path[0]).removesuffix('s')} {name!r}"
    if first["type"] == "missing":
        return f"{where} has no {key}; add it"
    text = repr(value)
    shown = text if len(text) <= 40 else text[:37] + "..."
    advice = first["msg"].replace("Input should be", "it should be")
    return f"{where} {'has ' if key else 'is '}{key}{' ' if key else ''}{shown}; {advice}"


def _outputs(graph: _Graph, place: Mapping[str | int, int]) -> dict[int, _Output]:
    """What the edges tell of each source, by the place of its node."""
    outputs: dict[int, _Output] = {}
    for n, edge in enumerate(graph.edges):
        for key, end in (("sourceId", edge.source_id), ("destId", edge.dest_id)):
            if end not in place:
                raise GraphError(
                    f"edge {n} has {key} {end!r}, which is not a node; "
                    "add the node or remove the edge"
                )
        output = outputs.setdefault(place[edge.source_id], _Output(edge.cost))
        if output.cost != edge.cost:
            raise GraphError(
                f"the edges of source {edge.source_id!r} have different costs, "
                f"{output.cost} and {edge.cost}; a source has one cost"
            )
        output.bytes = max(output.bytes, edge.size or 0.0)
        output.readers[place[edge.dest_id]] = None
    return outputs


def _order(ids: Sequence[str | int], outputs: Mapping[int, _Output]) -> list[int]:
    """A topological order of the nodes, in the file's order where that is free."""
    predecessors = [0] * len(ids)
    for source, output in outputs.items():
        if source in output.readers:
            raise GraphError(f"node {ids[source]!r} reads its own output; a graph has no cycle")
        for reader in output.readers:
            predecessors[reader] |= 1 << source
    # A group of several nodes is a cycle, because nothing else is contracted here.
    groups = contract(predecessors).groups
    for group in groups:
        if group.bit_count() > 1:
            names = ", ".join(repr(ids[i]) for i in list(members(group))[:8])
            raise GraphError(f"the nodes {names} lie on a cycle; remove one of its edges")
    return [next(members(group)) for group in groups]


def _times(devices: Sequence[_Device], nodes: Sequence[_Node]) -> list[tuple[float, ...]]:
    """The times of all nodes, a row for each device."""
    count, columns = len(devices), []
    for node in nodes:
        times = node.device_latencies
        if times is not None and len(times) not in (1, count):
            raise GraphError(
                f"node {node.id!r} has {len(times)} deviceLatencies for {count} devices; "
                "give one per device"
            )
        if times is None and node.supported_on_fpga and node.fpga_latency is None:
            raise GraphError(f"node {node.id!r} has no fpgaLatency; add it")
        if times is None:
            time = node.fpga_latency if node.supported_on_fpga else None
            times = [None if time is None else time / device.speed for device in devices]
        times = [math.inf if time is None else time for time in times]
        columns.append(times * count if len(times) == 1 else times)
    return list(zip(*columns, strict=True))


def _colour_groups(nodes: Sequence[_Node]) -> tuple[int, ...]:
    """Ops of the same colour, which stay together."""
    ops_of: dict[str | int, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.color_class is not None:
            ops_of.setdefault(node.color_class, []).append(i)
    return tuple(bitset(ops) for ops in ops_of.values() if len(ops) > 1)
