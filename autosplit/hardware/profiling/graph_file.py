"""Graph files on disk: reading them, and writing a cost table as one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.cuts import members
from autosplit.errors import ConfigError, GraphError
from autosplit.files import open_regular
from autosplit.hardware.profiling.graph_document import from_document
from autosplit.planner import CostModel, Kind, RowCosts

GRAPH_LIMIT = 64_000_000  # bytes


@dataclass(frozen=True)
class GraphFile:
    """The cost table of a graph file, and its document for what else it says.

    ``devices``: the kind of each of its devices where they are unlike, else none; ``names``: how
    the file calls them, which is where their order is free.
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
        """``number``, or for "auto" the limit. Raises GraphError where there is none."""
        if number != "auto":
            return int(number)
        if self.limit is None:
            raise GraphError(
                f"{self.path}: maxFPGAs is {self.document.get('maxFPGAs')!r}, so --stages auto "
                "has no limit; give a number of stages"
            )
        return self.limit

    def device_note(self, stages: int) -> str:
        """What to say of more stages than the file has devices; empty for as many or fewer."""
        if self.limit is None or stages <= self.limit:
            return ""
        return f"{stages} stages are more than the {self.limit} devices of the file (maxFPGAs)"


def read_graph(path: Path) -> CostModel:
    """The cost table of a graph file. Raises GraphError where it is unreadable or malformed."""
    return read_graph_file(path).costs


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
        raise GraphError(
            f"{path}: is not JSON ({error}); see the format in the documentation"
        ) from error
    devices = tuple(kind.name for kind in costs.kinds if kind.name)
    names = tuple(device["name"] for device in document.get("devices") or ())
    return GraphFile(path, costs, devices, names, document)


def save_graph(
    path: Path,
    costs: CostModel,
    stages: int,
    devices: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """Write a graph file, see ``to_document``. Raises ConfigError where it cannot."""
    text = json.dumps(to_document(costs, stages, devices, names), indent=1, allow_nan=False)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); name another file"
        ) from error


def to_document(
    costs: CostModel, stages: int = 1, devices: Sequence[str] = (), names: Sequence[str] = ()
) -> dict[str, Any]:
    """A cost table as a graph file for up to ``stages`` stages.

    ``devices``: those of a pipeline, each a kind of the costs; unlike ones are written, each with
    its times, by ``names`` where they have others. The times are those of the fastest runtime with
    one thread. The format has one transfer cost per source node: an op's tensors become one edge
    cost, the sum of the larger of their send and receive costs on the first device. Model inputs
    and the memory of activations have no place in it.
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
