import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import Option, Row, Stage
from autosplit.errors import ConfigError, GraphError, Infeasible, SplitError
from autosplit.graph import State
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.cost_table import cost_table
from autosplit.planner import Kind, Question, RowCosts, Transfer, evaluate, partition
from autosplit.planner.explain import forbidden_by_states
from tests.hardware.fakes import graph
from tests.planner.graphs import chain, in_runtimes
from tests.planner.models import answers, models, split_questions

INF, NAN = math.inf, math.nan
PAIR = chain(1.0, 2.0, tensors=(Transfer("t", 0, (1,), 8.0),))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": (RowCosts(Row(), (1.0, -1.0)),)}, "the time of 'op1' is -1.0"),
        ({"rows": (RowCosts(Row(), (NAN, 1.0)),)}, "the time of 'op0' is nan"),
        ({"rows": (RowCosts(Row(), (1.0,)),)}, "1 values of the time were given; give 2"),
        ({"rows": (RowCosts(Row(), (1.0, 1.0), INF),)}, "the overhead of .* is inf"),
        ({"kinds": (Kind("", (-0.5,)),)}, "the transfer cost of 't' is -0.5"),
        ({"kinds": (Kind("", (), (1.0, 2.0)),)}, "2 values of the transfer cost were given"),
        ({"kinds": (Kind("", memory=NAN),)}, "the memory of '' is nan"),
        ({"sizes": (1.0, INF)}, "the size of 'op1' is inf"),
        ({"predecessors": (2, 0)}, "op 'op0' reads from 'op1', which comes later"),
    ],
)
def test_a_cost_that_cannot_be_is_named(changes, message):
    with pytest.raises(GraphError, match=message):
        replace(PAIR, **changes)


def test_a_table_without_rows_or_with_a_row_of_an_unknown_kind_is_refused():
    for rows in ((), (RowCosts(Row("gpu"), (1.0, 2.0)),)):
        with pytest.raises(ConfigError, match="give one for each kind of device"):
            replace(PAIR, rows=rows)


def test_ops_that_no_runtime_separates_are_one_group():
    groups = {"tvm": (0b0011,), "openvino": (0b0111,)}
    rows = {name: RowCosts(Row(), (1.0,) * 4, groups=group) for name, group in groups.items()}
    costs = in_runtimes(chain(*[1.0] * 4), **rows)
    assert costs.contraction.groups == (0b0011, 0b0100, 0b1000)
    halves = [Stage(ops, (Option(Row("", "tvm")),)) for ops in ((0,), (1, 2, 3))]
    with pytest.raises(SplitError, match="ops op0, op1 must stay on one stage"):
        evaluate(costs, halves)


@pytest.mark.parametrize("options", [(), (Option(Row(), 0),), (Option(Row("gpu")),)])
def test_a_stage_without_a_replica_or_in_a_row_without_costs_is_refused(options):
    with pytest.raises(SplitError, match=r"stage 0 has (no replica|a row without costs, Row)"):
        evaluate(PAIR, [Stage((0, 1), options)])


def plain_cost(costs, stages):
    """(loads or None, memory, bytes moved) of stages of (ops, row) as exact fractions."""
    where = {op: s for s, (ops, _) in enumerate(stages) for op in ops}
    loads, memory, bytes_moved = [], [], Fraction(0)
    for s, (ops, row) in enumerate(stages):
        kind = next(kind for kind in costs.kinds if kind.name == row.row.kind)
        parts = [Fraction(row.overhead)]
        size = sum((Fraction(costs.sizes[op]) for op in ops), Fraction(0))
        for t, tensor in enumerate(costs.tensors):
            maker = None if tensor.producer is None else where[tensor.producer]
            readers = {where[op] for op in tensor.consumers}
            is_read = s in readers and maker != s
            is_sent = maker == s and bool(readers - {s})
            if is_read:
                parts.append(Fraction(kind.receive[t]) if kind.receive else 0)
                bytes_moved += 0 if maker is None else Fraction(tensor.bytes)
            if is_sent:
                parts.append(Fraction(kind.send[t]) if kind.send else 0)
            if (is_read or is_sent) and costs.activations:
                size += row.row.batch * Fraction(tensor.bytes)
        times = [row.times[op] for op in ops]
        torn = [g for g in row.groups if 0 < sum(g >> op & 1 for op in ops) < g.bit_count()]
        can_run = INF not in times and not torn
        loads.append(sum([*parts, *map(Fraction, times)]) if can_run else None)
        memory.append(size)
    return loads, memory, bytes_moved


@given(st.data())
def test_stages_cost_what_plain_fractions_say(data):
    costs = data.draw(models())
    question = data.draw(split_questions(costs))
    for _, plan in zip(range(5), answers(costs, question), strict=False):
        pairs = [(s.ops, costs.rows[costs.row_index[s.options[0].row]]) for s in plan.stages]
        loads, memory, bytes_moved = plain_cost(costs, pairs)
        assert plan.loads == tuple(map(float, loads))
        assert plan.memory == tuple(map(float, memory))
        assert plan.bytes_moved == float(bytes_moved)


def chained(**states):
    """Three ops in a row, of which each reads one of g, h and i; and states between them."""
    net = graph([("a", "xg"), ("b", "ah"), ("c", "bi")], "xghi", "abc")
    paired = tuple(State(name, f"{name}_next", tensor) for name, tensor in states.items())
    net = replace(net, states=paired)
    times = [Profile("", (1.0,) * 3, (0.0,) * 3)]
    return cost_table(net, times, keep_together={"": net.ops_of_states})


@pytest.mark.parametrize(
    ("states", "stages", "blame"),
    [
        ({"g": "c"}, 2, "no split exists: state 'g' binds all 3 ops to one stage"),
        ({"h": "b", "g": "c"}, 2, "no split exists: state 'g' binds all 3"),
        ({"g": "b", "h": "c"}, 2, "no split exists: state 'g', 'h' bind all 3 ops"),
        ({"g": "a", "h": "c"}, 3, "state 'h' binds 2 of 3 ops to one stage"),
    ],
)
def test_the_states_that_forbid_a_split_are_named(states, stages, blame):
    with pytest.raises(Infeasible, match=blame):
        partition(chained(**states), Question.of_split(stages))


def test_states_that_leave_enough_groups_are_not_to_blame():
    costs = chained(g="a", h="c")
    assert partition(costs, Question.of_split(2)).split == ((0,), (1, 2))
    assert forbidden_by_states(costs, 2) == ""
    assert forbidden_by_states(costs, 4) == ""  # three ops have no four stages anyway
