"""Which fused ops share a box: a long graph becomes few boxes, each one part of one stage.

A stage is laid out in layers (the longest way from the stage's start), runs of layers become bands, and the connected
parts of a band become groups. Layers rise along every edge, so a path that leaves a group never comes back to it: the
graph of groups has no cycle, and a cut runs between two columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autosplit.cuts.downsets import members
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
    """Groups in about ``columns`` bands altogether (at least one a stage), at most ``rows`` in a band.

    ``stages`` hold op indices, each op once, every edge forwards (what ``cuts_of`` accepts). The layer at a cut keeps a
    band of its own where there are enough, so that the ops on both sides of a cut show.
    """
    layers = [_layers(graph, ops) for ops in stages]
    bands = _share([len(own) for own in layers], columns)
    groups = []
    for stage, (own, count) in enumerate(zip(layers, bands, strict=True)):
        bounds = _bounds(graph, own, count, left=stage > 0, right=stage < len(layers) - 1)
        for band, (start, end) in enumerate(pairwise(bounds)):
            parts = _parts(graph, [i for layer in own[start:end] for i in layer])
            groups += [Group(stage, band, ops) for ops in _fewer(parts, rows)]
    return tuple(groups)


def _layers(graph: FusedGraph, ops: Sequence[int]) -> list[list[int]]:
    depth: dict[int, int] = {}
    for i in sorted(ops):
        depth[i] = 1 + max(
            (depth[p] for p in members(graph.predecessors[i]) if p in depth), default=-1
        )
    layers: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for i, layer in depth.items():
        layers[layer].append(i)
    return layers


def _share(depths: Sequence[int], columns: int) -> list[int]:
    """Columns a stage in proportion to its depth, by Jefferson's (D'Hondt's) method, at least one each."""
    bands = [min(1, depth) for depth in depths]
    while sum(bands) < columns:
        stage = max(
            range(len(depths)), key=lambda s: depths[s] / bands[s] if bands[s] < depths[s] else 0.0
        )
        if bands[stage] >= depths[stage]:
            break
        bands[stage] += 1
    return bands


def _bounds(
    graph: FusedGraph, layers: Sequence[Sequence[int]], bands: int, *, left: bool, right: bool
) -> list[int]:
    """Where the bands of a stage begin and end: evenly spread, moved to where the fewest tensors pass."""
    depth = len(layers)
    if bands >= depth:
        return list(range(depth + 1))
    low = 1 if left and bands >= 3 else 0
    high = depth - 1 if right and bands >= 3 else depth
    chosen = {0, low, high, depth}
    passing = _passing(graph, layers)
    inner = bands + 1 - len(chosen)
    for k in range(1, inner + 1):
        ideal, reach = low + (high - low) * k / (inner + 1), (high - low) / (inner + 1) / 2
        near = [b for b in range(1, depth) if b not in chosen and abs(b - ideal) <= max(reach, 1)]
        if near:
            chosen.add(min(near, key=lambda b: (passing[b], abs(b - ideal))))
    return sorted(chosen)


def _passing(graph: FusedGraph, layers: Sequence[Sequence[int]]) -> list[int]:
    """For each boundary the number of tensors made before it and read after it inside the stage."""
    place = {i: layer for layer, ops in enumerate(layers) for i in ops}
    change = [0] * (len(layers) + 2)
    for i, layer in place.items():
        for name in graph.ops[i].outputs:
            last = max(
                (place[c] for c in graph.tensors[name].consumers if c in place), default=layer
            )
            change[layer + 1] += 1
            change[last + 1] -= 1
    counts, running = [], 0
    for step in change:
        running += step
        counts.append(running)
    return counts


def _parts(graph: FusedGraph, ops: Sequence[int]) -> list[tuple[int, ...]]:
    parent = {i: i for i in ops}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i in ops:
        for p in members(graph.predecessors[i]):
            if p in parent:
                parent[root(i)] = root(p)
    parts: dict[int, list[int]] = {}
    for i in sorted(ops):
        parts.setdefault(root(i), []).append(i)
    return [tuple(part) for part in parts.values()]


def _fewer(parts: Sequence[tuple[int, ...]], rows: int) -> list[tuple[int, ...]]:
    """At most ``rows`` parts: the smallest are put together, which parts of one band allow (no edge joins them)."""
    if len(parts) <= rows:
        return list(parts)
    ordered = sorted(parts, key=len, reverse=True)
    return [*ordered[: rows - 1], tuple(sorted(i for part in ordered[rows - 1 :] for i in part))]
