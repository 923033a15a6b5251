"""The lines of tensors beside a list of rows, as ``git log --graph`` draws branches.

A tensor keeps one lane from the row that makes it to the last row that reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class Way:
    """The lane of a tensor, the row that makes it, and the rows that read it, ascending."""

    tensor: str
    lane: int
    start: int
    readers: tuple[int, ...]


def lanes(rows: Sequence[tuple[Sequence[str], Sequence[str]]]) -> tuple[list[int], list[Way]]:
    """The lane of the node of each row, and the way of each tensor that a row reads.

    Each of ``rows`` has the tensors that it reads, and those that it makes.
    """
    readers: dict[str, list[int]] = {}
    for number, (reads, _) in enumerate(rows):
        for tensor in dict.fromkeys(reads):
            readers.setdefault(tensor, []).append(number)
    live: dict[str, int] = {}
    nodes, ways = [], []
    for number, (reads, makes) in enumerate(rows):
        ending = [t for t in dict.fromkeys(reads) if readers[t][-1] == number]
        # The leftmost lane that ends here goes on, so that a chain is one line.
        node = min([live.pop(t) for t in ending], default=_free(live.values()))
        nodes.append(node)
        for tensor in (t for t in makes if t in readers):
            lane = node if node not in live.values() else _free(live.values())
            live[tensor] = lane
            ways.append(Way(tensor, lane, number, tuple(readers[tensor])))
    return nodes, ways


def _free(taken: Collection[int]) -> int:
    return next(lane for lane in count() if lane not in taken)
