"""Placements of least latency are those of all placements, tried one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import members
from autosplit.errors import SplitError
from autosplit.planner import CostModel, Transfer, least_latency_placement
from autosplit.planner.accelerators.block_path import improve_blocks
from autosplit.planner.accelerators.least_latency import improve_by_program
from autosplit.planner.accelerators.placement import evaluate_placement
from autosplit.report.documents import placement as plan
from tests.planner.strategies import models, with_serial_ops


def plain_latency(model: CostModel, cpu: list[float], places: tuple[int, ...]) -> float:
    """The latency of ops on accelerators, -1 for the CPU; infinite where it is none."""
    accelerators = sorted({place for place in places if place >= 0})
    done: dict[int, float] = {}
    while len(done) < len(places):
        before = len(done)
        for op, place in enumerate(places):
            producers = list(members(model.predecessors[op]))
            if place < 0 and op not in done and all(p in done for p in producers):
                done[op] = max((done[p] for p in producers), default=0.0) + cpu[op]
        for place in accelerators:
            ops = [op for op, other in enumerate(places) if other == place]
            needed = {p for op in ops for p in members(model.predecessors[op])} - {*ops}
            if ops[0] in done or not needed <= done.keys():
                continue
            row = place if len(model.times) > 1 else 0
            load, size = model.overheads[row] + sum(model.times[row][op] for op in ops), 0.0
            for t, tensor in enumerate(model.tensors):
                inside, reads = tensor.producer in ops, not {*ops}.isdisjoint(tensor.consumers)
                receives, sends = reads and not inside, inside and not {*ops} >= {*tensor.consumers}
                load += receives * model.receive[row][t] + sends * model.send[row][t]
                size += (receives + sends) * tensor.bytes * model.activations
            size += sum(model.sizes[op] for op in ops)
            if size > model.memory[min(place, len(model.memory) - 1)]:
                return math.inf
            start = max((done[p] for p in needed), default=0.0)
            done.update(dict.fromkeys(ops, start + load))
        if len(done) == before:
            return math.inf
    return max(done.values())


def keeps_groups(model: CostModel, places: tuple[int, ...]) -> bool:
    return all(len({places[op] for op in members(group)}) == 1 for group in model.groups)


def least_latency(model: CostModel, cpu: list[float], accelerators: int) -> float:
    """That of all placements."""
    every = product(range(-1, accelerators), repeat=len(cpu))
    possible = filter(lambda places: keeps_groups(model, places), every)
    return min(plain_latency(model, cpu, places) for places in possible)


@pytest.mark.integration
@given(st.data())
@settings(deadline=None, max_examples=150)
def test_the_least_latency_is_that_of_all_placements(data) -> None:
    devices = data.draw(st.sampled_from([1, 2]))
    flags = {name: data.draw(st.booleans()) for name in ("memory", "groups", "inputs")}
    model = data.draw(models(most=5, devices=devices, unsupported=True, **flags))
    model = data.draw(with_serial_ops(model))
    cpu = data.draw(st.lists(st.integers(1, 12).map(float), min_size=5, max_size=5))
    cpu = cpu[: len(model.names)]
    best = plan.placement(model, cpu, 2)
    least = least_latency(model, cpu, 2)
    assert best["latency"] == pytest.approx(least, rel=1e-5, abs=1e-5)
    assert best["lower_bound"] == pytest.approx(least, rel=1e-5, abs=1e-5)
    assert best["optimal"]
    parts = [*best["stages"], best["cpu"]]
    assert sorted(op for ops in parts for op in ops) == sorted(model.ids)


@pytest.mark.integration
@given(st.data())
@settings(deadline=None, max_examples=150)
def test_blocks_never_promise_more_than_the_best_of_all_placements(data) -> None:
    flags = {name: data.draw(st.booleans()) for name in ("memory", "groups", "inputs")}
    model = data.draw(with_serial_ops(data.draw(models(most=6, unsupported=True, **flags))))
    cpu = data.draw(st.lists(st.integers(1, 40).map(float), min_size=6, max_size=6))
    cpu = cpu[: len(model.names)]
    start = evaluate_placement(model, cpu, [()] * 2)
    best = improve_blocks(model, cpu, start, partial(improve_by_program, plan.Solver(None), 1.0))
    least = least_latency(model, cpu, 2)
    assert best.lower_bound <= least * (1 + 1e-5)
    assert best.latency >= least * (1 - 1e-5)
    assert not best.optimal or best.latency == pytest.approx(least, rel=1e-5)


TENSORS = (Transfer("a", 0, (1, 2)), Transfer("b", 1, (3,)), Transfer("c", 2, (3,)))
DIAMOND = CostModel(
    "diamond", ("a", "b", "c", "d"), (0, 1, 1, 6), ((1.0, 4.0, 4.0, 1.0),), TENSORS,
    ((0.5,) * 3,), ((0.5,) * 3,), sizes=(1.0,) * 4, memory=(2.0,),
)  # fmt: skip


def test_branches_run_beside_each_other() -> None:
    # The first op alone, both branches at once, the last op on the CPU: 1.5 + 5 + 2.
    best = plan.placement(DIAMOND, [9.0, 9.0, 9.0, 2.0], 3)
    assert best["optimal"]
    assert best["latency"] == pytest.approx(8.5)
    assert best["cpu"] == ["d"]
    assert plan.placement(DIAMOND, [0.5] * 4, 3)["cpu"] == ["a", "b", "c", "d"]


def diamonds(count: int, time: float) -> CostModel:
    """Diamonds one after the other, each with two ops of ``time`` between ops of 1."""
    predecessors, consumers = [0], [(1, 2)]
    for first in range(0, 3 * count, 3):
        predecessors += [1 << first, 1 << first, 0b110 << first]
        consumers += [(first + 3,), (first + 3,), (first + 4, first + 5)]
    names = tuple(f"op{op}" for op in range(3 * count + 1))
    tensors = tuple(Transfer(f"t{op}", op, consumers[op]) for op in range(3 * count))
    free = ((0.0,) * len(tensors),)
    times = (1.0, *(time, time, 1.0) * count)
    return CostModel("diamonds", names, tuple(predecessors), (times,), tensors, free, free)


@pytest.mark.parametrize(("accelerators", "shared"), [(1, 0), (3, 0), (4, 1), (6, 1), (7, 2)])
def test_blocks_in_series_are_solved_one_by_one(accelerators: int, shared: int) -> None:
    # To share a block takes one accelerator before it, one after it and two between.
    model = diamonds(9, 4.0)
    solver = plan.Solver(None)

    def solve(program, share):
        assert len(program.bounds) < 300  # of one block
        return solver(program, share)

    best = least_latency_placement(model, [100.0] * len(model.names), accelerators, solve)
    assert best.optimal
    assert best.latency == pytest.approx(10 + 9 * 8 - 4 * shared)


def test_a_group_is_not_torn_by_the_op_between_two_blocks() -> None:
    model, slow = diamonds(2, 4.0), [100.0] * 7
    assert plan.placement(model, slow, 7)["latency"] == pytest.approx(3 + 2 * 4)
    # The accelerator of the group has the op between, so nothing else runs beside it.
    together = replace(model, groups=(0b0010010,))
    assert plan.placement(together, slow, 7)["latency"] == pytest.approx(3 + 4 * 4)


@pytest.mark.parametrize("memory", [2.0, 3.0, 4.0])
def test_blocks_are_shared_within_the_memory_of_accelerators(memory: float) -> None:
    model = replace(diamonds(2, 4.0), sizes=(1.0,) * 7, memory=(memory,))
    best = plan.placement(model, [20.0] * 7, 3)
    assert best["optimal"]
    assert best["latency"] == pytest.approx(least_latency(model, [20.0] * 7, 3))
    assert max(best["memory"]) <= memory


def test_without_a_solver_the_cpu_may_take_stages_between_accelerators() -> None:
    # Accelerators have room for one op each, and the CPU is slow but for the op in the middle.
    tensors = Transfer("a", 0, (1,)), Transfer("b", 1, (2,))
    model = CostModel(
        "chain", ("a", "b", "c"), (0, 1, 2), ((1.0, 5.0, 1.0),), tensors, ((0.5,) * 2,),
        ((0.5,) * 2,), sizes=(1.0,) * 3, memory=(1.0,),
    )  # fmt: skip
    best = least_latency_placement(model, [9.0, 2.0, 9.0], 2, lambda program, share: None)
    assert best.accelerators == ((0,), (2,))
    assert best.cpu == (1,)
    assert best.latency == pytest.approx(1.5 + 2 + 1.5)


def test_a_program_that_the_solver_cannot_presolve_is_solved() -> None:
    tensors = (Transfer("a", 0, (2,)), Transfer("b", 1, (2,)), Transfer("c", 2, (3,)))
    model = CostModel(
        "numerics", ("a", "b", "c", "d"), (0, 0, 3, 4), ((2.0, 1.0, 0.0, 0.0),), tensors,
        ((0.0,) * 3,), ((0.25, 0.0, 0.0),),
    )  # fmt: skip
    best = plan.placement(model, [0.0, 2.0, 2.0, 0.0], 1)
    assert best["optimal"]
    assert best["latency"] == pytest.approx(1.25)


def test_accelerators_may_not_wait_for_each_other() -> None:
    with pytest.raises(SplitError, match="ops a, b, c, d wait for each other"):
        evaluate_placement(DIAMOND, [1.0] * 4, [(0, 3), (), ()])


def test_accelerators_without_load_do_not_wait_for_each_other() -> None:
    # Group 0, 3 reads of group 1, 2 and the other way round, so they need the CPU in between.
    crossed = CostModel(
        "crossed", ("a", "b", "c", "d"), (0, 1, 0, 4), ((0.0,) * 4,),
        (Transfer("a", 0, (1,)), Transfer("c", 2, (3,))), ((0.0,) * 2,), ((0.0,) * 2,),
        groups=(0b1001, 0b0110), sizes=(1.0,) * 4, memory=(2.0,),
    )  # fmt: skip
    best = plan.placement(crossed, [1.0] * 4, 2)
    assert best["lower_bound"] <= best["latency"] < math.inf
    assert best["cpu"]
