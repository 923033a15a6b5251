"""Which fused ops share a box, so that a long graph becomes few boxes, each part of one stage.

The ops of a stage are layered by their longest path from the stage's start. Runs of layers become
bands, and the connected parts of a band become groups. Layers rise along every edge, so a path that
leaves a group never returns to it: the graph of groups is acyclic, and a cut runs between two
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import networkx as nx

from autosplit.graph import FusedGraph


@dataclass(frozen=True)
class Group:
    """Ops of one stage drawn as one box; ``band`` counts the columns of its stage from 0."""

    stage: int
    band: int
    ops: tuple[int, ...]


def collapse(
    graph: FusedGraph, stages: Sequence[Sequence[int]], columns: int = 8, rows: int = 5
) -> tuple[Group, ...]:
    """Groups in about ``columns`` bands in all, at least one a stage, of at most ``rows`` groups.

    ``stages`` are a legal split of the graph. The layer at a cut keeps a band of its own if there
    are enough, so that the ops on both sides of a cut show.
    """
    # nodes in topological order become the indices of ops
    ops: Any = nx.convert_node_labels_to_integers(graph.to_networkx())
    layers = [list(nx.topological_generations(ops.subgraph(stage))) for stage in stages]
    bands = _share([len(of_stage) for of_stage in layers], columns)
    groups = []
    for stage, (of_stage, count) in enumerate(zip(layers, bands, strict=True)):
        is_first, is_last = stage == 0, stage == len(stages) - 1
        bounds = _bounds(graph, of_stage, count, is_first, is_last)
        for band, (start, end) in enumerate(pairwise(bounds)):
            of_band = ops.subgraph(chain.from_iterable(of_stage[start:end]))
            groups += [Group(stage, band, part) for part in _parts(of_band, rows)]
    return tuple(groups)


def _share(depths: Sequence[int], columns: int) -> list[int]:
    """Columns a stage in proportion to its depth, at least one, by the method of D'Hondt."""
    bands = [min(1, depth) for depth in depths]
    while sum(bands) < columns:
        growing = [s for s, depth in enumerate(depths) if bands[s] < depth]
        if not growing:
            break
        bands[max(growing, key=lambda s: depths[s] / bands[s])] += 1
    return bands


def _bounds(
    graph: FusedGraph, layers: Sequence[Sequence[int]], bands: int, is_first: bool, is_last: bool
) -> list[int]:
    """Where the bands of a stage begin and end: evenly spread, moved to where few tensors pass."""
    depth = len(layers)
    if bands >= depth:
        return list(range(depth + 1))
    low = 0 if is_first or bands < 3 else 1
    high = depth if is_last or bands < 3 else depth - 1
    bounds = {0, low, high, depth}
    passing = list(_passing(graph, layers))
    inner = bands + 1 - len(bounds)
    step = (high - low) / (inner + 1)
    for k in range(1, inner + 1):
        ideal = low + step * k
        near = [b for b in range(1, depth) if abs(b - ideal) <= max(step / 2, 1)]
        free = [b for b in near if b not in bounds]
        if free:
            bounds.add(min(free, key=lambda b: (passing[b], abs(b - ideal))))
    return sorted(bounds)


def _passing(graph: FusedGraph, layers: Sequence[Sequence[int]]) -> Iterator[int]:
    """For each boundary, how many tensors are made before it and read after it in the stage."""
    layer_of = {i: layer for layer, ops in enumerate(layers) for i in ops}
    change = [0] * (len(layers) + 2)
    for i, layer in layer_of.items():
        for name in graph.ops[i].outputs:
            readers = [c for c in graph.tensors[name].consumers if c in layer_of]
            change[layer + 1] += 1
            change[max((layer_of[c] for c in readers), default=layer) + 1] -= 1
    return accumulate(change)


def _parts(ops: nx.DiGraph, rows: int) -> list[tuple[int, ...]]:
    """The connected parts of a band, at most ``rows``: the smallest are put together."""
    parts = [tuple(sorted(part)) for part in nx.weakly_connected_components(ops)]
    parts.sort()
    if len(parts) <= rows:
        return parts
    parts.sort(key=len, reverse=True)
    return [*parts[: rows - 1], tuple(sorted(chain.from_iterable(parts[rows - 1 :])))]
