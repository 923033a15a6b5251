"""Stages with several replicas: shared items, results in order, and failures of one of them."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosplit.errors import StageError
from autosplit.hardware.execution.edges import Ticket
from autosplit.hardware.execution.stage_queue import StageQueue
from tests.hardware.execution.test_pipeline import (
    CHAIN,
    SKIP,
    THREE,
    Broken,
    expected_of,
    values_of,
    wirings,
)
from tests.hardware.fakes import PATIENCE_S, fake_pipeline, in_time, items, wait_for


@st.composite
def deployments(draw):
    """A wiring of ``wirings`` and the replicas of each stage."""
    net, stages, outputs, inputs = draw(wirings())
    replicas = [draw(st.integers(1, 3)) for _ in stages]
    return net, stages, outputs, inputs, replicas


@settings(max_examples=80, deadline=None)
@given(deployments(), st.integers(1, 3), st.integers(0, 30), st.randoms(use_true_random=False))
def test_any_replicas_compute_what_the_unsplit_graph_does_and_never_hang(
    deployment, depth, count, random
):
    net, stages, outputs, inputs, replicas = deployment
    # Some items are slow, so the items behind them overtake.
    pauses = [random.choice([0.0, 0.0, 0.001]) for _ in range(7)]
    before = {s: lambda number: time.sleep(pauses[number % 7]) for s in range(len(stages))}
    pipeline, _ = fake_pipeline(net, stages, outputs, depth, before=before, replicas=replicas)
    submitted = items(count, inputs)
    with pipeline:
        results = in_time(lambda: pipeline.run(submitted))
    assert values_of(results, outputs) == expected_of(net, submitted, outputs)


@settings(max_examples=40, deadline=None)
@given(deployments(), st.data())
def test_whichever_replica_fails_the_pipeline_fails_and_closes_all(deployment, data):
    net, stages, outputs, inputs, replicas = deployment
    failing = data.draw(st.integers(0, len(stages) - 1))
    number = data.draw(st.integers(0, 3))

    def fail(item):
        if item == number:
            raise Broken

    pipeline, fakes = fake_pipeline(net, stages, outputs, before={failing: fail}, replicas=replicas)
    with pytest.raises(StageError, match=f"stage {failing} failed: Broken"):
        # One of the replicas gets so many items.
        in_time(lambda: pipeline.run(items(replicas[failing] * number + 1, inputs)))
    in_time(pipeline.close)
    assert [fake.closed for fake in fakes] == [1] * len(fakes)


def test_all_replicas_of_a_stage_work_at_the_same_time():
    meeting = threading.Barrier(3)
    before = {1: lambda number: meeting.wait(PATIENCE_S)}
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], depth=1, before=before, replicas=[1, 3, 1])
    with pipeline:
        assert len(in_time(lambda: pipeline.run(items(9)))) == 9


def test_a_slow_replica_takes_fewer_items_and_results_keep_their_order():
    pipeline, replicas = fake_pipeline(CHAIN, THREE, ["c"], replicas=[1, 2, 1])
    slow, fast = replicas[1:3]
    run = slow.run

    def run_when_many_are_done(values):
        wait_for(lambda: len(fast.seen) >= 3 * (len(slow.seen) + 1))
        return run(values)

    slow.run = run_when_many_are_done
    with pipeline:
        results = in_time(lambda: pipeline.run(items(20)))
    assert values_of(results, "c") == expected_of(CHAIN, items(20), "c")
    assert len(slow.seen) + len(fast.seen) == 20
    assert 1 <= len(slow.seen) <= 5


def test_a_replica_that_stands_still_holds_the_others_back_only_after_some_items():
    gate = threading.Event()
    pipeline, replicas = fake_pipeline(CHAIN, THREE, ["c"], depth=1, replicas=[2, 1, 1])
    stuck, other = replicas[:2]
    run = stuck.run

    def run_late(values):
        gate.wait(PATIENCE_S)
        return run(values)

    stuck.run = run_late
    with pipeline:
        # The first replica that asks gets item 0; either way the other one goes on.
        for item in items(pipeline.capacity):
            pipeline.submit(item)
        wait_for(lambda: len(other.seen) >= 2)
        gate.set()
        assert len(in_time(lambda: pipeline.run(items(8)))) == 8


def test_an_item_that_skips_replicated_stages_meets_its_other_inputs():
    stages = [[0], [1], [2], [3], [4]]
    pipeline, _ = fake_pipeline(SKIP, stages, ["e", "b"], depth=1, replicas=[2, 3, 1, 2, 3])
    with pipeline:
        results = in_time(lambda: pipeline.run(items(200)))
    assert values_of(results, ["e", "b"]) == expected_of(SKIP, items(200), ["e", "b"])


def test_capacity_and_threads_count_every_replica():
    pipeline, replicas = fake_pipeline(CHAIN, THREE, ["c"], depth=3, replicas=[1, 2, 1])
    assert pipeline.capacity == 3 * (4 + 1)
    assert pipeline.replicas == (1, 2, 1)
    with pipeline:
        in_time(lambda: pipeline.run(items(2)))
        assert sorted(pipeline.threads.values()) == [0, 1, 1, 2]
        names = {thread.name for thread in threading.enumerate()}
    assert {"stage 0", "replica 0 of stage 1", "replica 1 of stage 1"} <= names
    assert len({replica.thread for replica in replicas}) == 4


def test_an_event_names_its_replica():
    pipeline, _ = fake_pipeline(CHAIN, THREE, ["c"], trace=True, replicas=[1, 2, 1])
    with pipeline:
        in_time(lambda: pipeline.run(items(6)))
    assert sorted((e.stage, e.item) for e in pipeline.events) == [
        (stage, item) for stage in range(3) for item in range(6)
    ]
    assert {e.replica for e in pipeline.events if e.stage != 1} == {0}


def test_a_full_queue_has_room_for_older_items_alone():
    queue = StageQueue(threading.RLock(), replicas=2, depth=1, has_states=False)
    with queue.changed:
        for number in (4, 2):
            assert queue.has_room(5)
            queue.put(Ticket(number, [], [], {}, "", None))
        assert [queue.has_room(number) for number in (1, 3, 5)] == [True, False, False]
        assert queue.take(0).number == 2
        assert queue.has_room(5)


def test_replicas_that_are_held_back_are_woken_once():
    queue = StageQueue(threading.RLock(), replicas=2, depth=1, has_states=False)
    queue.is_held_back = True
    with queue.changed:
        queue.wake_held_back()
    assert queue.is_held_back is False
