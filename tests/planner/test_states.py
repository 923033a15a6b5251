from dataclasses import replace

import pytest

from autosplit.errors import Infeasible
from autosplit.graph import Op, State, build
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.cost_table import cost_table
from autosplit.planner import Question, partition
from autosplit.planner.explain import forbidden_by_states

SMALL = ((2,), "float32", 8)


def chained(**states):
    """Three ops in a row, of which each reads one of g, h and i; and states between them."""
    ops = [
        Op("first", "k", (), ("x", "g"), ("a",)),
        Op("second", "k", (), ("a", "h"), ("b",)),
        Op("third", "k", (), ("b", "i"), ("c",)),
    ]
    graph = build("net", ops, dict.fromkeys("xghiabc", SMALL), [*"xghi"], [*"abc"])
    paired = tuple(State(name, f"{name}_next", tensor) for name, tensor in states.items())
    graph = replace(graph, states=paired)
    costs = cost_table(graph, [Profile("", (1.0,) * 3, (0.0,) * 3)])
    return costs.with_groups(graph.ops_of_states)


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
