"""What a study stores is plain JSON and read back; what others wrote there is not trusted."""

import json
import math

import numpy as np
import pytest

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import LinkCost, Profile, Spread
from autosplit.hardware.measurement.results import Measurement as Measured
from autosplit.study import documents
from tests.hardware.fakes import graph

FORK = graph([("a", ["x"]), ("b", ["a"]), ("c", ["a"]), ("d", ["b", "c"])], ["x"], ["d"])


def stored(document):
    """As it comes back from a database."""
    return json.loads(json.dumps(document, allow_nan=False))


def test_profiles_and_links_come_back_with_what_json_cannot_write():
    profiles = [Profile("a", (1.0, math.inf), (0.1, math.inf))]
    profiles.append(Profile("b", (2.0, 3.0), (0.0, 0.0)))
    assert documents.read(Profile, stored(list(map(documents.document_of, profiles)))) == profiles
    links = [LinkCost("a"), LinkCost("b", 4e6, 0.5, 0.25)]
    assert documents.read(LinkCost, stored(list(map(documents.document_of, links)))) == links


@pytest.mark.parametrize(
    ("stages", "cuts", "live"),
    [
        ([(0, 1), (2, 3)], [["op_b"]], [[["a", 16], ["b", 16]]]),
        ([(0, 1, 2), (3,)], [["op_b", "op_c"]], [[["b", 16], ["c", 16]]]),
        ([(0,), (1, 2), (3,)], [["op_a"], ["op_b", "op_c"]], [[["a", 16]], [["b", 16], ["c", 16]]]),
        ([(0, 1, 2, 3)], [], []),
    ],
)
def test_a_split_is_told_by_the_last_ops_of_each_cut_and_what_crosses_it(stages, cuts, live):
    devices = [f"cores:{n}" for n in range(len(stages))]
    deployment = Deployment.of_split(stages, devices, ["tvm"] * len(stages))
    document = stored(documents.deployment_document(FORK, deployment))
    assert [sorted(c) for c in document["cuts"]] == cuts
    assert [sorted(c) for c in document["live"]] == live
    assert document["stages"] == [list(ops) for ops in stages]


def test_a_measurement_is_told_in_numbers_of_json_without_its_samples():
    period = Spread(np.float32(2), np.float64(1.5), np.int64(3), (1.5, 2.0, 3.0))
    measurement = Measured(period, period, (8.0, 3.0), 1e-6, ("a fan",))
    document = stored(documents.measured_document(measurement))
    assert document["period_ms"] == {"median": 2.0, "low": 1.5, "high": 3.0}
    assert document["period_ms"] == document["latency_ms"]
    assert (document["stage_ms"], document["max_rel_error"]) == ([8.0, 3.0], 1e-6)
    assert document["disturbed"] == ["a fan"]


@pytest.mark.parametrize(
    ("recorded", "now", "said"),
    [({"a": "1"}, {"a": "1"}, []),
     ({"b": "1", "a": "x"}, {"b": "2", "a": "y"}, ["a was 'x', is 'y'", "b was '1', is '2'"]),
     ({"a": "1"}, {}, ["a was '1', is not set"]), ({}, {"a": "1"}, ["a was not set, is '1'"]),
     ({"m": "a" * 64}, {"m": "b" * 64}, [f"m was '{'a' * 12}', is '{'b' * 12}'"]),
     ({"t": "a" * 64}, {"t": "shipped"}, [f"t was '{'a' * 12}', is 'shipped'"]),
     ({"r": f"x {'a' * 64} y"}, {"r": "z"}, [f"r was 'x {'a' * 12} y', is 'z'"]),
     ({"a": "y" * 78}, {"a": "z" * 79}, [f"a was '{'y' * 78}', is '{'z' * 76}..."])],
)  # fmt: skip
def test_what_differs_is_named_with_both_values(recorded, now, said):
    assert documents.differences(recorded, now) == said
