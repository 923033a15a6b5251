import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, MachineError, StageError
from autosplit.hardware.execution.batches import of_batch
from autosplit.hardware.execution.pipeline import Pipeline
from tests.hardware.fakes import computed, fake_pipeline, graph, in_time, items, plain

OUTPUTS = ["c", "a", "y"]  # one of them is an input
CHAIN = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b", "y"])], ["x", "y"], OUTPUTS)
two_inputs = partial(items, inputs=("x", "y"))


def chain(stages=((0,), (1, 2)), **options):
    return fake_pipeline(CHAIN, stages, OUTPUTS, **options)


def require_single_results(results, submitted):
    assert plain(results) == computed(CHAIN, submitted, OUTPUTS)


@given(
    batch=st.integers(1, 5),
    count=st.integers(0, 23),
    depth=st.integers(1, 3),
    replicas=st.sampled_from([(1, 1), (2, 1), (1, 3)]),
    delay_ms=st.sampled_from([None, 0, 0.1, 2]),
)
def test_items_of_batches_have_the_results_of_single_ones(batch, count, depth, replicas, delay_ms):
    pipeline, _ = chain(depth=depth, replicas=replicas, batch=batch)
    submitted = two_inputs(count)
    with pipeline.with_delay(delay_ms):
        require_single_results(in_time(lambda: pipeline.run(submitted)), submitted)


def test_an_incomplete_batch_is_computed_once_a_result_is_waited_for():
    pipeline, stages = chain(batch=4)
    submitted = two_inputs(6)
    with pipeline:
        for item in submitted:
            pipeline.submit(item)
        require_single_results(in_time(lambda: list(islice(pipeline.results(), 6))), submitted)
        assert len(stages[0].seen) == 2
        in_time(lambda: pipeline.run(two_inputs(10)))
        pipeline.submit(submitted[0])
        pipeline.with_delay(1)  # of those that come later
        require_single_results([in_time(lambda: next(pipeline.results()))], submitted[:1])
    assert [len(stage.seen) for stage in stages] == [2 + 3 + 1] * 2


@pytest.mark.parametrize("delay_ms", [1e13, 1e300])
def test_a_batch_may_wait_for_longer_than_the_system_can_count(delay_ms):
    pipeline, _ = chain(batch=2)
    submitted = two_inputs(2)
    with pipeline.with_delay(delay_ms):
        first = pipeline.enter(submitted[0])
        time.sleep(0.05)  # the thread that would let it in begins to wait
        tickets = [first, pipeline.enter(submitted[1])]
        results = in_time(lambda: [pipeline.result(ticket) for ticket in tickets])
    require_single_results(results, submitted)


@pytest.mark.parametrize("delay_ms", [None, 0.1])
def test_items_enter_as_those_inside_leave(delay_ms):
    pipeline, _ = chain(batch=2, depth=1, before={1: lambda _: time.sleep(0.002)})
    submitted = two_inputs(60)
    with pipeline.with_delay(delay_ms):
        tickets = in_time(lambda: [pipeline.enter(item) for item in submitted])
        results = in_time(lambda: [pipeline.result(ticket) for ticket in tickets])
    require_single_results(results, submitted)


def test_threads_that_share_batches_get_the_results_of_their_own_items():
    pipeline, _ = chain(batch=3)
    every = two_inputs(40)
    parts = [every[n::4] for n in range(4)]
    with pipeline, ThreadPoolExecutor(4) as threads:
        for results, part in zip(threads.map(pipeline.run, parts), parts, strict=True):
            require_single_results(results, part)


def test_an_interrupt_leaves_a_full_batch_to_the_next_caller():
    pipeline, _ = chain(batch=2)
    submitted = two_inputs(3)
    with pipeline:
        first = pipeline.enter(submitted[0])
        interrupted = patch.object(pipeline._engine, "enter", side_effect=KeyboardInterrupt)
        with interrupted, pytest.raises(KeyboardInterrupt):
            pipeline.enter(submitted[1])
        results = in_time(lambda: [*pipeline.run(submitted[2:]), pipeline.result(first)])
    require_single_results(results, [submitted[2], submitted[0]])


def test_a_pipeline_is_collected_while_a_batch_enters():
    pipelines = [chain(batch=2)[0]]
    with pipelines[0]._batches._entering:  # as the thread does that lets a batch in
        in_time(pipelines.clear, 5)


def failing(count, bad, **options):
    """A pipeline whose stage 1 fails on one of some items, as a kernel does on a bad index."""
    pipeline, stages = chain(**options)
    submitted = two_inputs(count)
    submitted[bad]["y"] = np.full(2, 1313.0)
    compute = stages[-1].run

    def run(values):
        if any((array == 1313).any() for array in values):
            raise ValueError("index 1313 is out of bounds")
        return compute(values)

    stages[-1].run = run
    return pipeline, submitted


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("replicas", [(1, 1), (1, 2)])
def test_a_replica_that_computes_nothing_any_more_closes_the_pipeline(batch, replicas):
    # So slow that the items inside keep both replicas busy.
    slow = {1: lambda _: time.sleep(0.002)}
    pipeline, stages = chain(replicas=replicas, batch=batch, before=slow)
    with pipeline:
        in_time(lambda: pipeline.run(two_inputs(8 * batch)))
        stages[-1].run = Mock(side_effect=ValueError("the process is gone"))
        inside = "items" if batch == 1 else "batches"
        with pytest.raises(StageError, match=f"is gone; the pipeline is closed; {inside} inside: "):
            in_time(lambda: [pipeline.run(two_inputs(8)) for _ in range(100)])


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("replicas", [(1, 1), (2, 1)])
def test_an_item_that_fails_does_not_fail_its_neighbours(replicas, batch):
    pipeline, submitted = failing(8, 2, replicas=replicas, batch=batch)
    with pipeline:
        tickets = [pipeline.enter(item) for item in submitted]
        assert not tickets[0].cancel()  # nor does one that its caller gives up
        text = "stage 1 failed on this item: ValueError: index 1313"
        with pytest.raises(StageError, match=text):
            in_time(lambda: pipeline.result(tickets.pop(2)))
        results = in_time(lambda: [pipeline.result(ticket) for ticket in tickets])
        require_single_results(results, [*submitted[:2], *submitted[3:]])
        require_single_results(in_time(lambda: pipeline.run(submitted[3:])), submitted[3:])


def test_a_bad_first_batch_ends_neither_the_pipeline_nor_its_results():
    entered = threading.Event()
    pipeline, submitted = failing(4, 0, batch=2, before={0: lambda _: entered.wait()})
    submitted[1] = submitted[0]
    with pipeline:
        results = pipeline.results()
        for item in submitted:
            pipeline.submit(item)
        entered.set()
        for _ in range(2):
            with pytest.raises(StageError, match="on this item"):
                in_time(lambda: next(results))
        require_single_results(in_time(lambda: [next(results), next(results)]), submitted[2:])


def test_items_whose_batch_cannot_run_again_get_the_reason(monkeypatch):
    pipeline, submitted = failing(2, 0, batch=2)
    monkeypatch.setattr(np, "concatenate", Mock(side_effect=MemoryError("no room")))
    with pipeline:
        tickets = [pipeline.enter(item) for item in submitted]
        for ticket in tickets:
            with pytest.raises(MemoryError, match="no room"):
                ticket.result(5)


def test_a_batch_that_is_due_goes_on_collecting_while_all_replicas_are_busy():
    release = threading.Event()
    pipeline, stages = chain([[0, 1, 2]], before={0: lambda _: release.wait()}, batch=4)
    submitted = two_inputs(4)
    with pipeline.with_delay(0):
        tickets = [pipeline.enter(item) for item in submitted]
        assert not tickets[1].cancel()  # others of its batch would never be done
        release.set()
        results = in_time(lambda: [pipeline.result(ticket) for ticket in tickets])
        require_single_results(results, submitted)
    assert len(stages[0].seen) == 2


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_closing_fails_the_items_of_a_batch_that_has_not_begun(delay_ms):
    release = threading.Event()
    pipeline, _ = chain(before={0: lambda _: release.wait()}, batch=4)
    _, last = [pipeline.with_delay(delay_ms).enter(item) for item in two_inputs(2)]
    release.set()
    pipeline.close()
    with pytest.raises(StageError, match="closed"):
        in_time(lambda: pipeline.result(last))


@pytest.mark.parametrize("delay_ms", [None, 0])
def test_whoever_hands_in_an_item_gets_the_reason_why_stages_do_not_load(delay_ms):
    load = Mock(side_effect=MachineError("no such library"))
    single = chain()[0].wiring
    inputs, outputs = of_batch(single.inputs, 2), of_batch(single.outputs, 2)
    wiring = replace(single, inputs=inputs, outputs=outputs)
    pipeline = Pipeline(wiring, load, batch=2, counts=(1, 1)).with_delay(delay_ms)
    (item,) = two_inputs(1)
    with pytest.raises(MachineError, match="no such library"):
        in_time(lambda: pipeline.run([item]))
    with pytest.raises(StageError, match="did not start: MachineError: no such library"):
        in_time(lambda: pipeline.run([item]))


@pytest.mark.parametrize("delay_ms", [-1, float("nan"), float("inf")])
def test_a_delay_is_a_time(delay_ms):
    pipeline, _ = chain(batch=2)
    with pipeline, pytest.raises(ConfigError, match="delay_ms is"):
        pipeline.with_delay(delay_ms)
