"""The paths through stored stages, best first, in order of period, then latency.

A* (Hart, Nilsson and Raphael 1968) with the least period and latency to go as bounds. Both are
exact or too low, so the paths come in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import numpy as np

from autosplit.planner.batch.network import Network
from autosplit.planner.partition.problem import Array

# Relative difference below which times count as equal: measured costs are no whole numbers, so
# sums of them depend on the order.
SAME = 1e-9


@dataclass(frozen=True)
class _Step:
    """One more node of a path; no path through it has less than ``rank``.

    ``rank``: period and latency, whole numbers of a unit. ``slowest`` and ``spent``: the period and
    latency up to here.
    """

    rank: tuple[float, float]
    node: int
    slowest: float
    spent: float


def best_first(network: Network) -> Iterator[tuple[int, ...]]:
    """What the nodes of each path stand for; paths equal to rounding come in no order."""
    period_to_go, latency_to_go = network.least_to_go(np.maximum), network.least_to_go(np.add)
    unit = max(SAME * float(period_to_go[0][0]), 1e-300)
    ticket = count()
    queue: list[tuple[float, float, int, int, tuple[int, ...], _Step, Iterator[_Step]]] = []

    # Only the most promising step from each path is queued; the next one follows when it is taken.
    def push(path: tuple[int, ...], steps: Iterator[_Step]) -> None:
        step = next(steps, None)
        if step is not None:
            heappush(queue, (*step.rank, -len(path), next(ticket), path, step, steps))

    push((), iter([_Step((0.0, 0.0), 0, 0.0, 0.0)]))
    while queue:
        *_, path, step, others = heappop(queue)
        push(path, others)
        path = (*path, step.node)
        if len(path) == len(network.nodes):
            yield tuple(int(nodes[n]) for nodes, n in zip(network.nodes, path, strict=True))
        else:
            layer = len(path)
            to_go = period_to_go[layer], latency_to_go[layer]
            push(path, _steps(network, layer - 1, step, to_go, unit))


def _steps(
    network: Network, stage: int, before: _Step, to_go: Sequence[Array], unit: float
) -> Iterator[_Step]:
    """The stages that may follow a cut, the most promising first."""
    arcs = network.arcs[stage]
    leaving = slice(arcs.starts[before.node], arcs.starts[before.node + 1])
    head, load = arcs.head[leaving], arcs.load[leaving]
    slowest, spent = np.maximum(before.slowest, load), before.spent + load
    period_to_go, latency_to_go = to_go
    # In whole units, so that periods equal to rounding are ordered by latency.
    period = np.rint(np.maximum(slowest, period_to_go[head]) / unit)
    latency = np.rint((spent + latency_to_go[head]) / unit)
    for n in np.lexsort((latency, period)):
        if period[n] == math.inf:
            return
        rank = float(period[n]), float(latency[n])
        yield _Step(rank, int(head[n]), float(slowest[n]), float(spent[n]))
