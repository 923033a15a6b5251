"""Triton Model Analyzer's quick search, replayed on the goodputs of ``serving --exhaustive``.

Algorithm: docs/config_search.md of https://github.com/triton-inference-server/model_analyzer, and
``QuickRunConfigGenerator`` and ``Neighborhood`` of 1.58.0. It climbs from the smallest batch and
one instance over the table; runtime, threads and delay (0 by default) are fixed. Triton tries some
numbers of concurrent requests, and more for the best three; here each place has its goodput.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

Place = tuple[int, int]  # the index of a batch, and that of a number of instances
Grid = Mapping[Place, float]  # the goodput of each; 0 where the limit cannot be kept
NAME = re.compile(r"(.+), (\d+) (threads?|replicas)(?:, batch (\d+))?, 0 ms")  # not those by a hint
RADIUS, ENOUGH = 3, 3  # of a home's neighbourhood; places to measure there before a step
BOUNDS = (0.09, 0.3, 1.0)  # slopes beyond which a step is 1, 2 and 3 places long


def outcomes(net: str, goodputs: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """A line for each runtime and number of threads in the table of a net."""
    # Configurations that cannot be the best were not run under load, and count as predicted.
    rates = {name: rate or min(most, over) for name, (most, rate, over) in goodputs.items()}
    for (runtime, threads), grid in grids(rates).items():
        measured = quick_search(grid)
        share = max(grid[place] for place in measured) / max(rates.values())
        counts = f"{len(measured)} of {len(grid)} configurations, then {share:.3f} of the best"
        yield f"{net}: Triton's quick search in {runtime}, threads {threads}: {counts}"


def grids(rates: Mapping[str, float]) -> dict[tuple[str, int], Grid]:
    """The rates without delays, by runtime and threads of an instance."""
    tables = dict[tuple[str, int], dict[tuple[int, int], float]]()
    for name, rate in rates.items():
        if match := NAME.fullmatch(name):
            runtime, count, what, size = match.groups()
            threads, instances = (1, int(count)) if what == "replicas" else (int(count), 1)
            tables.setdefault((runtime, threads), {})[int(size or 1), instances] = rate
    results: dict[tuple[str, int], Grid] = {}
    for key, table in tables.items():
        sizes, counts = (sorted(set(numbers)) for numbers in zip(*table, strict=True))
        places = {(i, j): (sizes[i], counts[j]) for i, j in np.ndindex(len(sizes), len(counts))}
        results[key] = {place: table.get(values, 0.0) for place, values in places.items()}
    return results


def quick_search(grid: Grid) -> list[Place]:
    """The places that are measured, in their order."""
    home = place = (0, 0)
    homes, measured, is_back = Counter[Place](), dict[Place, float](), False
    while True:
        measured[place] = grid[place]
        best = max(measured, key=grid.__getitem__)
        near = [p for p in grid if math.dist(p, home) <= RADIUS]
        near.sort(key=lambda p: (abs(p[0] - home[0]), abs(p[1] - home[1]), p < home))
        others = [p for p in near if p in measured and p != home]
        # If some places keep the limit and some do not, a step only goes to the best place nearby.
        is_slow = is_back or any((grid[p] > 0) != (grid[home] > 0) for p in others)
        left = [p for p in near if p not in measured and (not is_slow or math.dist(p, home) == 1)]
        if place == home and grid[best] > grid[home] == 0:
            following, is_back = min(near, key=lambda p: math.dist(p, best)), True
        elif is_slow and not left:
            following, is_back = max([home, *others], key=grid.__getitem__), False
        elif not is_slow and len(others) >= ENOUGH:
            following, is_back = stepped(grid, home, others), False
        elif left:  # the place with the most coordinates that no measured place has
            batches, instances = {p[0] for p in others}, {p[1] for p in others}
            place = max(left, key=lambda p: (p[0] not in batches) + (p[1] not in instances))
            continue
        else:
            return list(measured)
        if following == home or (homes[following] > 1 and not is_back):
            return list(measured)
        homes[following] += 1
        home = place = following


def stepped(grid: Grid, home: Place, others: Sequence[Place]) -> Place:
    """The next home: in each dimension the slope, the mean gain per place, sets the distance."""
    ways, own, rates = np.array(others) - home, grid[home], np.array([grid[p] for p in others])
    gains = 2 * (rates - own) / np.maximum(rates + own, 1e-9)
    slopes = gains @ np.sign(ways) / np.maximum(1, abs(ways).sum(axis=0))
    lengths = np.greater.outer(abs(slopes), BOUNDS).sum(axis=1)
    batch, instances = np.clip(home + np.sign(slopes) * lengths, 0, max(grid)).astype(int).tolist()
    return batch, instances
