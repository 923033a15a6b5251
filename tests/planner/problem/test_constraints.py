import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import ConfigError, Infeasible
from autosplit.planner import Constraints, CostModel, Transfer, k_best, plan
from autosplit.planner.problem.problem import pose
from tests.planner.graphs import parallel_chains
from tests.planner.reference import brute_force, model_cost
from tests.planner.strategies import questions

CHAIN = parallel_chains(1, 6)
FORK = parallel_chains(2, 4)


def test_what_a_pinned_op_reads_lies_before_the_same_cuts_and_its_readers_after_them():
    problem = pose(CHAIN, 3, Constraints(stages={"op3": 1}))
    assert problem.inside == (0, 0, 0b1111, 0b111111)
    assert problem.outside == (0b111111, 0b111000, 0, 0)


@st.composite
def constrained(draw):
    model, stages, allow_empty = draw(questions())
    op = st.sampled_from(model.names)
    names = [t.name for t in model.tensors if t.producer is not None]
    some = st.lists(st.sampled_from(names), max_size=1) if names else st.just([])
    number = st.one_of(st.none(), st.integers(0, 4))
    return (
        replace(model, memory=(math.inf,)),
        stages,
        allow_empty,
        Constraints(
            keep_together=draw(st.lists(st.lists(op, min_size=2, max_size=2), max_size=1)),
            stages=draw(st.dictionaries(op, st.integers(0, stages - 1), max_size=1)),
            devices=draw(st.dictionaries(op, st.integers(0, stages - 1), max_size=1)),
            forbid=draw(some),
            require=draw(some),
            live_tensors=draw(number),
            live_bytes=draw(st.one_of(st.none(), st.integers(0, 20))),
            memory=draw(st.sampled_from([(math.inf,), (30.0,)])),
        ),
    )


def accepts(model, constraints):
    """Whether stages satisfy the constraints, checked one by one."""
    tensors, index = {t.name: t for t in model.tensors}, model.index

    def crosses(tensor, where, cut):
        return tensor.producer is not None and where[tensor.producer] < cut <= max(
            where[c] for c in tensor.consumers
        )

    def accept(stages):
        where = {i: s for s, ops in enumerate(stages) for i in ops}
        pins = [*constraints.stages.items(), *constraints.devices.items()]
        ends = [
            {where[tensors[n].producer], *(where[c] for c in tensors[n].consumers)}
            for n in constraints.forbid
        ]
        cuts = range(1, len(stages))
        live = [[t for t in model.tensors if crosses(t, where, cut)] for cut in cuts]
        return (
            all(len({where[index[op]] for op in group}) == 1 for group in constraints.keep_together)
            and all(where[index[op]] == s for op, s in pins)
            and all(len(stages_met) == 1 for stages_met in ends)
            and all(
                any(crosses(tensors[n], where, cut) for cut in cuts) for n in constraints.require
            )
            and all(
                len(ts) <= (constraints.live_tensors or 0)
                for ts in live
                if constraints.live_tensors is not None
            )
            and all(
                sum(t.bytes for t in ts) <= constraints.live_bytes
                for ts in live
                if constraints.live_bytes is not None
            )
            and all(used <= constraints.memory[0] for used in model_cost(model, stages)[3])
        )

    return accept


@given(constrained())
@settings(deadline=None, max_examples=100)
def test_constrained_plans_are_the_best_of_the_splits_that_satisfy_all(question):
    model, stages, allow_empty, constraints = question
    best = brute_force(model, stages, allow_empty, accepts(model, constraints))
    try:
        plans = k_best(model, stages, 10, allow_empty=allow_empty, constraints=constraints)
    except Infeasible:
        assert not best
        return
    assert [(p.period, p.latency, p.bytes_moved) for p in plans] == [
        tuple(map(float, b[:3])) for b in best[:10]
    ]


def test_a_pin_moves_the_cut():
    assert plan(CHAIN, 2, constraints=Constraints(stages={"op1": 1})).stages == (
        (0,),
        (1, 2, 3, 4, 5),
    )


def test_a_required_and_a_forbidden_cut():
    assert plan(CHAIN, 2, constraints=Constraints(require=["t3"])).stages == ((0, 1, 2, 3), (4, 5))
    others = [f"t{i}" for i in range(5) if i != 0]
    assert plan(CHAIN, 2, constraints=Constraints(forbid=others)).stages == ((0,), (1, 2, 3, 4, 5))


def test_with_no_live_tensor_chains_stay_whole():
    plans = k_best(FORK, 2, 50, constraints=Constraints(live_tensors=0))
    assert {p.stages for p in plans} == {((0, 1, 2, 3), (4, 5, 6, 7)), ((4, 5, 6, 7), (0, 1, 2, 3))}


@pytest.mark.parametrize(
    ("constraints", "named"),
    [
        (
            Constraints(keep_together=[["op0", "op5"]], stages={"op2": 1, "op0": 0}),
            ["'op0', 'op5' together"],
        ),
        (Constraints(stages={"op4": 0, "op1": 1}), ["op 'op4' on stage 0", "op 'op1' on stage 1"]),
        (
            Constraints(forbid=["t2"], require=["t2"], live_tensors=3),
            ["no cut at tensor 't2'", "a cut at tensor 't2'"],
        ),
        (Constraints(live_tensors=0, forbid=["t1"]), ["0 live tensors"]),
        (Constraints(live_bytes=0.5, stages={"op5": 1}), ["0.5 live bytes"]),
        (
            Constraints(stages={"op4": 0, "op1": 1, "op5": 1}),
            ["op 'op4' on stage 0", "op 'op1' on stage 1"],
        ),
        (
            Constraints(devices={"op4": 0, "op1": 1, "op5": 1}),
            ["op 'op4' on device 0", "op 'op1' on device 1"],
        ),
        (
            Constraints(keep_together=[["op0", "op2"], ["op2", "op5"], ["op3", "op4"]]),
            ["'op0', 'op2'", "'op2', 'op5'"],
        ),
        (
            Constraints(forbid=[f"t{i}" for i in range(5)], live_tensors=3),
            [f"no cut at tensor 't{i}'" for i in range(5)],
        ),
        (Constraints(require=["t1", "t3", "t0"]), ["a cut at tensor 't3'", "a cut at tensor 't0'"]),
    ],
)
def test_a_clash_names_the_conditions_that_clash_and_no_others(constraints, named):
    with pytest.raises(Infeasible) as error:
        plan(CHAIN, 2, constraints=constraints)
    listed = str(error.value).split("remove one: ")[1].split("; ")
    assert len(listed) == len(named), listed
    assert all(any(name in text for text in listed) for name in named)


@pytest.mark.parametrize("limits", [(25.0,), (5.0, math.inf)])
def test_a_limit_of_memory_that_clashes_is_named(limits):
    model = replace(CHAIN, sizes=(10.0,) * 6)
    with pytest.raises(Infeasible, match=r"remove one: at most .* memory of a device"):
        plan(model, 2, constraints=Constraints(memory=limits))
    with pytest.raises(Infeasible, match=r"remove one: the graph's .* bytes of memory a device"):
        plan(replace(model, memory=limits), 2)


def test_slow_splits_are_listed_where_only_they_make_a_required_cut():
    plans = k_best(CHAIN, 3, 4, constraints=Constraints(require=["t4"]))
    assert {p.stages[2] for p in plans} == {(5,)}
    assert len(plans) == 4


def test_each_of_two_tensors_between_the_same_ops_can_be_required():
    transfers = (Transfer("t", 0, (1,), 8.0), Transfer("u", 0, (1,), 8.0))
    model = CostModel(
        "m", ("a", "b", "c"), (0, 1, 2), ((1.0, 1.0, 5.0),), transfers, ((0.0, 0.0),), ((0.0, 0.0),)
    )
    for name in ("t", "u"):
        assert plan(model, 2, constraints=Constraints(require=[name])).stages == ((0,), (1, 2))


def test_two_tensors_between_the_same_ops_are_two_live_tensors():
    transfers = (Transfer("t", 0, (1,), 8.0), Transfer("u", 0, (1,), 8.0))
    model = CostModel(
        "m", ("a", "b", "c"), (0, 1, 2), ((5.0, 1.0, 1.0),), transfers, ((0.0, 0.0),), ((0.0, 0.0),)
    )
    assert plan(model, 2).stages == ((0,), (1, 2))
    assert plan(model, 2, constraints=Constraints(live_tensors=1)).stages == ((0, 1), (2,))


def test_several_required_cuts_are_all_made():
    plans = k_best(CHAIN, 3, 9, constraints=Constraints(require=["t1", "t3"]))
    assert [p.stages for p in plans] == [((0, 1), (2, 3), (4, 5))]


def test_memory_that_is_too_little_is_named():
    model = replace(CHAIN, sizes=(10.0,) * 6, memory=(25.0,))
    with pytest.raises(Infeasible, match="25 bytes of memory"):
        plan(model, 2)
    assert plan(model, 3).optimal


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(keep_together=[["op0", "nobody"]]),
        Constraints(stages={"nobody": 0}),
        Constraints(stages={"op0": 2}),
        Constraints(devices={"op0": -1}),
        Constraints(forbid=["nothing"]),
        Constraints(require=["nothing"]),
        Constraints(memory=(1.0, 2.0, 3.0)),
    ],
)
def test_words_that_mean_nothing_are_refused(constraints):
    with pytest.raises(ConfigError):
        plan(CHAIN, 2, constraints=constraints)
