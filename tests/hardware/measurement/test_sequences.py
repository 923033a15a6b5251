"""A pipeline with states is compared along streams, and step by step on the reference's states."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import wire
from autosplit.hardware.measurement.sequences import accuracy_of, expect
from autosplit.lowering.states import match_states
from tests.hardware.fakes import graph

SUCCESSORS = {"before": "after"}
NET = graph([("after", ["x", "before"]), ("y", ["after"])], ["x", "before"], ["y", "after"])
PAIRS = [("y", "y"), ("after", "after")]
START = {"before": np.array([0.3, 0.4])}
ITEMS = [{"x": np.zeros(2)}] * 32


def chaotic(values, error):
    """A logistic map, in which the smallest error grows to any size within some steps."""
    x, before = values
    after = 3.9 * before * (1 - before) * (1 + error) + x
    return after, after


def step(item):
    return dict(zip(("after", "y"), chaotic((item["x"], item["before"]), 0.0), strict=True))


CHAOS = SimpleNamespace(name="chaos", open=lambda: step)  # the reference


def accuracy(error, in_state=True):
    """Of a stage that errs by a share of each result, in its states or in its outputs.

    Along the stream all states are zero, where this map stays; alone they are not.
    """

    def run(values):
        wrong, right = chaotic(values, error)[0], chaotic(values, 0.0)[0]
        return (wrong, right) if in_state else (right, wrong)

    net = replace(NET, states=match_states(NET, PAIRS, SUCCESSORS))
    wiring = wire(net, [[0, 1]], PAIRS)
    assert [port.name for port in wiring.stages[0].outputs] == ["after", "y"]
    expected = expect(CHAOS, ITEMS, {"before": np.zeros(2)}, SUCCESSORS)
    alone = expect(CHAOS, ITEMS, START, SUCCESSORS)
    expected = replace(expected, alone=alone.alone, states=alone.states)
    with Pipeline(wiring, [[Mock(run=run)]]) as tried:
        return accuracy_of(tried, expected, 1e-4)


def test_a_step_is_compared_on_the_states_of_the_reference():
    assert accuracy(0.0).equal
    assert accuracy(0.0).items == 3 * 32 + 32


@pytest.mark.parametrize("in_state", [True, False])
def test_an_error_that_shows_on_those_states_alone_is_found(in_state):
    assert not accuracy(1e-3, in_state).equal
