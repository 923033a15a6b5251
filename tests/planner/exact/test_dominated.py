"""Cuts that are left out because another one replaces them."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import SplitError
from autosplit.planner import FREE, Constraints, CostModel, Transfer
from autosplit.planner.exact.dominated import undominated
from autosplit.planner.exact.downset_layers import DownsetLayers
from autosplit.planner.exact.downset_table import list_rows
from autosplit.planner.problem.problem import pose
from autosplit.planner.problem.scaling import scale

STAGES = 3
COST = st.integers(0, 2).map(float)  # few, so that many splits are alike


@st.composite
def two_blocks(draw):
    """Two blocks of parallel ops between single ones, with transfers and one more tensor."""
    width = draw(st.integers(2, 3))
    middle, last = width + 1, 2 * width + 2
    tensors = []
    for source, target in ((0, middle), (middle, last)):
        inner = range(source + 1, target)
        tensors += [(source, tuple(inner)), *((i, (target,)) for i in inner)]
    source = draw(st.integers(0, last - 1))
    readers = draw(st.sets(st.integers(source + 1, last), min_size=1, max_size=2))
    tensors.append((source, tuple(sorted(readers))))
    predecessors = [0] * (last + 1)
    for producer, consumers in tensors:
        for reader in consumers:
            predecessors[reader] |= 1 << producer
    devices = draw(st.sampled_from([1, STAGES]))

    def table(columns):
        row = st.lists(COST, min_size=columns, max_size=columns).map(tuple)
        return tuple(draw(st.lists(row, min_size=devices, max_size=devices)))

    return CostModel(
        name="two blocks",
        names=tuple(f"op{i}" for i in range(last + 1)),
        predecessors=tuple(predecessors),
        times=table(last + 1),
        tensors=tuple(Transfer(f"t{n}", *t, draw(COST)) for n, t in enumerate(tensors)),
        send=table(len(tensors)),
        receive=table(len(tensors)),
        overheads=table(1)[0],
    )


def layers_of(costs, stages, allow_empty=False, pins=FREE):
    """The layers of a problem, and the largest limit."""
    problem = pose(costs, stages, pins, allow_empty=allow_empty)
    scaled = scale(problem, math.inf)
    rows = list_rows(problem.contraction.predecessors, 1000)
    return DownsetLayers(scaled, rows), scaled.limit


def best_rank(problem, layers, limit):
    """The least rank of a split through some rows of the layers."""
    ranks = []
    for rows in product(*layers):
        try:
            ranks.append(problem.plan(rows).rank)
        except SplitError:
            continue
    return min((rank for rank in ranks if rank[0] <= limit), default=None)


@pytest.mark.integration
@settings(max_examples=60, deadline=None)
@given(two_blocks(), st.booleans(), st.booleans(), st.sampled_from([1.0, 1.2, 2.0]))
def test_some_best_split_is_left(costs, pinned, allow_empty, factor):
    middle, last = len(costs.names) // 2, len(costs.names) - 1
    pins = Constraints(stages={"op0": 0, f"op{middle}": 1, f"op{last}": 2}) if pinned else FREE
    layers, top = layers_of(costs, STAGES, allow_empty, pins)
    problem, scaled = layers.problem, layers.scaled
    every_row = [layers.cuts(rows) for rows in layers.windows.rows(top)[1:-1]]
    best = best_rank(problem, every_row, math.inf)
    limit = best[0] * factor
    left = undominated(layers, min(limit / scaled.unit + scaled.rounding, top), few=0)
    assert best_rank(problem, map(layers.cuts, left[1:-1]), limit) == best


def test_of_parallel_ops_only_some_subsets_are_left():
    costs = CostModel(
        name="experts",
        names=("in", *(f"expert {i}" for i in range(9)), "out"),
        predecessors=(0, *[1] * 9, 2**10 - 2),
        times=(tuple(float(i % 5 + 1) for i in range(11)),),
    )
    layers, limit = layers_of(costs, 2)
    assert len(layers.windows.rows(limit)[1]) == 512
    # One subset for each time that subsets have.
    assert len(undominated(layers, limit, few=0)[1]) < 40
    assert len(undominated(layers, limit / 2, few=0)[1]) < 40


def test_of_equal_cuts_the_one_that_moves_fewest_bytes_is_left():
    costs = CostModel(
        name="a, b",
        names=("in", "a", "b", "out"),
        predecessors=(0, 1, 1, 6),
        times=((1.0, 1.0, 1.0, 1.0),),
        tensors=(Transfer("a", 1, (3,), 5.0), Transfer("b", 2, (3,), 1.0)),
    )
    layers, limit = layers_of(costs, 2)
    left = layers.cuts(undominated(layers, limit, few=0)[1])
    assert 0b101 in left
    assert 0b011 not in left


def test_memory_keeps_every_cut():
    costs = CostModel(
        name="a, b",
        names=("a", "b", "c"),
        predecessors=(0, 0, 0),
        times=((1.0, 1.0, 1.0),),
        sizes=(1.0, 2.0, 3.0),
        memory=(4.0,),
    )
    layers, limit = layers_of(costs, 2)
    assert len(undominated(layers, limit, few=0)[1]) == len(layers.windows.rows(limit)[1])


def test_an_empty_stage_is_not_replaced():
    costs = CostModel(
        name="a -> b",
        names=("a", "b"),
        predecessors=(0, 1),
        times=((0.0, 9.0), (1.0, 9.0)),
        overheads=(5.0, 5.0),
    )
    layers, limit = layers_of(costs, 2, allow_empty=True)
    # The cut after a saves the second stage a's time and costs the first its overhead.
    assert layers.cuts(undominated(layers, limit, few=0)[1])[0] == 0
