import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.devices import device as devices
from tests.hardware.execution.test_streams import STATES, SUM, THREE, ByHand, recurrent, summing
from tests.hardware.fakes import (
    FakeStage,
    PinnedStage,
    fake_pipeline,
    in_time,
    items,
    plain,
    wait_for,
)

OUTPUTS = ["y", "total", "last"]
KINDS = [FakeStage, PinnedStage]
needs_pinning = pytest.mark.skipif(not devices.can_pin(), reason="threads are kept on cores")
LENGTHS = st.lists(st.integers(1, 6), max_size=6)


def next_item(lengths):
    """Every stream has its length; its items are its outputs, a little smaller."""

    def following(outputs, stream, step):
        return {"x": outputs["y"] / 8} if step + 1 < lengths[stream] else None

    return following


@given(LENGTHS, st.integers(1, 4), st.integers(1, 3), st.sampled_from(KINDS))
def test_each_stream_computes_what_stepping_it_by_hand_does(lengths, streams, replicas, kind):
    following = next_item(lengths)
    expected = {}
    for number, item in enumerate(items(len(lengths))):
        by_hand = ByHand(SUM, OUTPUTS, STATES)
        for step in range(lengths[number]):
            expected[number, step] = by_hand.step(item)
            item = {"x": np.array(expected[number, step]["y"]) / 8}
    with summing(replicas=[replicas] * 3, kind=kind) as pipeline:
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


def test_loops_at_once_share_no_stream_with_each_other_or_with_run():
    with summing() as pipeline:
        alone = list(pipeline.loop(items(1), next_item([4])))
        pipeline.run(items(3))  # in a stream called 0
        loops = [pipeline.loop(items(1), next_item([4])) for _ in range(2)]
        steps = [step for pair in zip(*loops, strict=True) for step in pair]
        assert repr(steps[::2]) == repr(steps[1::2]) == repr(alone)


def test_a_loop_that_is_left_or_raises_ends_its_streams():
    with summing() as pipeline:
        next(pipeline.loop(items(2), next_item([9, 9]), streams=2))
        assert not pipeline._engine.streams._last
        errors = {ZeroDivisionError: lambda *_: 1 / 0, ConfigError: lambda *_: {}}
        for error, following in errors.items():
            with pytest.raises(error):
                list(pipeline.loop(items(1), following))
            assert not pipeline._engine.streams._last


@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_inside_a_loop_is_told(kind):
    with summing() as pipeline, pytest.raises(ConfigError, match="streams is 0"):
        next(pipeline.loop(items(1), next_item([1]), streams=0))

    def fail(number):
        if number == 2:
            raise OSError("no memory")

    text = r"^stage 1 failed: .*no memory.*lost streams: 0"
    with summing(before={1: fail}, kind=kind) as pipeline, pytest.raises(StageError, match=text):
        list(pipeline.loop(items(1), next_item([5])))


def alone(pipeline):
    """A loop of one stream, which begins once all threads of the pipeline wait."""
    pipeline.start()
    wait_for(lambda: all(lane.site is not None for row in pipeline._engine._lanes for lane in row))
    return pipeline.loop(items(1), lambda o, s, n: items(n + 2)[-1] if n < 9 else None)


@needs_pinning
def test_the_thread_of_the_first_stage_runs_all_stages_of_one_stream_alone():
    pipeline, stages = fake_pipeline(SUM, THREE, OUTPUTS, states=STATES, kind=PinnedStage)
    with pipeline:
        assert len(list(alone(pipeline))) == 10
        pipeline.run(items(20))
    assert [set(stage.threads[:10]) for stage in stages] == [{"stage 0"}] * 3
    assert [set(stage.threads[10:]) for stage in stages] == [{f"stage {i}"} for i in range(3)]


@needs_pinning
@given(recurrent())
def test_one_stream_alone_beside_another_caller_computes_what_stepping_by_hand_does(net):
    net, stages, outputs, states, replicas = net
    by_hand = ByHand(net, outputs, states)
    pipeline, _ = fake_pipeline(
        net, stages, outputs, replicas=replicas, states=states, kind=PinnedStage
    )
    with pipeline, ThreadPoolExecutor() as threads:
        steps = threads.submit(lambda: [outputs for *_, outputs in alone(pipeline)])
        others = [in_time(lambda item=i: pipeline.run([item], "other")[0]) for i in items(10)]
        for results, stream in ((in_time(steps.result), 0), (others, "other")):
            assert plain(results) == [by_hand.step(item, stream) for item in items(10)]


@needs_pinning
def test_a_stage_that_hangs_in_the_thread_of_another_is_named(monkeypatch):
    monkeypatch.setattr(devices, "SILENCE_S", 0.5)
    goes_on = threading.Event()
    with summing(before={2: lambda _: goes_on.wait(60)}, kind=PinnedStage) as pipeline:
        with pytest.raises(StageError, match=r"^stage 2 failed: .*no result for 0.5 s"):
            in_time(lambda: list(alone(pipeline)))
        goes_on.set()
