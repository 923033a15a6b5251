"""Items at a fixed rate: latencies from when they are due, and what they say of the budget."""

import time

import numpy as np
import pytest

from autosplit.hardware.measurement.real_time import paced_latencies, real_time
from autosplit.hardware.measurement.results import Spread
from tests.hardware.fakes import fake_pipeline, graph, items

ONE_OP = graph([("y", ["x"])], ["x"], ["y"])


def test_the_budget_the_tail_and_the_streams_follow_from_the_times():
    paced = real_time(100, Spread(2.5, 2.4, 3.0), [1.0] * 99 + [5.0])
    assert (paced.budget_ms, paced.share, paced.streams) == (10.0, 0.25, 3)
    assert paced.worst_ms == 5.0
    assert 1.0 < paced.p99_ms < 5.0
    assert paced.jitter_ms == pytest.approx(np.std([1.0] * 99 + [5.0]))


def test_a_pipeline_that_is_too_slow_holds_no_stream():
    assert real_time(100, Spread(12.0, 11.0, 13.0), [12.0, 14.0]).streams == 0


def test_each_of_several_streams_has_the_rate():
    paced = real_time(100, Spread(2.5, 2.4, 3.0), [1.0], streams=3, disturbances=("it is busy",))
    assert (paced.share, paced.streams) == (0.75, 3)
    assert paced.text.startswith("100 items/s in each of 3 streams: 75%")
    assert paced.text.endswith("holds 3 such streams; not to be trusted: it is busy")


def test_an_item_that_has_to_wait_is_late():
    before = {0: lambda number: time.sleep(0.02)}
    pipeline, _ = fake_pipeline(ONE_OP, [[0]], ["y"], trace=True, before=before)
    with pipeline:
        latencies = paced_latencies(pipeline, items(3), 1000, 0.1)
    # Each takes 20 times as long as it has, so that delays add up.
    assert len(latencies) >= 2
    assert latencies == sorted(latencies)
    assert latencies[-1] - latencies[0] > 10 * (len(latencies) - 1)


def test_of_a_stream_slower_than_the_measurement_one_item_is_measured():
    pipeline, _ = fake_pipeline(ONE_OP, [[0]], ["y"], trace=True)
    with pipeline:
        assert len(paced_latencies(pipeline, items(3), 1e-6, 0.05)) == 1
