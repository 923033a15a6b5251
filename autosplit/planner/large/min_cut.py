"""Minimum cuts of small networks: Dinic's algorithm (1970), breadth-first levels, blocking flows.

networkx has the same algorithm, about 20 times slower on networks of this size
(``studies/benchmarks/networkx_ratio.py``), and a bound solves thousands.
"""

from __future__ import annotations

from collections import deque

_TINY = 1e-12  # capacity that counts as used up


class FlowNetwork:
    """A flow network of numbered nodes; capacities are real and may be infinite."""

    def __init__(self, nodes: int) -> None:
        self.arcs: list[list[int]] = [[] for _ in range(nodes)]
        self.head: list[int] = []
        self.residual: list[float] = []

    def add(self, tail: int, head: int, capacity: float) -> None:
        """An arc one way."""
        # Arc n and its reverse n ^ 1 stand side by side.
        self.arcs[tail].append(len(self.head))
        self.arcs[head].append(len(self.head) + 1)
        self.head += [head, tail]
        self.residual += [capacity, 0.0]

    def minimum_cut(self, source: int, sink: int) -> tuple[float, list[bool]]:
        """The capacity of a minimum cut and, for each node, whether it is on the source's side."""
        flow = 0.0
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return flow, [depth >= 0 for depth in level]
            flow += self._blocking_flow(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        """Breadth-first distances from the source, -1 where it does not reach."""
        level = [-1] * len(self.arcs)
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for arc in self.arcs[node]:
                head = self.head[arc]
                if level[head] < 0 and self.residual[arc] > _TINY:
                    level[head] = level[node] + 1
                    queue.append(head)
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int]) -> float:
        """Augments paths along rising levels until none is left; returns the flow added."""
        head, residual, total = self.head, self.residual, 0.0
        # The next arc to try from each node: arcs before it lead nowhere any more.
        place = [0] * len(self.arcs)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(residual[arc] for arc in path)
                total += amount
                for arc in path:
                    residual[arc] -= amount
                    residual[arc ^ 1] += amount
                used_up = next(n for n, arc in enumerate(path) if residual[arc] <= _TINY)
                node = head[path[used_up] ^ 1]
                del path[used_up:]
            arcs = self.arcs[node]
            while place[node] < len(arcs):
                arc = arcs[place[node]]
                if residual[arc] > _TINY and level[head[arc]] == level[node] + 1:
                    path.append(arc)
                    node = head[arc]
                    break
                place[node] += 1
            else:
                if not path:
                    return total
                node = head[path.pop() ^ 1]
                place[node] += 1
