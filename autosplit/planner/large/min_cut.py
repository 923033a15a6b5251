"""Minimum cuts of small networks: Dinic's algorithm (1970), breadth-first levels and blocking flows."""

from __future__ import annotations

from collections import deque

_TINY = 1e-12


class Network:
    """A flow network of numbered nodes; capacities are real and may be infinite."""

    def __init__(self, nodes: int) -> None:
        self.arcs: list[list[int]] = [[] for _ in range(nodes)]
        self.head: list[int] = []
        self.room: list[float] = []

    def add(self, tail: int, head: int, capacity: float) -> None:
        """An arc one way."""
        self.arcs[tail].append(len(self.head))
        self.arcs[head].append(len(self.head) + 1)
        self.head += [head, tail]
        self.room += [capacity, 0.0]

    def minimum_cut(self, source: int, sink: int) -> tuple[float, list[bool]]:
        """The capacity of a minimum cut and, for each node, whether it is on the source's side."""
        flow = 0.0
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return flow, [depth >= 0 for depth in level]
            flow += self._blocking(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.arcs)
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for arc in self.arcs[node]:
                head = self.head[arc]
                if level[head] < 0 and self.room[arc] > _TINY:
                    level[head] = level[node] + 1
                    queue.append(head)
        return level

    def _blocking(self, source: int, sink: int, level: list[int]) -> float:
        """Paths along rising levels until none is left; each node remembers the arc it goes on from."""
        head, room, total = self.head, self.room, 0.0
        place = [0] * len(self.arcs)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(room[arc] for arc in path)
                total += amount
                for arc in path:
                    room[arc] -= amount
                    room[arc ^ 1] += amount
                full = next(n for n, arc in enumerate(path) if room[arc] <= _TINY)
                node = head[path[full] ^ 1]
                del path[full:]
            arcs = self.arcs[node]
            while place[node] < len(arcs):
                arc = arcs[place[node]]
                if room[arc] > _TINY and level[head[arc]] == level[node] + 1:
                    path.append(arc)
                    node = head[arc]
                    break
                place[node] += 1
            else:
                if not path:
                    return total
                node = head[path.pop() ^ 1]
                place[node] += 1
