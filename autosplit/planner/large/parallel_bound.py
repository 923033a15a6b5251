"""A lower bound for blocks of many parallel ops, such as a mixture of experts.

Parallel ops that need the same ops, read the same tensors and have the same one reader have 2^n
subsets, but the load of a stage depends little on which of them it has. The bound treats the ops as
divisible. An op of time t whose result costs s to send and r to receive adds t + s, its mass, to
the load of its stage. On the stage of its reader it adds t and saves r, so that stage should have
the ops with the least share (t - r) / (t + s). It is therefore enough to sort the ops by falling
share and to cut this order into pieces of equal mass. Rounding a cut to whole pieces adds less than
a piece to the load of the stage after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from autosplit.cuts import TooManyDownsets, bitset, closures, members
from autosplit.planner.exact.downset_table import list_rows
from autosplit.planner.exact.search import search
from autosplit.planner.problem.constraints import FREE
from autosplit.planner.problem.cost_model import CostModel, Transfer
from autosplit.planner.problem.problem import Array, Deadline, Problem, pose
from autosplit.planner.problem.reductions import View

_FEWEST = 4  # parallel ops that are treated as a block
PIECES = 2400  # of all blocks together
_ROWS = 4000  # cuts listed at most


@dataclass(frozen=True)
class Block:
    """Parallel groups, and the tensor that each makes."""

    groups: tuple[int, ...]
    tensors: tuple[int, ...]


def parallel_bound(
    problem: Problem,
    low: float,
    high: float,
    deadline: Deadline | None = None,
    most_pieces: int = PIECES,
) -> float:
    """A proven bound of the period between ``low``, which is one, and ``high``."""
    blocks = parallel_blocks(problem)
    if not blocks or not low < high < math.inf:
        return low
    pieces = _pieces(problem, blocks, most_pieces)
    masses = [float(rows[:2, :1].sum()) for rows in pieces]
    if not any(masses):
        return low
    loss = _loss(problem, blocks, masses)
    costs = _Divisible(problem, blocks, pieces).costs()
    relaxed = pose(costs, problem.stages, FREE, allow_empty=True)
    try:
        rows = list_rows(relaxed.contraction.predecessors, _ROWS)
    except TooManyDownsets:
        return low
    result = search(relaxed, rows, None, deadline, proven=low, within=high + loss)
    return min(max(low, result.bound * (1 - 1e-9) - loss), high)


def parallel_blocks(problem: Problem) -> list[Block]:
    """The sets of groups that differ in nothing but costs, each with one result and one reader."""
    view, blocks = View(problem), dict[object, list[int]]()
    for group, makes in enumerate(view.makes):
        readers = view.successors[group]
        if len(makes) == len(readers) == 1 and readers == view.readers[makes[0]]:
            needs = problem.contraction.predecessors[group], tuple(view.reads[group])
            blocks.setdefault((needs, readers[0]), []).append(group)
    many = filter(lambda groups: len(groups) >= _FEWEST, blocks.values())
    return [Block(tuple(g), tuple(view.makes[group][0] for group in g)) for g in many]


def _pieces(problem: Problem, blocks: Sequence[Block], most_pieces: int) -> list[Array]:
    """For each block the pieces of its order: a row each of times, sends and receipts."""
    costs = []
    for block in blocks:
        groups, tensors = list(block.groups), list(block.tensors)
        tables = problem.times[:, groups], problem.send[:, tensors], problem.receive[:, tensors]
        # On unlike devices each cost is the least of them.
        rows = np.stack([table.min(axis=0) for table in tables])
        rows = rows[:, rows[0] + rows[1] > 0]
        costs.append(rows[:, np.argsort((rows[2] - rows[0]) / (rows[0] + rows[1]))])
    most = sum(float(rows[:2].sum()) for rows in costs) / most_pieces
    return [_divided(rows, most) for rows in costs]


def _divided(costs: Array, most: float) -> Array:
    """Ops in their order as pieces of equal mass, of ``most`` at most."""
    sums = np.concatenate([np.zeros((3, 1)), costs.cumsum(axis=1)], axis=1)
    mass = sums[0] + sums[1]
    count = math.ceil(mass[-1] / most) if most else 0
    ends = np.linspace(0, mass[-1], count + 1)
    return np.diff([np.interp(ends, mass, row) for row in sums], axis=1)


def _loss(problem: Problem, blocks: Sequence[Block], masses: Sequence[float]) -> float:
    """What rounding to whole pieces may add to a load: one of each block that a cut may divide."""
    below = closures(problem.contraction.predecessors)
    largest = 0.0
    for block, mass in zip(blocks, masses, strict=True):
        first, beside = block.groups[0], mass
        for other, other_mass in zip(blocks, masses, strict=True):
            # Of two blocks of which one needs the other a cut divides one at most.
            ordered = below[first] >> other.groups[0] | below[other.groups[0]] >> first
            beside += 0.0 if ordered & 1 else other_mass
        largest = max(largest, beside)
    return largest


class _Divisible:
    """The costs of a problem with each block as its pieces, one after the other."""

    def __init__(self, problem: Problem, blocks: Sequence[Block], pieces: Sequence[Array]) -> None:
        self.problem = problem
        self.ops_of: list[list[int]] = []  # for each group
        self.predecessors: list[int] = []
        self.times: list[float] = []
        self.tensors: list[Transfer] = []
        self.transfers: list[tuple[float, float]] = []
        first_of = {group: block.groups[0] for block in blocks for group in block.groups}
        firsts = [block.groups[0] for block in blocks]
        self._add_ops(first_of, dict(zip(firsts, pieces, strict=True)))
        self._add_tensors(blocks, pieces)

    def costs(self) -> CostModel:
        """The model: one device for all."""
        send, receive = zip(*self.transfers, strict=True)
        return CostModel(
            name=self.problem.costs.name,
            names=tuple(f"op{n}" for n in range(len(self.times))),
            predecessors=tuple(self.predecessors),
            times=(tuple(self.times),),
            tensors=tuple(self.tensors),
            send=(send,),
            receive=(receive,),
            overheads=(float(self.problem.overheads.min()),),
        )

    def _add_ops(self, first_of: Mapping[int, int], pieces_of: Mapping[int, Array]) -> None:
        """Add the ops of all groups; those of a block share its pieces."""
        for group, needs in enumerate(self.problem.contraction.predecessors):
            first = first_of.get(group, group)
            if first < group:
                self.ops_of.append(self.ops_of[first])
                continue
            before = bitset(chain.from_iterable(self.ops_of[p] for p in members(needs)))
            alone = self.problem.times[:, [group]].min(axis=0)
            times = pieces_of[group][0] if group in pieces_of else alone
            ops = range(len(self.times), len(self.times) + len(times))
            for op in ops:
                self.predecessors.append(before)
                before = 1 << op
            self.times += times.tolist()
            self.ops_of.append(list(ops))

    def _add_tensors(self, blocks: Sequence[Block], pieces: Sequence[Array]) -> None:
        """Add the tensors between groups, and one for each piece."""
        p = self.problem
        for t in set(range(len(p.producer))).difference(*(block.tensors for block in blocks)):
            maker = None if p.producer[t] < 0 else self.ops_of[p.producer[t]][0]
            self._add_tensor(t, maker, float(p.send[:, t].min()), float(p.receive[:, t].min()))
        for block, rows in zip(blocks, pieces, strict=True):
            for op, costs in zip(self.ops_of[block.groups[0]], rows[1:].T.tolist(), strict=True):
                self._add_tensor(block.tensors[0], op, *costs)

    def _add_tensor(self, like: int, maker: int | None, send: float, receive: float) -> None:
        """Add a tensor with the readers of one of the problem's."""
        readers = chain.from_iterable(self.ops_of[g] for g in members(self.problem.consumers[like]))
        name = f"t{len(self.tensors)}"
        self.tensors.append(Transfer(name, maker, tuple(dict.fromkeys(readers))))
        self.transfers.append((send, receive))
