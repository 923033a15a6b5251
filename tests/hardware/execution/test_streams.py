"""Streams: an item gets the states that the last item of its stream left, and no others."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, SplitError, StageError
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import Port, StageSpec, StageState
from autosplit.hardware.execution.wiring import Connection, Wiring, wire
from autosplit.hardware.runtimes.interface import Stage
from autosplit.lowering.states import match_states
from tests.hardware.fakes import FakeStage, fake_pipeline, graph, in_time, items, plain, sequential

# The sum of all items so far goes through stage 1; stage 2 has a state of its own.
SUM = graph(
    [("a", ["x"]), ("total", ["a", "before"]), ("last", ["total", "older"]), ("y", ["last"])],
    ["x", "before", "older"],
    ["y", "total", "last"],
)
STATES = {"before": "total", "older": "last"}
THREE = [[0], [1], [2, 3]]
BOTH, ANY = ("x", "z"), st.booleans()


def summing(**options):
    return fake_pipeline(SUM, THREE, ["y", "total", "last"], states=STATES, **options)[0]


class ByHand:
    """Steps the unsplit graph, one stream at a time."""

    def __init__(self, net, outputs, states):
        self.net, self.outputs, self.states = net, outputs, states
        self.left = {}

    def step(self, item, stream=0):
        zeros = {name: np.zeros(2) for name in self.states}
        results = sequential(self.net, {**zeros, **self.left.get(stream, {}), **item}, self.outputs)
        self.left[stream] = {name: results[output] for name, output in self.states.items()}
        hidden = self.states.values()
        return {name: value.tolist() for name, value in results.items() if name not in hidden}


@st.composite
def recurrent(draw, inputs=("x",)):
    """A random graph with states in any of its stages or none, its stages and their replicas.

    Any tensor may leave it.
    """
    count = draw(st.integers(1, 12))
    names = [f"t{i}" for i in range(count)]
    bounds = sorted(draw(st.sets(st.integers(1, count - 1), max_size=7))) if count > 1 else []
    stages = [list(range(a, b)) for a, b in zip([0, *bounds], [*bounds, count], strict=True)]
    reads = [
        draw(st.lists(st.sampled_from([*inputs, *names[:i]]), max_size=3, unique=True))
        for i in range(count)
    ]
    states = {}
    for number, name in enumerate(draw(st.lists(st.sampled_from(names), max_size=4, unique=True))):
        (stage,) = (ops for ops in stages if names.index(name) in ops)
        for reader in draw(st.sets(st.sampled_from(stage))):  # or a state that no op reads
            reads[reader].append(f"s{number}")
        states[f"s{number}"] = name
    read = {tensor for tensors in reads for tensor in tensors}
    others = [n for n in names if n not in states.values() and (n not in read or draw(ANY))]
    outputs = [*states.values(), *others, *(name for name in inputs if draw(ANY))]
    net = graph(list(zip(names, reads, strict=True)), [*inputs, *states], outputs)
    return net, stages, outputs, states, [draw(st.integers(1, 3)) for _ in stages]


@given(
    recurrent(BOTH),
    st.integers(1, 3),
    st.lists(st.integers(-2, 3), max_size=30),
    st.randoms(use_true_random=False),
)
def test_any_graph_computes_what_stepping_by_hand_does(net, depth, calls, random):
    net, stages, outputs, states, replicas = net
    by_hand = ByHand(net, outputs, states)
    # Some items are slow in one replica, so the items behind them overtake.
    pauses = [random.choice([0.0, 0.0, 0.001]) for _ in range(7)]
    before = {s: lambda number: time.sleep(pauses[number % 7]) for s in range(len(stages))}
    options = {"before": before, "replicas": replicas, "states": states}
    pipeline, _ = fake_pipeline(net, stages, outputs, depth, **options)
    expected, results = [], []
    with pipeline:
        reader = pipeline.results()
        for item, stream in zip(items(len(calls), BOTH), calls, strict=True):
            if stream < 0:  # a reset of stream 1 to zeros, or of stream 2 to other states
                state = None if stream == -1 else {name: np.array([3.0, 4.0]) for name in states}
                pipeline.reset(-stream, state)
                by_hand.left[-stream] = state or {name: np.zeros(2) for name in states}
                continue
            expected.append(by_hand.step(item, stream))
            if len(expected) - len(results) > pipeline.capacity:
                results.append(next(reader))
            pipeline.submit(item, stream=stream)
        while len(results) < len(expected):
            results.append(in_time(lambda: next(reader)))
        for stream in {s for s in calls if s >= 0}:
            left = by_hand.left.get(stream, {name: np.zeros(2) for name in states})
            stream_state = in_time(lambda stream=stream: pipeline.state(stream))
            assert plain([stream_state]) == plain([left])
    assert plain(results) == expected


def test_states_are_no_inputs_and_no_outputs_and_begin_at_zeros_without_memory():
    with summing() as pipeline:
        assert {tuple(result) for result in pipeline.run(items(3), stream="a")} == {("y",)}
        with pytest.raises(ConfigError, match="'before'"):
            pipeline.run([{**items(1)[0], "before": np.zeros(2)}])
        assert sorted(pipeline.state()) == ["before", "older"]
        zeros = pipeline.wiring.first_states["before"]
        assert (zeros.shape, zeros.strides) == ((2,), (0,))
        with pytest.raises(ValueError, match="read-only"):
            zeros[0] = 1
        pipeline.state()["before"][0] = 1  # a copy
        assert not pipeline.state()["before"].any()


def test_a_changed_output_leaves_the_state_that_it_is_too():
    net = graph([("total", ["x", "before"])], ["x", "before"], ["total"])
    outputs = [("y", "total"), ("after", "total")]
    net = replace(net, states=match_states(net, outputs, {"before": "after"}))
    wiring = wire(net, [[0]], outputs)
    by_hand = ByHand(net, ["total"], {"before": "total"})
    with Pipeline(wiring, [[FakeStage(net, wiring.stages[0])]]) as pipeline:
        for item in items(3):
            (result,) = pipeline.run([item])
            by_hand.step(item)
            assert result["y"].tolist() == by_hand.left[0]["before"].tolist()
            result["y"][:] = -1


def test_two_states_that_one_tensor_renews_share_no_memory():
    net = graph([("s", ["x", "a"]), ("y", ["b"])], ["x", "a", "b"], ["s", "y"])
    outputs = [("next_a", "s"), ("next_b", "s"), ("y", "y")]
    net = replace(net, states=match_states(net, outputs, {"a": "next_a", "b": "next_b"}))
    stage = FakeStage(net, (wiring := wire(net, [[0, 1]], outputs)).stages[0])
    with Pipeline(wiring, [[stage]]) as pipeline:
        pipeline.run(items(2))
    assert not np.shares_memory(*stage.seen[1][1:])


@pytest.mark.parametrize(
    ("state", "reason"),
    [({"x": np.zeros(2)}, "unknown state 'x'; the states are before, older$"),
     ({"before": np.zeros(3)}, r"float64\[3\], but the model takes float64\[2\]$"),
     ({"before": np.zeros(2, "float32")}, r"float32\[2\], but the model takes float64\[2\]$"),
     ([], "state is a list; give the array of each state by its name")],
)  # fmt: skip
def test_a_value_that_is_no_state_is_refused_with_what_is_one(state, reason):
    with summing() as pipeline, pytest.raises(ConfigError, match=reason):
        pipeline.reset(state=state)


def test_a_stream_begins_with_the_states_of_the_model():
    first = {"before": np.array([3.0, 4.0]), "older": np.zeros(2)}
    by_hand = ByHand(SUM, ["y", "total", "last"], STATES)
    by_hand.left[0] = first
    wiring = replace(summing().wiring, initial={"before": first["before"]})
    with Pipeline(wiring, [[FakeStage(SUM, ports)] for ports in wiring.stages]) as pipeline:
        assert plain([pipeline.state("new")]) == plain([first])
        assert plain(pipeline.run(items(3))) == [by_hand.step(item) for item in items(3)]


def test_stages_get_the_one_of_two_equal_types_that_runtimes_know():
    x, h, renewed = (Port(name, (), "int64") for name in "xhn")
    spec = StageSpec.planned((), [x, h], [renewed])
    spec = replace(spec, states=(StageState("h", "n", (), "int64"),))
    stage = Mock(Stage, run=Mock(side_effect=lambda values: values[1:]))
    wiring = Wiring((x,), (), (spec,), (Connection("x", "x", (0,), ()),))
    other = np.zeros((), np.longlong)  # onnxruntime's scalars have it
    with Pipeline(wiring, [[stage]]) as pipeline:
        pipeline.reset(state={"h": other})
        pipeline.run([{"x": other}])
    (values,) = stage.run.call_args.args
    assert [value.dtype.char for value in values] == [np.dtype("int64").char] * 2


def test_an_old_ticket_of_a_stream_keeps_no_later_one():
    with summing() as pipeline:
        first, second = (pipeline.enter(item) for item in items(2))
        pipeline.result(second)
        later = weakref.ref(second)
        del second
        pipeline.run(items(2))
        gc.collect()
        assert (first.done(), later()) == (True, None)


def test_a_stream_that_is_reset_halfway_is_forgotten_with_its_last_item():
    net = graph([("y", ["x", "h"])], ["x", "h"], ["y"])
    goes_on = threading.Event()
    pipeline, replicas = fake_pipeline(
        net, [[0]], ["y"], before={0: lambda _: goes_on.wait(10)}, replicas=[2], states={"h": "y"}
    )
    with pipeline:
        ticket = pipeline.enter(items(1)[0], stream="a")
        pipeline.reset(stream="a")
        assert not ticket.cancel()
        goes_on.set()
        in_time(lambda: pipeline.result(ticket))
        assert plain([pipeline.state("a")]) == plain([{"h": np.zeros(2)}])
        # Its replica has room for other streams; each goes to that with the fewest.
        for stream in "bcd":
            pipeline.run(items(1), stream=stream)
    assert [len(replica.seen) for replica in replicas] == [3, 1]


def test_a_split_that_tears_a_state_apart_is_refused():
    with pytest.raises(SplitError, match=r"state 'before'.*stage 1.*stage 2"):
        fake_pipeline(SUM, THREE, ["y", "total", "last"], states={"before": "last"})


@given(recurrent(BOTH), st.integers(0, 6), st.lists(st.integers(0, 3), min_size=1, max_size=25))
def test_a_failure_leaves_no_stream_half_advanced_and_closes_all_replicas(net, at, calls):
    net, stages, outputs, states, replicas = net
    by_hand = ByHand(net, outputs, states)

    def fail(number):
        if number == at:
            raise OSError

    options = {"before": {at % len(stages): fail}, "replicas": replicas, "states": states}
    pipeline, replicas = fake_pipeline(net, stages, outputs, **options)
    submitted, message = zip(items(len(calls), BOTH), calls, strict=True), ""
    with pipeline:
        reader = pipeline.results()
        try:
            for number, (item, stream) in enumerate(submitted):
                if number >= pipeline.capacity:
                    in_time(lambda: next(reader))
                pipeline.submit(item, stream=stream)
                by_hand.step(item, stream)
            for _ in range(min(len(calls), pipeline.capacity)):
                in_time(lambda: next(reader))
        except StageError as error:
            message = str(error)
        lost = set()
        for stream in set(calls):
            left = by_hand.left.get(stream, {name: np.zeros(2) for name in states})
            try:
                assert plain([pipeline.state(stream)]) == plain([left])
            except StageError:
                lost.add(str(stream))
    assert lost == set(message.partition("lost streams: ")[2].split(", ")) - {""}
    assert not message or f"stage {at % len(stages)} failed: OSError" in message
    # What failed was an item of some stream.
    assert bool(lost) == bool(message and states)
    assert [replica.closed for replica in replicas] == [1] * len(replicas)


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("replicas", [1, 2])
def test_an_item_that_fails_loses_its_stream_until_a_reset_and_no_other(stage, replicas):
    class Picky(FakeStage):
        def run(self, values):
            if self._ports.index == stage and np.isnan(values[0]).any():
                raise OSError("bad item")
            return super().run(values)

    by_hand, bad = ByHand(SUM, ["y", "total", "last"], STATES), {"x": np.full(2, np.nan)}
    good = items(8)
    expected = [by_hand.step(item) for item in good]
    text = f"stage {stage} failed on this item: OSError: bad item"
    with summing(replicas=[replicas] * 3, kind=Picky) as pipeline:
        assert plain(pipeline.run(good[:4], "a")) == plain(pipeline.run(good[:4], "b"))
        inside = [pipeline.enter(item, "a") for item in (bad, *good)]
        others = [pipeline.enter(item, "b") for item in good[4:]]
        for ticket in inside:
            with pytest.raises(StageError, match=text):
                in_time(lambda ticket=ticket: pipeline.result(ticket))
        assert plain(in_time(lambda: list(map(pipeline.result, others)))) == expected[4:]
        for use in (pipeline.state, partial(pipeline.run, good)):
            with pytest.raises(StageError, match=f"lost, reset it: .*{text}"):
                use(stream="a")
        pipeline.reset("a")
        assert plain(in_time(lambda: pipeline.run(good, "a"))) == expected
        assert plain([pipeline.state("b")]) == plain([by_hand.left[0]])


@pytest.mark.parametrize("stream", [[], {}, [1]])
def test_a_stream_that_cannot_be_a_key_is_refused_and_closes_nothing(stream):
    (item,) = items(1)
    with summing() as pipeline:
        uses = (pipeline.run, [item]), (pipeline.submit, item), (pipeline.reset,), (pipeline.state,)
        for use, *arguments in uses:
            with pytest.raises(ConfigError, match="cannot be a key; use a number or a text"):
                use(*arguments, stream=stream)
        assert len(pipeline.run([item])) == 1


def test_reading_a_state_holds_up_no_other_stream():
    is_slow, asked, answered = threading.Event(), threading.Event(), threading.Event()

    def numpy():
        if is_slow.is_set():
            is_slow.clear()
            asked.set()
            answered.wait(60)
        return np.zeros(2)

    wiring, far = summing().wiring, SimpleNamespace(numpy=numpy)
    stages = [Mock(Stage, run=Mock(return_value=[far] * len(s.outputs))) for s in wiring.stages]
    with Pipeline(wiring, [[stage] for stage in stages]) as pipeline:
        pipeline.run(items(1), stream="a")
        is_slow.set()
        with ThreadPoolExecutor(1) as reader:
            reader.submit(pipeline.state, "a")
            try:
                assert asked.wait(60)
                assert in_time(lambda: pipeline.run(items(1), stream="b"), 10)
            finally:
                answered.set()


def test_an_item_that_the_states_have_no_room_for_is_refused_and_closes_nothing():
    net = replace(SUM, states=match_states(SUM, [(o, o) for o in SUM.outputs], STATES))
    wiring = replace(wire(net, THREE, [(o, o) for o in SUM.outputs]), steps=2)
    stages = [[FakeStage(net, ports)] for ports in wiring.stages]
    with Pipeline(wiring, stages) as pipeline:
        interrupt = patch.object(pipeline._engine, "wait_for", side_effect=KeyboardInterrupt)
        with interrupt, pytest.raises(KeyboardInterrupt):
            pipeline.run(items(1), stream="a")
        first = plain(pipeline.run(items(2), stream="a"))
        with pytest.raises(ConfigError, match="stream 'a' has had 2 items and its states are full"):
            pipeline.submit(items(1)[0], stream="a")
        with pytest.raises(ConfigError, match="unknown state"):
            pipeline.reset("a", state={"no": np.zeros(2)})
        with pytest.raises(ConfigError, match="its states are full"):
            pipeline.submit(items(1)[0], stream="a")
        left = pipeline.state("a")
        assert plain(pipeline.run(items(2), stream="b")) == first
        pipeline.reset("a")
        assert plain(pipeline.run(items(2), stream="a")) == first
        assert plain([pipeline.state("a")]) == plain([left])
        pipeline.reset("a", state=left)  # how full these are is not known
        assert len(pipeline.run(items(2), stream="a")) == 2
