"""Pipelines of fake stages with any replicas: results, order, room, threads and failures."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.execution.pipeline import _checked
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.wiring import Variant
from tests.hardware.fakes import (
    CHAIN,
    PATIENCE_S,
    chain,
    computed,
    fake_pipeline,
    graph,
    in_time,
    items,
    plain,
    wait_for,
)

OPS = [("a", ["x"]), ("b", ["a"]), ("c", ["b"]), ("d", ["c", "a"]), ("e", ["d", "x"])]
SKIP = graph(OPS, ["x"], ["e", "b"])
FIVE = [[0], [1], [2], [3], [4]]


def test_a_tensor_reaches_only_the_stages_that_read_it_and_an_input_is_copied():
    net = graph([("a", ["x"]), ("k", []), ("c", ["a", "k"])], ["x"], ["c", "x"])
    pipeline, stages = fake_pipeline(net, [[0], [1], [2]], ["c", "x"])
    (item,) = items(1)
    with pipeline:
        (result,) = in_time(lambda: pipeline.run([item]))
    assert [len(stage.seen[0]) for stage in stages] == [1, 0, 2]
    assert not np.shares_memory(result["x"], item["x"])


def test_every_replica_has_a_thread_known_by_its_name_and_stage():
    pipeline, replicas = chain(depth=3, replicas=[1, 2, 1])
    assert (pipeline.threads, pipeline.capacity) == ({}, 3 * (4 + 1))
    assert pipeline.replicas == (1, 2, 1)
    with pipeline:
        in_time(lambda: pipeline.run(items(2)))
        idents = [f"0x{replica.thread:016x}" for replica in replicas]
        assert pipeline.threads == dict(zip(idents, [0, 1, 1, 2], strict=True))
        names = {thread.name for thread in threading.enumerate()}
    assert {"stage 0", "replica 0 of stage 1", "replica 1 of stage 1"} <= names
    assert not [t for t in threading.enumerate() if t.ident in {r.thread for r in replicas}]


@pytest.mark.parametrize(
    ("last", "outputs"),
    [(["d"], ["e"]), (["d", "a"], ["e"]), (["d"], ["a", "e"])],
    ids=["chain", "skip", "output"],
)
def test_stages_work_at_the_same_time_whatever_skips_some(last, outputs):
    ops = [("a", ["x"]), ("b", ["a"]), ("c", ["b"]), ("d", ["c"]), ("e", last)]
    net = graph(ops, ["x"], outputs)
    meeting = threading.Barrier(5)

    def meet(stage, item):
        if stage + item == 4:  # then each stage has another item in hand
            meeting.wait(PATIENCE_S)

    before = {stage: partial(meet, stage) for stage in range(5)}
    pipeline, _ = fake_pipeline(net, FIVE, outputs, depth=1, before=before)
    with pipeline:
        assert len(in_time(lambda: pipeline.run(items(8)))) == 8


def test_a_slow_replica_takes_fewer_items_and_results_keep_their_order():
    pipeline, replicas = chain(replicas=[1, 2, 1])
    slow, fast = replicas[1:3]
    begun = threading.Event()

    def wait_until_many_are_done(_):
        begun.set()
        wait_for(lambda: len(fast.seen) >= 3 * (len(slow.seen) + 1))

    slow.before = wait_until_many_are_done
    fast.before = lambda _: begun.wait(PATIENCE_S)
    with pipeline:
        results = in_time(lambda: pipeline.run(items(20)))
    assert plain(results) == computed(CHAIN, items(20), "c")
    assert len(slow.seen) + len(fast.seen) == 20
    assert 1 <= len(slow.seen) <= 5


@pytest.mark.parametrize("depth", [1, 5])
def test_a_slow_stage_holds_the_caller_back(depth):
    gate = threading.Event()
    before = {2: lambda item: gate.wait(PATIENCE_S)}
    pipeline, _ = chain(depth=depth, trace=True, before=before)
    with ThreadPoolExecutor(1) as caller, pipeline:
        submitting = caller.submit(lambda: [pipeline.submit(item) for item in items(100)])
        wait_for(lambda: len(pipeline.submitted) == pipeline.capacity)
        time.sleep(0.2)
        assert len(pipeline.submitted) == pipeline.capacity == depth * 4
        gate.set()
    assert isinstance(submitting.exception(PATIENCE_S), StageError)  # it is closed at the end


@pytest.mark.parametrize(("depth", "pause", "most"), [(1, 0, 17), (2, 0.03, 10)])
def test_items_are_read_as_there_is_room_and_results_do_not_wait_for_slow_ones(depth, pause, most):
    read = []

    def reading(count):
        for item in items(count):
            read.append(item)
            time.sleep(pause)
            yield item

    pipeline, _ = chain(depth=depth)
    with pipeline:
        results = []
        for result in pipeline.map(reading(25)):
            assert len(read) - len(results) <= most
            results.append(result)
    assert plain(results) == computed(CHAIN, items(25), "c")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError("first\nsecond"), "OSError: first; the pipeline is closed"),
     (OSError(""), "OSError: OSError;"), (SystemExit(), "Sys"), (KeyboardInterrupt(), "Keyboard")],
)  # fmt: skip
def test_whatever_ends_a_stage_reaches_whoever_submits_or_waits(error, reason):
    pipeline, _ = chain(before={1: Mock(side_effect=error)})
    (item,) = items(1)
    pipeline.submit(item)
    for use in (lambda: next(pipeline.results()), lambda: pipeline.run([item])):
        with pytest.raises(StageError, match=f"stage 1 failed: {reason}") as caught:
            in_time(use)
        assert caught.value.__cause__ is error
    with pytest.raises(StageError, match=f"stage 1 failed: {reason}"):
        pipeline.submit(item)


@pytest.mark.parametrize(("method", "instead"), [("open", lambda: 1 / 0), ("run", lambda _: ())])
def test_a_stage_that_does_not_fit_is_a_failing_stage(method, instead):
    pipeline, stages = chain()
    setattr(stages[1], method, instead)
    with pytest.raises(StageError, match=r"stage 1 failed: (ZeroDivision|Index)Error"):
        in_time(lambda: pipeline.run(items(2)))


def test_the_first_of_two_failures_is_reported():
    def late(item):
        if item == 1:
            is_reported.wait(PATIENCE_S)
            raise OSError("after the other")

    is_reported = threading.Event()
    before = {0: late, 1: Mock(side_effect=OSError("first"))}
    pipeline, _ = chain(before=before)
    for item in items(2):
        pipeline.submit(item)
    with pytest.raises(StageError, match="stage 1 failed: OSError: first"):
        in_time(lambda: next(pipeline.results()))
    is_reported.set()
    in_time(pipeline.close)
    with pytest.raises(StageError, match="stage 1 failed: OSError: first"):
        pipeline.submit(items(1)[0])


def test_a_stage_that_closes_the_pipeline_closes_all_but_itself():
    def close(item):
        pipeline.close()
        closed.extend(s.closed for s in stages)

    closed = []
    pipeline, stages = chain(before={1: close})
    with pytest.raises(StageError, match="the pipeline is closed"):
        in_time(lambda: pipeline.run(items(1)))
    in_time(pipeline.close)
    assert closed == [1, 0, 1]
    assert stages[1].closed == 1


@pytest.mark.parametrize("count", [0, 1])
def test_a_closed_pipeline_takes_no_item_and_can_be_closed_again(count):
    pipeline, _ = chain()
    in_time(lambda: pipeline.run(items(count)))
    for _ in range(2):
        in_time(pipeline.close)
    with pytest.raises(StageError, match="the pipeline is closed; make a new one"):
        in_time(lambda: pipeline.submit(items(1)[0]))
    assert in_time(lambda: list(pipeline.results())) == []


@pytest.fixture
def hasty():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_several_threads_may_start_a_pipeline():
    for _ in range(20):
        pipeline, stages = chain()
        meeting = threading.Barrier(4)
        with ThreadPoolExecutor(4) as threads:
            start = lambda _, m=meeting, p=pipeline: (m.wait(PATIENCE_S), p.start())  # noqa: E731
            list(threads.map(start, range(4)))
        pipeline.close()
        assert None not in {s.thread for s in stages}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (4, 1), (1, 4), (3, 3)])
def test_items_and_results_of_several_threads_are_not_mixed(writers, readers):
    pipeline, _ = fake_pipeline(SKIP, FIVE, ["e", "b"], depth=1)
    submitted, results = items(200), []

    def submit(number):
        for item in submitted[number::writers]:
            pipeline.submit(item)

    with ThreadPoolExecutor(writers + readers) as threads, pipeline:
        for _ in range(readers):
            threads.submit(lambda: results.extend(pipeline.results()))
        list(threads.map(submit, range(writers)))
        wait_for(lambda: len(results) == len(submitted))
    if (writers, readers) != (1, 1):
        results.sort(key=lambda result: result["e"].tolist())
    assert plain(results) == computed(SKIP, submitted, "eb")


class OnAnotherDevice:
    def __array__(self, *arguments, **options):
        raise TypeError("copy it to this machine first")


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({}, "item lacks the input 'x'; give all of x"),
        (None, "item is a NoneType; give the array of each input by its name"),
        (np.zeros(2), "item is a ndarray; give the array of each input by its name"),
        ({"x": np.zeros(2), "z": np.zeros(2)}, "unknown input 'z'; the model's inputs are x"),
        ({"x": [[1.0], [1.0, 2.0]]}, "input 'x' is no array: "),
        ({"x": OnAnotherDevice()}, "input 'x' is no array: copy it to this machine first"),
        ({"x": np.zeros(3)}, "input 'x' is float64[3], but the model takes float64[2]"),
        ({"x": np.zeros((2, 1))}, "input 'x' is float64[2, 1]"),
        ({"x": np.zeros(2, np.float32)}, "input 'x' is float32[2], but the model takes float64[2]"),
        ({"x": np.zeros(2, ">f8")}, "input 'x' is >f8[2]"),
    ],
)
def test_an_item_that_does_not_fit_is_refused_and_nothing_is_lost(item, line):
    pipeline, _ = chain()
    with pipeline:
        with pytest.raises(ConfigError) as caught:
            pipeline.submit(item)
        assert str(caught.value).startswith(line)
        # What numpy takes for an array is one.
        results = in_time(lambda: pipeline.run([*items(2), {"x": [1.0, 0.0]}]))
    assert plain(results) == computed(CHAIN, [*items(2), *items(1)], "c")


@pytest.mark.parametrize("unusual", [{"x": np.zeros(2)}, None, 5])
def test_what_is_no_list_of_items_is_refused(unusual):
    text = f"items is a {type(unusual).__name__}; give a list of items"
    with chain()[0] as pipeline, pytest.raises(ConfigError, match=text):
        pipeline.run(unusual)


def test_any_byte_but_0_is_true():
    variant = Variant((Port("m", (3,), "bool"),))
    arrays = _checked({"m": np.frombuffer(b"\0\1\xff", bool)}, variant, [variant])
    assert arrays["m"].tobytes() == b"\0\1\1"
