"""Placements of least latency are those of all placements, tried one by one."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.cuts import members
from autosplit.errors import SplitError
from autosplit.planner import CostModel, Transfer
from autosplit.planner.placement.accelerators import evaluate_placement
from autosplit.report.documents import placement as plan
from tests.planner.strategies import models


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


@pytest.mark.integration
@given(st.data())
@settings(deadline=None, max_examples=80)
def test_the_least_latency_is_that_of_all_placements(data) -> None:
    devices = data.draw(st.sampled_from([1, 2]))
    flags = {name: data.draw(st.booleans()) for name in ("memory", "groups", "inputs")}
    model = data.draw(models(most=5, devices=devices, unsupported=True, **flags))
    cpu = data.draw(st.lists(st.integers(1, 12).map(float), min_size=5, max_size=5))
    cpu = cpu[: len(model.names)]
    best = plan.placement(model, cpu, 2)
    all_places = filter(
        lambda places: keeps_groups(model, places), product((-1, 0, 1), repeat=len(cpu))
    )
    least = min(plain_latency(model, cpu, places) for places in all_places)
    assert best["latency"] == pytest.approx(least, rel=1e-5, abs=1e-5)
    assert best["lower_bound"] == pytest.approx(least, rel=1e-5, abs=1e-5)
    assert best["optimal"]
    parts = [*best["stages"], best["cpu"]]
    assert sorted(op for ops in parts for op in ops) == sorted(model.ids)


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
