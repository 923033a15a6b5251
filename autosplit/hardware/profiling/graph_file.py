"""Graph files: a cost table as JSON, which other planners read too.

The format is that of dnn-partitioning (Tarnawski et al., NeurIPS 2020). ``cpuLatency``,
``isBackwardNode`` and ``maxCPUs`` are not used. ``overhead`` (of a stage), ``devices`` and
``deviceLatencies`` (of a node: a time for each device) are this package's own additions; other
planners ignore them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from autosplit.cuts import bitset, contract, members
from autosplit.deployment import MOST_DEVICES
from autosplit.errors import GraphError
from autosplit.files import atomic_write, open_regular
from autosplit.planner import CostModel, Kind, Row, RowCosts, Transfer

GRAPH_LIMIT = 64_000_000  # bytes
_MOST = 1e200  # so that no sum of times is infinite

_Whole = Annotated[int, Field(strict=True)]
_Id = _Whole | Annotated[str, Field(strict=True)]
_Number = Annotated[float, Field(strict=True, ge=0)]
_Cost = Annotated[float, Field(strict=True, ge=0, le=_MOST)]
# Null and infinity mean that a device cannot run the node.
_Time = Annotated[_Cost | None, BeforeValidator(lambda time: None if time == math.inf else time)]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, allow_inf_nan=True)


class _Node(_Part):
    id: _Id
    supported_on_fpga: Literal[0, 1, False, True]
    fpga_latency: _Cost | None = None
    cpu_latency: _Number | None = None
    device_latencies: list[_Time] | None = None
    size: _Cost
    color_class: _Id | None = None


class _Edge(_Part):
    source_id: _Id
    dest_id: _Id
    cost: _Cost
    size: _Cost | None = None


class _Device(_Part):
    name: Annotated[str, Field(strict=True)]
    speed: Annotated[float, Field(strict=True, gt=0, le=_MOST)] = 1.0
    max_size: _Number | None = None


class _Graph(_Part):
    memory: _Number = Field(alias="maxSizePerFPGA")
    overhead: _Cost | None = None
    nodes: list[_Node] = Field(min_length=1, max_length=10_000)
    edges: list[_Edge]
    devices: list[_Device] | None = Field(default=None, min_length=1)


@dataclass
class _Output:
    """The output of one node, by its edges: cost, bytes and readers, in the order of the edges."""

    cost: float = 0.0
    bytes: float = 0.0
    readers: dict[int, None] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphFile:
    """The cost table of a graph file, and the file's whole ``document``.

    ``devices``: the kinds of its devices where these are unlike, else none. ``names``: those of the
    file's ``devices``, whose order in the pipeline is free; none where it has no such list.
    """

    path: Path
    costs: CostModel
    devices: tuple[str, ...]
    names: tuple[str, ...]
    document: Any

    @property
    def limit(self) -> int | None:
        """The number of devices, or else ``maxFPGAs``; None where that is no positive number."""
        most = len(self.devices) or self.document.get("maxFPGAs")
        return most if isinstance(most, int) and most is not True and most > 0 else None

    def stages(self, number: int | str) -> int:
        """``number``, or for "auto" the limit. Raises GraphError for none, and for too many."""
        stages = self.limit if number == "auto" else int(number)
        if stages is None:
            raise GraphError(
                f"{self.path}: maxFPGAs is {self.document.get('maxFPGAs')!r}, so --stages auto "
                "has no limit; give a number of stages"
            )
        if stages > MOST_DEVICES:
            raise GraphError(f"{stages} stages are too many; give --stages 1 to {MOST_DEVICES}")
        return stages

    def device_note(self, stages: int) -> str:
        """A note where there are more stages than the file has devices; else empty."""
        if self.limit is None or stages <= self.limit:
            return ""
        return f"{stages} stages are more than the {self.limit} devices of the file (maxFPGAs)"


def read_graph_file(path: Path) -> GraphFile:
    """A graph file. Raises GraphError where it is unreadable or malformed."""
    try:
        if path.stat().st_size > GRAPH_LIMIT:
            raise GraphError(f"is larger than {GRAPH_LIMIT} bytes; give a smaller graph file")
        with open_regular(path) as stream:
            document = json.loads(stream.read())
        costs = from_document(document, path.stem)
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({error.strerror}); name a graph file") from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        problem = f"{path}: is not JSON ({error}); see the format in the documentation"
        raise GraphError(problem) from error
    devices = tuple(kind.name for kind in costs.kinds if kind.name)
    names = tuple(device["name"] for device in document.get("devices") or ())
    return GraphFile(path, costs, devices, names, document)


def from_document(document: object, name: str = "graph") -> CostModel:
    """The cost table of a graph file; unlike devices are kinds 0, 1, …. Raises GraphError."""
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
    """The output of each source by its edges; keys are the indices of nodes in the file."""
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
    """A topological order of the nodes, which keeps the file's order where possible."""
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


def save_graph(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document of ``to_document``. Raises MachineError where the disk refuses."""
    text = json.dumps(document, indent=1, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def to_document(
    costs: CostModel, stages: int = 1, devices: Sequence[str] = (), names: Sequence[str] = ()
) -> dict[str, Any]:
    """A cost table as a graph file for up to ``stages`` stages.

    ``devices``: the devices of a pipeline, each by its kind in the costs. Unlike devices are
    written with the times of each, called ``names`` if given. The times are those of the fastest
    runtime with the fewest threads. The format has one transfer cost per source node: an op's
    tensors become one edge cost, the sum of the larger of their send and receive costs on the first
    device. The format lacks model inputs and the memory of activations.
    """
    chosen = list(devices) if len({costs.alike[d] for d in devices}) > 1 else [costs.kinds[0].name]
    rows = [_single_rows(costs, kind) for kind in chosen]
    times = [list(map(min, zip(*(row.times for row in each), strict=True))) for each in rows]
    kinds = [costs.kinds[costs.kind_index[kind]] for kind in chosen]
    whole = math.fsum(costs.sizes)
    sizes = [whole if kind.memory == math.inf else kind.memory for kind in kinds]
    colours: dict[int, int] = {}
    for colour, ops in enumerate(costs.contraction.groups):
        if ops.bit_count() > 1:
            colours.update(dict.fromkeys(members(ops), colour))
    document: dict[str, Any] = {
        "maxFPGAs": len(chosen) if len(chosen) > 1 else stages,
        "maxCPUs": 0,
        "maxSizePerFPGA": min(sizes),
        "overhead": max(min(row.overhead for row in each) for each in rows),
        "nodes": [
            _node(costs, i, [row[i] for row in times], colours) for i in range(len(costs.names))
        ],
        "edges": _edges(costs, kinds[0]),
    }
    if len(chosen) > 1:
        pairs = zip(names or chosen, sizes, strict=True)
        document["devices"] = [{"name": d, "speed": 1.0, "maxSize": size} for d, size in pairs]
    return document


def _single_rows(costs: CostModel, kind: str) -> list[RowCosts]:
    """The rows of a kind with fewest threads and the smallest batch."""
    rows = [row for row in costs.rows if row.row.kind == kind]
    least = min((row.row.threads, row.row.batch) for row in rows)
    return [row for row in rows if (row.row.threads, row.row.batch) == least]


def _node(
    costs: CostModel, i: int, times: Sequence[float], colours: Mapping[int, int]
) -> dict[str, Any]:
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


def _edges(costs: CostModel, kind: Kind) -> list[dict[str, Any]]:
    none = (0.0,) * len(costs.tensors)
    pairs = zip(kind.send or none, kind.receive or none, strict=True)
    by_source: dict[int, tuple[float, float, dict[int, None]]] = {}
    for tensor, cost in zip(costs.tensors, map(max, pairs), strict=True):
        if tensor.producer is not None:
            before, size, readers = by_source.get(tensor.producer, (0.0, 0.0, {}))
            readers |= dict.fromkeys(tensor.consumers)
            by_source[tensor.producer] = before + cost, size + tensor.bytes, readers
    edges = []
    for source, (cost, size, readers) in by_source.items():
        for reader in readers:
            ends = {"sourceId": costs.ids[source], "destId": costs.ids[reader]}
            edges.append({**ends, "cost": cost, "size": size})
    return edges
