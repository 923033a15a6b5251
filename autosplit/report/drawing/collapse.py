"""Which fused ops share a box, so that a long graph becomes few boxes, each part of one stage.

The ops of a stage are layered by their longest path from the stage's start. Runs of layers become
bands, and the connected parts of a band become groups. Layers rise along every edge, so a path that
leaves a group never returns to it: the graph of groups is acyclic, and a cut runs between two
levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import networkx as nx

from autosplit.graph import FusedGraph


@dataclass(frozen=True)
class Group:
    """Ops of one stage drawn as one box; ``band`` counts the levels of its stage from 0."""

    stage: int
    band: int
    ops: tuple[int, ...]


def collapse(
    graph: FusedGraph, stages: Sequence[Sequence[int]], levels: int = 8, boxes: int = 4
) -> tuple[Group, ...]:
    """Groups in about ``levels`` bands in all, at least one a stage, of at most ``boxes`` groups.

    ``stages`` are a legal split of the graph. The layer at a cut keeps a band of its own if there
    are enough, so that the ops on both sides of a cut show.
    """
    # nodes in topological order become the indices of ops
    ops: Any = nx.convert_node_labels_to_integers(graph.to_networkx())
    layers = [list(nx.topological_generations(ops.subgraph(stage))) for stage in stages]
    bands = _share([len(of_stage) for of_stage in layers], levels)
    groups = []
    for stage, (of_stage, count) in enumerate(zip(layers, bands, strict=True)):
        bounds = _bounds(len(of_stage), count, stage == 0, stage == len(stages) - 1)
        for band, (start, end) in enumerate(pairwise(bounds)):
            of_band = ops.subgraph(chain.from_iterable(of_stage[start:end]))
            groups += [Group(stage, band, part) for part in _parts(of_band, boxes)]
    return tuple(groups)


def _share(depths: Sequence[int], levels: int) -> list[int]:
    """Levels a stage in proportion to its depth, at least one, by the method of D'Hondt."""
    bands = [min(1, depth) for depth in depths]
    while sum(bands) < levels:
        growing = [s for s, depth in enumerate(depths) if bands[s] < depth]
        if not growing:
            break
        bands[max(growing, key=lambda s: depths[s] / bands[s])] += 1
    return bands


def _bounds(depth: int, bands: int, is_first: bool, is_last: bool) -> list[int]:
    """Where the bands of a stage begin and end: one layer at each cut, evenly spread between."""
    if bands >= depth:
        return list(range(depth + 1))
    low = 0 if is_first or bands < 3 else 1
    high = depth if is_last or bands < 3 else depth - 1
    inner = bands - (low > 0) - (high < depth)
    spread = (low + round(k * (high - low) / inner) for k in range(inner + 1))
    return sorted({0, *spread, depth})


def _parts(ops: nx.DiGraph, boxes: int) -> list[tuple[int, ...]]:
    """The connected parts of a band, at most ``boxes``: the smallest are put together."""
    parts = [tuple(sorted(part)) for part in nx.weakly_connected_components(ops)]
    parts.sort()
    if len(parts) <= boxes:
        return parts
    parts.sort(key=len, reverse=True)
    return [*parts[: boxes - 1], tuple(sorted(chain.from_iterable(parts[boxes - 1 :])))]
