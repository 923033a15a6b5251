"""The layers of a problem: which downsets may be the cut at each layer, and the stages between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autosplit.errors import Infeasible
from autosplit.planner.exact.downset_table import (
    Words,
    chunks,
    live_tensors,
    to_bits,
    to_int,
    to_words,
)
from autosplit.planner.exact.layered_search import Arcs, Network, collect_arcs
from autosplit.planner.exact.stage_loads import Block, Side, loads
from autosplit.planner.exact.windows import Windows
from autosplit.planner.problem.problem import Array, Deadline, Index, OutOfTime
from autosplit.planner.problem.scaling import ScaledProblem

MOST_ARCS = 2_000_000


class TooManyStages(Infeasible):
    """More stages lie within the limit than can be stored."""


class DownsetLayers:
    """The layers over one table of downsets; ``words`` must hold the empty and the full one."""

    def __init__(
        self, scaled: ScaledProblem, words: Words, deadline: Deadline | None = None
    ) -> None:
        self.scaled, self.problem, self.deadline = scaled, scaled.problem, deadline
        self.windows = Windows(scaled, words, deadline)
        self.words = self.windows.words
        self.every_flag = (1 << len(self.problem.required)) - 1

    def side(self, rows: Index, stage: int) -> Side:
        """Rows of the table as one end of a stage."""
        return Side(self.scaled, self.words[rows], stage)

    def blocks(self, stage: int, tails: Side, heads: Side, limit: float) -> Iterator[Block]:
        """The loads of a stage, block by block.

        Raises:
            OutOfTime: The deadline passed.
        """
        for block in loads(self.scaled, stage, tails, heads, limit):
            if self.deadline is not None and self.deadline():
                raise OutOfTime
            yield block

    def flags(self, rows: Index) -> NDArray[np.int64]:
        """Which required tensors are live at some rows, a bit each."""
        flags = np.zeros(len(rows), dtype=np.int64)
        if self.problem.required:
            words = self.words[rows]
            for part in chunks(words):
                live = live_tensors(self.problem, to_bits(words[part], self.problem.size)).live
                for bit, t in enumerate(self.problem.required):
                    flags[part] |= live[:, t].astype(np.int64) << bit
        return flags

    def idle(self, tails: Index, heads: Index) -> Index:
        """The places among ``tails`` of the cuts after which a stage may be empty."""
        stays = np.isin(tails, heads)
        if self.problem.empty_last:
            whole = to_words([self.problem.whole], self.problem.size)
            stays &= (self.words[tails] == whole).all(axis=1)
        return np.flatnonzero(stays)

    def cuts(self, rows: Sequence[int]) -> list[int]:
        """Rows as bitsets of groups."""
        return [to_int(self.words[row]) for row in rows]

    def network(self, limit: float) -> Network | None:
        """All stages within ``limit`` units that lie on a path; None where there is no path.

        A node is a row of the table with the required tensors that are separated up to there. The
        weights of the arcs are load, bytes moved and memory.

        Raises:
            TooManyStages: There are more than ``MOST_ARCS``.
            OutOfTime: The deadline passed.
        """
        window = self.windows.rows(limit)
        nodes, flags = [window[0]], np.zeros(len(window[0]), dtype=np.int64)
        every_arc: list[Arcs] = []
        for stage, heads in enumerate(window[1:]):
            stored = sum(len(arcs.tail) for arcs in every_arc)
            arcs = collect_arcs(
                self._stage_arcs(stage, nodes[-1], heads, limit, MOST_ARCS - stored),
                len(nodes[-1]),
                rows=3,
            )
            reached = flags[arcs.tail] | self.flags(heads)[arcs.head]
            # Paths to one cut that separated different tensors lead to different nodes.
            pairs = np.stack([heads[arcs.head], reached], axis=1)
            distinct, head = np.unique(pairs, axis=0, return_inverse=True)
            every_arc.append(Arcs(arcs.tail, head.reshape(-1), arcs.weights, arcs.tails))
            nodes.append(distinct[:, 0].astype(np.intp))
            flags = distinct[:, 1]
        complete = flags == self.every_flag
        return Network(nodes, _pruned(every_arc, complete)) if complete.any() else None

    def _stage_arcs(
        self, stage: int, tails: Index, heads: Index, limit: float, most: int
    ) -> Iterator[tuple[Index, Index, Array]]:
        for block in self.blocks(stage, self.side(tails, stage), self.side(heads, stage), limit):
            i, j = np.nonzero(block.load <= limit)
            most -= len(i)
            if most < 0:
                raise TooManyStages(
                    f"more than {MOST_ARCS} stages lie within the limit; use a smaller k"
                )
            weights = np.stack([block.load[i, j], block.bytes_moved(i, j), block.memory()[i, j]])
            yield block.left.start + i, block.right.start + j, weights
        if self.problem.allow_empty:
            tail = self.idle(tails, heads)
            yield tail, np.searchsorted(heads, tails[tail]), np.zeros((3, len(tail)))


def _pruned(every_arc: Sequence[Arcs], useful: NDArray[np.bool_]) -> list[Arcs]:
    """Only the arcs from which a ``useful`` node of the last layer is reached."""
    pruned = []
    for arcs in reversed(every_arc):
        arcs = arcs.keep(useful[arcs.head])
        pruned.append(arcs)
        # A node without arcs leads nowhere, so the layer before need not lead to it.
        useful = np.diff(arcs.starts) > 0
    return pruned[::-1]
