import contextlib
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.execution.pipeline import items_inside
from tests.hardware.fakes import (
    PATIENCE_S,
    fake_pipeline,
    graph,
    in_time,
    items,
    sequential,
    wait_for,
)

CHAIN = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b"])], ["x"], ["c"])
THREE = [[0], [1], [2]]
SKIP = graph(
    [("a", ["x"]), ("b", ["a"]), ("c", ["b"]), ("d", ["c", "a"]), ("e", ["d", "x"])],
    ["x"],
    ["e", "b"],
)


def values_of(results, outputs):
    return [tuple(r[o].tolist() for o in outputs) for r in results]


def expected_of(net, inputs, outputs):
    return values_of([sequential(net, item, outputs) for item in inputs], outputs)


def test_results_come_in_the_order_of_the_items():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    submitted = items(50)
    with pipeline:
        results = in_time(lambda: pipeline.run(submitted))
    assert values_of(results, "c") == expected_of(CHAIN, submitted, "c")


def test_a_pipeline_runs_again_and_again():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline:
        assert len(in_time(lambda: pipeline.run(items(3)))) == 3
        assert in_time(lambda: pipeline.run([])) == []
        assert values_of(in_time(lambda: pipeline.run(items(1))), "c") == expected_of(
            CHAIN, items(1), "c"
        )


def test_a_tensor_reaches_only_the_stages_that_read_it():
    pipeline, stages = fake_pipeline(SKIP, [[0], [1], [2], [3], [4]], ["e", "b"])
    with pipeline:
        results = in_time(lambda: pipeline.run(items(9)))
    assert values_of(results, ["e", "b"]) == expected_of(SKIP, items(9), ["e", "b"])
    assert [len(s.seen[0]) for s in stages] == [1, 1, 1, 2, 2]
    assert [[p.name for p in s.inputs] for s in pipeline.wiring.stages] == [
        ["x"],
        ["a"],
        ["b"],
        ["c", "a"],
        ["d", "x"],
    ]


def test_two_readers_of_a_tensor_are_one_connection_with_one_port_a_stage():
    net = graph([("a", ["x"]), ("b", ["a"]), ("c", ["a", "b"]), ("d", ["a", "c"])], ["x"], ["d"])
    pipeline, stages = fake_pipeline(net, [[0], [1, 2], [3]], ["d"])
    of_a = [c for c in pipeline.wiring.connections if c.tensor == "a"]
    assert [(c.source, c.stages, c.outputs, c.bytes) for c in of_a] == [((0, 0), (1, 2), (), 16)]
    with pipeline:
        in_time(lambda: pipeline.run(items(4)))
    assert [len(s.seen[0]) for s in stages] == [1, 1, 2]


def test_an_output_can_be_read_by_a_later_stage_too():
    net = graph([("a", ["x"]), ("b", ["a"])], ["x"], ["a", "b"])
    pipeline, _ = fake_pipeline(net, [[0], [1]], ["a", "b"])
    with pipeline:
        assert values_of(in_time(lambda: pipeline.run(items(5))), "ab") == expected_of(
            net, items(5), "ab"
        )


def test_an_input_can_be_an_output_and_a_stage_may_read_nothing():
    net = graph([("a", ["x"]), ("k", []), ("c", ["a", "k"])], ["x"], ["c", "x"])
    pipeline, stages = fake_pipeline(net, [[0], [1], [2]], ["c", "x"])
    with pipeline:
        results = in_time(lambda: pipeline.run(items(20)))
    assert values_of(results, "cx") == expected_of(net, items(20), "cx")
    assert stages[1].seen == [()] * 20


def test_an_input_that_is_an_output_is_not_the_callers_array():
    net = graph([("a", ["x"])], ["x"], ["a", "x"])
    pipeline, _ = fake_pipeline(net, [[0]], ["a", "x"])
    (item,) = items(1)
    with pipeline:
        (result,) = in_time(lambda: pipeline.run([item]))
    assert not np.shares_memory(result["x"], item["x"])


def test_every_stage_has_a_thread_of_its_own():
    pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline:
        in_time(lambda: pipeline.run(items(2)))
    assert len({s.thread for s in stages} - {None, threading.get_ident()}) == 3


def test_a_running_thread_is_known_by_its_stage():
    pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"])
    assert pipeline.threads == {}
    with pipeline:
        in_time(lambda: pipeline.run(items(1)))
        assert pipeline.threads == {f"0x{stage.thread:016x}": s for s, stage in enumerate(stages)}


@pytest.mark.parametrize(
    ("last", "outputs"),
    [(["d"], ["e"]), (["d", "a"], ["e"]), (["d"], ["a", "e"])],
    ids=["chain", "skip", "output"],
)
def test_stages_work_at_the_same_time_whatever_skips_some(last, outputs):
    net = graph(
        [("a", ["x"]), ("b", ["a"]), ("c", ["b"]), ("d", ["c"]), ("e", last)], ["x"], outputs
    )
    meeting = threading.Barrier(5)
    before = {s: _meet(meeting, 4 - s) for s in range(5)}
    pipeline, _ = fake_pipeline(net, [[s] for s in range(5)], outputs, depth=1, before=before)
    with pipeline:
        assert len(in_time(lambda: pipeline.run(items(8)))) == 8


def _meet(meeting, number):
    """Wait for the other stages with the item of that number in hand."""
    return lambda item: meeting.wait(PATIENCE_S) if item == number else None


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_slow_stage_holds_the_caller_back(depth):
    gate = threading.Event()
    before = {2: lambda item: gate.wait(PATIENCE_S)}
    pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"], depth, trace=True, before=before)
    submitted = []

    def submit_all():
        with contextlib.suppress(StageError):  # it is closed at the end
            for item in items(100):
                pipeline.submit(item)
                submitted.append(item)

    caller = threading.Thread(target=submit_all, daemon=True)
    caller.start()
    in_time(lambda: wait_for(lambda: len(submitted) == pipeline.capacity))
    caller.join(0.2)
    assert len(submitted) == len(pipeline.submitted) == pipeline.capacity == depth * 4
    assert len(stages[0].seen) <= 2 * depth + 3  # in front of stage 1 and 2, and one in each stage
    gate.set()
    pipeline.close()
    caller.join(PATIENCE_S)
    assert not caller.is_alive()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_items_are_read_as_there_is_room_and_results_come_in_order(depth):
    read = []

    def reading(count):
        for item in items(count):
            read.append(item)
            yield item

    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], depth)
    with pipeline:
        results = []
        for result in pipeline.map(reading(50)):
            assert len(read) - len(results) <= 4 * pipeline.capacity + 1
            results.append(result["c"].tolist())
        assert results == [r["c"].tolist() for r in pipeline.run(items(50))]


def test_results_do_not_wait_for_items_that_come_slowly():
    read = []

    def slowly(count):
        for item in items(count):
            read.append(item)
            time.sleep(0.03)
            yield item

    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], 2)
    with pipeline:
        next(iter(pipeline.map(slowly(8))))
    # Its result, and the item during which it came.
    assert len(read) <= 3


@pytest.mark.parametrize(
    ("period_s", "expected"), [(0.0, 24), (3e-4, 24), (1e-3, 10), (2e-3, 6), (1.0, 6)]
)
def test_of_short_items_those_of_ten_milliseconds_are_inside(period_s, expected):
    assert items_inside(period_s, capacity=6, limit=24) == expected


class Broken(RuntimeError):
    pass


def breaks_at(number, text="out of order"):
    def before(item):
        if item == number:
            raise Broken(text)

    return before


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("number", [0, 7, 30])
def test_a_failing_stage_reaches_whoever_runs(stage, number):
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], before={stage: breaks_at(number)})
    with pytest.raises(
        StageError, match=f"stage {stage} failed: Broken: out of order; the pipeline is closed"
    ) as caught:
        in_time(lambda: pipeline.run(items(40)))
    assert isinstance(caught.value.__cause__, Broken)
    in_time(pipeline.close)


def test_a_failing_stage_reaches_whoever_submits_or_waits_later():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], before={1: breaks_at(0)})
    pipeline.submit(items(1)[0])
    with pytest.raises(StageError, match="stage 1 failed"):
        in_time(lambda: next(pipeline.results()))
    with pytest.raises(StageError, match="stage 1 failed"):
        in_time(lambda: pipeline.submit(items(1)[0]))
    with pytest.raises(StageError, match="stage 1 failed"):
        in_time(lambda: pipeline.run(items(1)))


def test_a_failing_stage_wakes_a_caller_that_waits_to_submit():
    def before(item):
        full.wait(PATIENCE_S)
        raise Broken

    full = threading.Event()
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], before={1: before})
    for item in items(pipeline.capacity):
        pipeline.submit(item)
    threading.Timer(0.1, full.set).start()
    with pytest.raises(StageError, match="stage 1 failed: Broken"):
        in_time(lambda: pipeline.submit(items(1)[0]))


def test_the_first_of_two_failures_is_reported():
    def late(item):
        if item == 1:
            is_reported.wait(PATIENCE_S)
            raise Broken("after the other")

    is_reported = threading.Event()
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], before={0: late, 1: breaks_at(0, "first")})
    for item in items(2):
        pipeline.submit(item)
    with pytest.raises(StageError, match="stage 1 failed: Broken: first"):
        in_time(lambda: next(pipeline.results()))
    is_reported.set()
    in_time(pipeline.close)
    with pytest.raises(StageError, match="stage 1 failed: Broken: first"):
        pipeline.submit(items(1)[0])


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_whatever_ends_a_stage_reaches_whoever_runs(kind):
    def ends(item):
        raise kind

    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], before={1: ends})
    with pytest.raises(StageError, match=f"stage 1 failed: {kind.__name__}"):
        in_time(lambda: pipeline.run(items(1)))


def test_a_stage_that_closes_the_pipeline_closes_all_but_itself():
    def close(item):
        pipeline.close()
        closed.extend(s.closed for s in stages)

    closed = []
    pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"], before={1: close})
    with pytest.raises(StageError, match="the pipeline is closed"):
        in_time(lambda: pipeline.run(items(1)))
    in_time(pipeline.close)
    assert closed == [1, 0, 1]
    assert stages[1].closed == 1


def test_an_error_of_many_lines_or_none_is_one_line():
    for text, said in [("first\nsecond", "Broken: first;"), ("", "Broken: Broken;")]:
        pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], before={0: breaks_at(0, text)})
        with pytest.raises(StageError, match=said):
            in_time(lambda p=pipeline: p.run(items(1)))


def test_a_stage_that_cannot_open_is_a_failing_stage():
    pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"])
    stages[2].open = lambda: breaks_at(0)(0)
    with pytest.raises(StageError, match="stage 2 failed"):
        in_time(lambda: pipeline.run(items(2)))


def test_a_stage_that_returns_too_little_is_a_failing_stage():
    pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"])
    stages[1].run = lambda values: ()
    with pytest.raises(StageError, match="stage 1 failed: IndexError"):
        in_time(lambda: pipeline.run(items(2)))


def test_closing_twice_and_unused_is_fine():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    in_time(pipeline.close)
    in_time(pipeline.close)


def test_a_closed_pipeline_takes_no_item():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline:
        in_time(lambda: pipeline.run(items(1)))
    with pytest.raises(StageError, match="the pipeline is closed; make a new one"):
        in_time(lambda: pipeline.submit(items(1)[0]))
    assert in_time(lambda: list(pipeline.results())) == []


def test_closing_ends_the_threads():
    before = set(threading.enumerate())
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline:
        in_time(lambda: pipeline.run(items(4)))
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("stage")]


def test_results_are_taken_by_another_thread():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    submitted, results = items(60), []
    reader = threading.Thread(target=lambda: results.extend(pipeline.results()), daemon=True)
    reader.start()
    for item in submitted:
        in_time(lambda i=item: pipeline.submit(i))
    in_time(lambda: wait_for(lambda: len(results) == len(submitted)))
    pipeline.close()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert values_of(results, "c") == expected_of(CHAIN, submitted, "c")


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
        pipeline, stages = fake_pipeline(CHAIN, THREE, ["c"])
        meeting, failed = threading.Barrier(4), []

        def start(pipeline=pipeline, meeting=meeting, failed=failed):
            meeting.wait(PATIENCE_S)
            try:
                pipeline.start()
            except RuntimeError as error:
                failed.append(error)

        starters = [threading.Thread(target=start) for _ in range(4)]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
        pipeline.close()
        assert not failed
        assert None not in {s.thread for s in stages}


@pytest.mark.usefixtures("hasty")
def test_items_of_several_threads_are_not_mixed():
    pipeline, _ = fake_pipeline(SKIP, [[0], [1], [2], [3], [4]], ["e", "b"], depth=1)
    submitted = items(200)
    writers = [
        threading.Thread(
            target=lambda k=k: [pipeline.submit(i) for i in submitted[k::4]], daemon=True
        )
        for k in range(4)
    ]
    for writer in writers:
        writer.start()
    with pipeline:
        results = pipeline.results()
        outputs = in_time(lambda: [next(results) for _ in submitted])
    assert sorted(values_of(outputs, ["e", "b"])) == sorted(
        expected_of(SKIP, submitted, ["e", "b"])
    )


@pytest.mark.usefixtures("hasty")
def test_results_taken_by_several_threads_are_not_mixed():
    pipeline, _ = fake_pipeline(SKIP, [[0], [1], [2], [3], [4]], ["e", "b"], depth=1)
    submitted, results = items(200), []
    readers = [
        threading.Thread(target=lambda: results.extend(pipeline.results()), daemon=True)
        for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    for item in submitted:
        in_time(lambda i=item: pipeline.submit(i))
    in_time(lambda: wait_for(lambda: len(results) == len(submitted)))
    pipeline.close()
    assert sorted(values_of(results, ["e", "b"])) == sorted(
        expected_of(SKIP, submitted, ["e", "b"])
    )


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({}, "item lacks the input 'x'; give all of x"),
        (None, "item is a NoneType; give the array of each input by its name"),
        (np.zeros(2), "item is a ndarray; give the array of each input by its name"),
        ({"x": np.zeros(2), "z": np.zeros(2)}, "unknown input 'z'; the model's inputs are x"),
        ({"x": [[1.0], [1.0, 2.0]]}, "input 'x' is no array: "),
        ({"x": np.zeros(3)}, "input 'x' is float64[3], but the model takes float64[2]"),
        ({"x": np.zeros((2, 1))}, "input 'x' is float64[2, 1]"),
        ({"x": np.zeros(2, np.float32)}, "input 'x' is float32[2], but the model takes float64[2]"),
        ({"x": np.zeros(2, ">f8")}, "input 'x' is >f8[2]"),
    ],
)
def test_an_item_that_does_not_fit_is_refused_and_nothing_is_lost(item, line):
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline:
        with pytest.raises(ConfigError) as caught:
            pipeline.submit(item)
        assert str(caught.value).startswith(line)
        assert values_of(in_time(lambda: pipeline.run(items(2))), "c") == expected_of(
            CHAIN, items(2), "c"
        )


@pytest.mark.parametrize(
    ("unusual", "kind"), [({"x": np.zeros(2)}, "dict"), (None, "NoneType"), (5, "int")]
)
def test_what_is_no_list_of_items_is_refused(unusual, kind):
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline, pytest.raises(ConfigError, match=f"items is a {kind}; give a list of items"):
        pipeline.run(unusual)


def test_what_numpy_takes_for_an_array_is_an_array():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"])
    with pipeline:
        (result,) = in_time(lambda: pipeline.run([{"x": [1.0, 0.0]}]))
    assert result["c"].tolist() == sequential(CHAIN, items(1)[0], ["c"])["c"].tolist()


def test_a_trace_has_an_event_for_each_stage_and_item():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], trace=True)
    with pipeline:
        in_time(lambda: pipeline.run(items(5)))
    assert sorted((e.stage, e.item) for e in pipeline.events) == [
        (s, i) for s in range(3) for i in range(5)
    ]
    assert len(pipeline.submitted) == 5
    ends = {(e.stage, e.item): e for e in pipeline.events}
    assert all(ends[s, i].end <= ends[s + 1, i].start for s in range(2) for i in range(5))


@st.composite
def wirings(draw):
    """A random graph and its stages, each a run of ops; any tensor may be an output."""
    count = draw(st.integers(1, 12))
    inputs = ["x", "z"][: draw(st.integers(1, 2))]
    names = [f"t{i}" for i in range(count)]
    ops = [
        (name, draw(st.lists(st.sampled_from([*inputs, *names[:i]]), max_size=3, unique=True)))
        for i, name in enumerate(names)
    ]
    read = {t for _, reads in ops for t in reads}
    outputs = [t for t in names if t not in read or draw(st.booleans())]
    outputs += [i for i in inputs if draw(st.booleans())]
    bounds = sorted(draw(st.sets(st.integers(1, count - 1), max_size=7))) if count > 1 else []
    stages = [list(range(a, b)) for a, b in zip([0, *bounds], [*bounds, count], strict=True)]
    return graph(ops, inputs, outputs), stages, outputs, inputs


@settings(max_examples=80, deadline=None)
@given(wirings(), st.integers(1, 3), st.integers(0, 30))
def test_any_wiring_computes_what_the_unsplit_graph_does_and_never_hangs(wiring, depth, count):
    net, stages, outputs, inputs = wiring
    pipeline, _ = fake_pipeline(net, stages, outputs, depth)
    submitted = items(count, inputs)
    with pipeline:
        results = in_time(lambda: pipeline.run(submitted))
    assert values_of(results, outputs) == expected_of(net, submitted, outputs)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_deep_pipeline_with_the_longest_skips_flows(depth):
    names = [f"t{i}" for i in range(24)]
    ops = [(n, ["x", *names[:i][-1:], *names[:1]][: 3 if i else 1]) for i, n in enumerate(names)]
    ops[-1] = (names[-1], ["x", *names[:-1]])
    net = graph(ops, ["x"], [names[-1], names[0]])
    pipeline, _ = fake_pipeline(net, [[i] for i in range(24)], [names[-1], names[0]], depth)
    submitted = items(200)
    with pipeline:
        results = in_time(lambda: pipeline.run(submitted))
    assert values_of(results, [names[-1], names[0]]) == expected_of(
        net, submitted, [names[-1], names[0]]
    )
