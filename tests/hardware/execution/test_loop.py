"""Streams whose next item is made from their last outputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, StageError
from tests.hardware.execution.test_streams import STATES, SUM, Broken, ByHand, summing
from tests.hardware.fakes import in_time, items

LENGTHS = st.lists(st.integers(1, 6), max_size=6)


def next_item(lengths):
    """Every stream has its length; its items are its outputs, a little smaller."""

    def following(outputs, stream, step):
        return {"x": outputs["y"] / 8} if step + 1 < lengths[stream] else None

    return following


@given(LENGTHS, st.integers(1, 4), st.integers(1, 3))
def test_each_stream_computes_what_stepping_it_by_hand_does(lengths, streams, replicas):
    following = next_item(lengths)
    expected = {}
    for number, item in enumerate(items(len(lengths))):
        by_hand = ByHand(SUM, ["y", "total", "last"], STATES)
        for step in range(lengths[number]):
            expected[number, step] = by_hand.step(item)
            item = {"x": np.array(expected[number, step]["y"]) / 8}
    with summing(replicas=[replicas] * 3) as pipeline:
        for _ in range(2):  # the streams of the first time have ended
            steps = in_time(lambda: list(pipeline.loop(items(len(lengths)), following, streams)))
            results = {(s, n): {"y": o["y"].tolist()} for s, n, o in steps}
            assert results == expected
            assert len(steps) == len(results)


def test_no_more_streams_than_asked_for_run_at_once():
    begun, ended = [], []

    def first():
        for number, item in enumerate(items(5)):
            begun.append(number)
            yield item

    def following(outputs, stream, step):
        assert len(begun) - len(ended) <= 2
        ended.extend([stream] if step else [])
        return None if step else items(1)[0]

    with summing() as pipeline:
        assert len(list(pipeline.loop(first(), following, streams=2))) == 10


def test_a_loop_that_is_left_ends_its_streams():
    with summing() as pipeline:
        for _ in pipeline.loop(items(2), next_item([9, 9]), streams=2):
            break
        again = list(pipeline.loop(items(2), next_item([2, 2]), streams=2))
    with summing() as pipeline:
        expected = list(pipeline.loop(items(2), next_item([2, 2]), streams=2))
    assert sorted(repr(step) for step in again) == sorted(repr(step) for step in expected)


def test_what_fails_inside_a_loop_is_told():
    with summing() as pipeline:
        with pytest.raises(ConfigError, match="streams is 0"):
            next(pipeline.loop(items(1), next_item([1]), streams=0))
        with pytest.raises(ConfigError, match="lacks the input 'x'"):
            list(pipeline.loop(items(1), lambda *_: {}))

    def fail(number):
        if number == 2:
            raise Broken("no memory")

    with (
        summing(before={1: fail}) as pipeline,
        pytest.raises(StageError, match=r"no memory.*lost streams: 0"),
    ):
        list(pipeline.loop(items(1), next_item([5])))
