"""Counters of a server in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Histogram:
    """How many values were at most as large as each of some bounds, and their sum."""

    def __init__(self, name: str, about: str, bounds: tuple[float, ...]) -> None:
        self._name, self._about, self._bounds = name, about, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def text(self) -> str:
        """The histogram as lines of text."""
        lines, total = _head(self._name, self._about, "histogram"), 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{self._name}_bucket{{le="{bound}"}} {total}')
        return "\n".join([*lines, f"{self._name}_sum {self._sum}", f"{self._name}_count {total}\n"])


class Metrics:
    """The metrics of a server; ``inside`` is the number of items that are being computed."""

    def __init__(self) -> None:
        self.inside = 0
        self.answers = Counter[int]()
        self.batch = Histogram("autosplit_batch_size", "Items that were computed together", SIZES)
        self.queue = Histogram("autosplit_queue_seconds", "Time before the first stage", SECONDS)
        self.compute = Histogram("autosplit_compute_seconds", "Time in the stages", SECONDS)

    def text(self) -> str:
        """All metrics, as /metrics returns them."""
        name = "autosplit_requests_total"
        lines = _head(name, "Requests for inference by their status", "counter")
        lines += [f'{name}{{code="{code}"}} {n}' for code, n in sorted(self.answers.items())]
        lines += _head("autosplit_items_inside", "Items that are being computed", "gauge")
        lines.append(f"autosplit_items_inside {self.inside}\n")
        return "\n".join(lines) + self.batch.text() + self.queue.text() + self.compute.text()


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {name} {about}.", f"# TYPE {name} {kind}"]
