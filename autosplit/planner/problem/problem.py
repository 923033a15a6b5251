"""The question a search answers: costs of contracted groups as arrays, for K stages under constraints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import Contraction, bitset, members
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.problem.constraint_groups import levels, limited, required
from autosplit.planner.problem.constraints import Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan, evaluate_cuts, value

Array = NDArray[np.float64]
Deadline = Callable[[], bool]
_UNITS = 2.0**50  # all costs together, in units: sums of them are exact in double precision


class OutOfTime(Exception):
    """The deadline passed; it never leaves the planner. ``bound``: what was proven by then."""

    bound = 0.0


@dataclass(frozen=True)
class Problem:
    """``costs`` for ``stages`` stages, contracted to n groups and t tensors between groups (a row a device, or one for
    all).

    ``times``: devices x n, infinite where unsupported; ``send``, ``receive``: devices x t; ``sizes``: n bytes;
    ``bytes``: t; ``number``: how many tensors of the graph each of the t stands for; ``producer``: group or -1 for a
    model input; ``consumers``: bitsets of groups; ``inside`` and ``outside``: per level 0..K the groups a cut there
    must, must not hold; ``required``: indices of tensors that some cut must separate; ``empty_last``: of the splits that
    differ only in which stages are empty, list the one whose empty stages come last.
    """

    costs: CostModel
    stages: int
    allow_empty: bool
    contraction: Contraction
    times: Array
    send: Array
    receive: Array
    sizes: Array
    bytes: Array
    number: Array
    producer: tuple[int, ...]
    consumers: tuple[int, ...]
    overheads: Array
    memory: Array
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    required: tuple[int, ...]
    live_tensors: float
    live_bytes: float
    empty_last: bool = False

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.contraction.groups)

    @property
    def uniform(self) -> bool:
        """Whether all devices cost the same."""
        return len(self.times) == len(self.send) == len(self.receive) == len(self.overheads) == 1

    @cached_property
    def reader_index(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The consumers of all tensors one after the other, and where each tensor's begin."""
        lists = [list(members(c)) for c in self.consumers]
        starts = np.cumsum([0, *map(len, lists)])[:-1]
        return np.array([c for group in lists for c in group], dtype=np.intp), starts.astype(
            np.intp
        )

    @cached_property
    def readers(self) -> NDArray[np.int64]:
        """The number of consumers of each tensor."""
        return np.array([c.bit_count() for c in self.consumers], dtype=np.int64)

    def plan(self, cuts: tuple[int, ...]) -> Plan:
        """The split at nested bitsets of groups, measured by the reference arithmetic."""
        if self.empty_last:
            whole = (1 << self.size) - 1
            inner = [c for c in dict.fromkeys(cuts) if 0 < c < whole]
            cuts = (*inner, *[whole] * (self.stages - 1 - len(inner)))
        return evaluate_cuts(
            self.costs, [self.contraction.expand(c) for c in cuts], allow_empty=self.allow_empty
        )

    def at(self, rows: Array, device: int) -> Array:
        """The row of a device."""
        found: Array = rows[device if len(rows) > 1 else 0]
        return found


@dataclass(frozen=True)
class Scaled:
    """Costs of a Problem as whole numbers of ``unit``; those too large for a load up to ``limit`` are cut down to that.

    Whole numbers below 2**53 add exactly in double precision, in whatever order, so equal loads compare equal.
    """

    problem: Problem
    unit: float
    limit: float
    times: Array
    send: Array
    receive: Array
    overheads: Array

    @property
    def rounding(self) -> float:
        """By how many units a load may differ from its exact value."""
        return _rounding(self.problem)

    @property
    def top(self) -> float:
        """The limit in the model's unit of time; no finite load exceeds it where none was given."""
        return self.limit * self.unit


def pose(
    costs: CostModel, stages: int, constraints: Constraints, *, allow_empty: bool = False
) -> Problem:
    """The contracted problem. Raises ConfigError for bad words, Infeasible where too few groups are left."""
    if stages < 1:
        raise ConfigError(f"{stages} stages asked for; ask for at least 1")
    if costs.devices not in (None, stages):
        raise ConfigError(f"{stages} stages on {costs.devices} devices; ask for one stage a device")
    costs = limited(costs, stages, constraints)
    contraction = costs.contraction
    n = len(contraction.groups)
    if n < stages and not allow_empty:
        raise Infeasible(
            f"{stages} stages asked for, but only {n} groups of ops can be apart; ask for at most {n} stages"
        )
    group_of = contraction.group_of()
    tensors, names = _tensors(costs, group_of)
    index = [[t for t, _ in kept] for kept in tensors.values()]
    inside, outside = levels(costs, group_of, stages, constraints, n)
    return Problem(
        costs=costs,
        stages=stages,
        allow_empty=allow_empty,
        contraction=contraction,
        times=np.array(
            [[sum(r[i] for i in members(g)) for g in contraction.groups] for r in costs.times]
        ).reshape(-1, n),
        send=_summed(costs.send, index)
        * (np.array([p for p, _ in tensors], dtype=int) >= 0),  # nobody sends an input
        receive=_summed(costs.receive, index),
        sizes=np.array([sum(costs.sizes[i] for i in members(g)) for g in contraction.groups]),
        bytes=np.array([sum(costs.tensors[t].bytes for t in ts) for ts in index], dtype=float),
        number=np.array(
            [sum(costs.tensors[t].producer is not None for t in ts) for ts in index], dtype=float
        ),
        producer=tuple(p for p, _ in tensors),
        consumers=tuple(c for _, c in tensors),
        overheads=np.array(costs.overheads),
        memory=np.array([value(costs.memory, d) for d in range(stages)]),
        inside=inside,
        outside=outside,
        required=required(constraints, names),
        live_tensors=math.inf if constraints.live_tensors is None else constraints.live_tensors,
        live_bytes=math.inf if constraints.live_bytes is None else constraints.live_bytes,
    )


def scale(problem: Problem, limit: float) -> Scaled:
    """Whole-number costs that are exact for loads up to ``limit``; infinite for no limit."""
    finite = [a[np.isfinite(a)].sum() for a in (problem.times, problem.overheads, problem.send)]
    most = float(sum(finite) + (problem.receive * problem.readers).sum())
    if not limit < most:
        limit = most
    big = 2 * limit if limit > 0 else 1.0
    clipped = [
        np.minimum(a, big)
        for a in (problem.times, problem.send, problem.receive, problem.overheads)
    ]
    total = (
        sum(a.max(axis=0).sum() for a in clipped[:2])
        + (clipped[2].max(axis=0) * problem.readers).sum()
    )
    most = float(total + problem.stages * clipped[3].max())
    unit = 1.0
    if most > 0:  # a power of two: whole costs stay exact
        unit = 2.0 ** max(
            math.ceil(math.log2(most) - math.log2(_UNITS)), int(np.finfo(float).minexp)
        )
    times, send, receive, overheads = (np.rint(a / unit) for a in clipped)
    return Scaled(problem, unit, limit / unit + _rounding(problem), times, send, receive, overheads)


def _rounding(problem: Problem) -> float:
    return problem.size + 2.0 * len(problem.producer) + 2


def _tensors(
    costs: CostModel, group_of: tuple[int, ...]
) -> tuple[dict[tuple[int, int], list[tuple[int, str]]], dict[str, int | None]]:
    """Tensors that leave their group by (producer, consumers), and for each name which of them it is."""
    kept: dict[tuple[int, int], list[tuple[int, str]]] = {}
    names: dict[str, int | None] = {}
    for t, tensor in enumerate(costs.tensors):
        producer = -1 if tensor.producer is None else group_of[tensor.producer]
        consumers = bitset({group_of[c] for c in tensor.consumers} - {producer})
        if tensor.producer is not None:
            names[tensor.name] = None
        if consumers:
            kept.setdefault((producer, consumers), []).append((t, tensor.name))
    for i, group in enumerate(kept.values()):
        names.update((name, i) for _, name in group if name in names)
    return kept, names


def _summed(table: tuple[tuple[float, ...], ...], index: list[list[int]]) -> Array:
    return np.array([[sum(r[t] for t in ts) for ts in index] for r in table], dtype=float).reshape(
        len(table), len(index)
    )
