"""Replicas and threads as far as there are cores for them."""

from __future__ import annotations

from collections.abc import Sequence


def fit_to_cores(
    rows: list[int], replicas: list[int], shapes: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> None:
    """Take replicas and threads back where there are fewer cores.

    ``rows`` and ``replicas`` are those of each stage, ``shapes`` the threads and the kind of cores
    of a row, ``sizes`` the cores of each kind. Rows of a kind are next to each other, those of one
    thread first. There are no more stages than cores.
    """
    for stage, row in enumerate(rows):
        kinds = [shapes[other][1] for other in rows]
        if kinds.count(shapes[row][1]) > sizes[shapes[row][1]]:
            # Its kind has not a core for every stage, so another one has some left.
            emptiest = max(range(len(sizes)), key=lambda kind: sizes[kind] - kinds.count(kind))
            rows[stage], replicas[stage] = shapes.index((1, emptiest)), 1
    for kind, most in enumerate(sizes):
        while True:
            stages = zip(replicas, (shapes[row] for row in rows), strict=True)
            cores = [count * threads if k == kind else 0 for count, (threads, k) in stages]
            if sum(cores) <= most:
                break
            # The stage with the most gives one replica or threads back.
            largest = cores.index(max(cores))
            if replicas[largest] > 1:
                replicas[largest] -= 1
            else:
                rows[largest] -= 1
