"""How much faster the planner's own bitset closure and minimum cut are than those of networkx.

  python -m studies.benchmarks.networkx_ratio [--repeat 5] [-o FILE]

Both compute the same on NASNet-like and parallel graphs: the ops that each op depends on, and the
minimum cuts between a first and a last op, of capacities from 1 to 9. Times are the least processor
times of a number of repeats, the building of the network included. Bar: each is faster.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from random import Random

import networkx as nx

from autosplit.cuts import bitset, closure, members
from autosplit.planner import CostModel
from autosplit.planner.large.min_cut import FlowNetwork
from studies.benchmarks.planner import cells, chains
from studies.benchmarks.result import arguments as parser_of
from studies.benchmarks.result import at_least, finish

COLUMNS = ("graph", "ops", "what", "own ms", "networkx ms", "ratio")
_Arcs = list[tuple[int, int, float]]
_Function = Callable[[], object]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    rows, ratios = [], []
    for costs in (cells(5), cells(20), chains(64, 10)):
        arcs = capacities(costs)
        pairs: dict[str, tuple[_Function, _Function]] = {
            "closures of all ops": (
                partial(closures, costs),
                partial(networkx_closures, costs, arcs),
            ),
            "minimum cut": (partial(minimum_cut, arcs), partial(networkx_minimum_cut, arcs)),
        }
        for name, (ours, theirs) in pairs.items():
            own_ms, own_result = timed(ours, args.repeat)
            their_ms, their_result = timed(theirs, args.repeat)
            if own_result != their_result:
                raise AssertionError(f"{name} of {costs.name}: {own_result} and {their_result}")
            ratios.append(their_ms / own_ms)
            cost = (f"{own_ms:.3f}", f"{their_ms:.3f}", f"{ratios[-1]:.1f}")
            rows.append((costs.name, len(costs.names), name, *cost))
    bar = at_least("least ratio, networkx to own", min(ratios), 1.0)
    return finish("networkx", COLUMNS, rows, bars=[bar], file=args.file)


def timed(function: _Function, repeat: int) -> tuple[float, object]:
    """The least processor time in ms, and the result."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        result = function()
        times.append((time.process_time() - start) * 1e3)
    return min(times), result


def capacities(costs: CostModel) -> _Arcs:
    """The edges of a graph with capacities, from a source before its first ops to a sink."""
    random, size = Random(0), len(costs.names)
    read = 0
    arcs: _Arcs = []
    for op, producers in enumerate(costs.predecessors):
        read |= producers
        tails = list(members(producers)) or [size]
        arcs += [(tail, op, float(random.randint(1, 9))) for tail in tails]
    last = [op for op in range(size) if not read >> op & 1]
    arcs += [(op, size + 1, float(random.randint(1, 9))) for op in last]
    return arcs


def closures(costs: CostModel) -> list[int]:
    return [closure(costs, 1 << op) for op in range(len(costs.names))]


def networkx_closures(costs: CostModel, arcs: _Arcs) -> list[int]:
    size = len(costs.names)
    graph = nx.DiGraph((tail, head) for tail, head, _ in arcs if max(tail, head) < size)
    graph.add_nodes_from(range(size))
    return [bitset({op, *nx.ancestors(graph, op)}) for op in range(size)]


def minimum_cut(arcs: _Arcs) -> float:
    nodes = 1 + max(max(tail, head) for tail, head, _ in arcs)
    network = FlowNetwork(nodes)
    for arc in arcs:
        network.add(*arc)
    return network.minimum_cut(nodes - 2, nodes - 1)[0]


def networkx_minimum_cut(arcs: _Arcs) -> float:
    nodes = 1 + max(max(tail, head) for tail, head, _ in arcs)
    graph = nx.DiGraph()
    for tail, head, capacity in arcs:
        graph.add_edge(tail, head, capacity=capacity)
    value: float = nx.minimum_cut_value(graph, nodes - 2, nodes - 1)
    return value


if __name__ == "__main__":
    sys.exit(main())
