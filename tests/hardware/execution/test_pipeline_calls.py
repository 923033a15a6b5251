"""A result belongs to its item, whatever fails, is interrupted or runs at the same time."""

import itertools
import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from autosplit.errors import ConfigError, StageError
from tests.hardware.fakes import PATIENCE_S, computed, fake_pipeline, graph, in_time, plain

SKIP = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b", "a", "x"])], ["x"], ["c", "b"])
STAGES = [[0], [1], [2]]


def new_pipeline(depth=1, before=None, replicas=(1, 1, 1)):
    return fake_pipeline(SKIP, STAGES, ["c", "b"], depth, before=before, replicas=replicas)[0]


def outputs_of(numbers):
    return computed(SKIP, map(item_of, numbers), ["c", "b"])


def item_of(number):
    return {"x": np.array([number, -number], dtype=float)}


def interrupt():
    """Press Ctrl-C: the signal wakes the main thread from a wait."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def failing_source(numbers, error):
    """Some items, then one that does not fit or another error."""
    yield from map(item_of, numbers)
    if error is ConfigError:
        yield {"x": np.zeros(3)}
    raise error


def test_an_interrupted_reader_loses_no_result():
    is_reading, may_go_on = threading.Event(), threading.Event()

    def interrupt_once(number):
        if number == 1:
            is_reading.wait(PATIENCE_S)
            interrupt()
            # A signal just before the wait for the result is handled only when the result comes.
            may_go_on.wait(0.2)

    with new_pipeline(before={2: interrupt_once}) as pipeline:
        for number in range(3):
            pipeline.submit(item_of(number))
        assert plain([next(pipeline.results())]) == outputs_of([0])
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal may come before the read
            is_reading.set()
            next(pipeline.results())
        may_go_on.set()
        results = pipeline.results()
        assert plain(in_time(lambda: [next(results), next(results)])) == outputs_of([1, 2])


def test_results_that_were_there_before_a_failure_can_be_read():
    breaks = {1: lambda number: 1 // (number < 2)}
    with new_pipeline(before=breaks) as pipeline:
        pipeline.submit(item_of(0))
        pipeline.run([item_of(1)])
        with pytest.raises(StageError):
            pipeline.run([item_of(2)])
        results = pipeline.results()
        assert plain([in_time(lambda: next(results))]) == outputs_of([0])
        with pytest.raises(StageError, match=r"ZeroDivisionError.*the pipeline is closed"):
            in_time(lambda: next(results))


def test_a_run_whose_source_waits_does_not_hold_other_callers_back():
    gate = threading.Event()

    def slow_source():
        yield from map(item_of, range(4))
        assert gate.wait(PATIENCE_S)

    with new_pipeline() as pipeline, ThreadPoolExecutor(1) as thread:
        slow = thread.submit(pipeline.run, slow_source())
        results = in_time(lambda: pipeline.run(map(item_of, range(50))))
        assert plain(results) == outputs_of(range(50))
        gate.set()
        assert plain(slow.result(PATIENCE_S)) == outputs_of(range(4))


class Calls(RuleBasedStateMachine):
    """Any sequence of calls on one pipeline; every item has a number of its own."""

    def __init__(self):
        super().__init__()
        self.pipeline = None
        self.numbers = itertools.count()
        self.interrupt_at = self.fail_at = math.inf  # how many items of stage 1 come before it
        self.has_failed = False
        self.counting = threading.Lock()
        self.unread = []

    @initialize(replicas=st.sampled_from([(1, 1, 1), (2, 3, 2)]))
    def start(self, replicas):
        self.pipeline = new_pipeline(before={1: self.before}, replicas=replicas)

    def before(self, number):
        with self.counting:
            self.interrupt_at, self.fail_at = self.interrupt_at - 1, self.fail_at - 1
            if self.interrupt_at == -1:
                interrupt()
            if self.fail_at < 0:
                raise OSError

    def take_numbers(self, count):
        return list(itertools.islice(self.numbers, count))

    def teardown(self):
        if self.pipeline:
            self.pipeline.close()

    @rule(count=st.integers(0, 12))
    def run(self, count):
        numbers = self.take_numbers(count)
        if self.has_failed:
            with pytest.raises(StageError):
                self.pipeline.run(map(item_of, [*numbers, 0]))
        else:
            assert plain(self.pipeline.run(map(item_of, numbers))) == outputs_of(numbers)

    @precondition(lambda self: not self.has_failed)
    @rule(count=st.integers(0, 12), error=st.sampled_from([OSError, ConfigError]))
    def run_a_source_that_raises(self, count, error):
        numbers, results = self.take_numbers(count), []
        with pytest.raises(error):
            results.extend(self.pipeline.map(failing_source(numbers, error)))
        assert plain(results) == outputs_of(numbers)  # those before are not lost

    @precondition(lambda self: not self.has_failed)
    @rule(at=st.integers(0, 11))
    def run_interrupted(self, at):
        # Items that are inside from before count too: fewer than 12 may be left when it comes.
        self.pipeline.run([item_of(0)])
        self.interrupt_at = at
        with pytest.raises(KeyboardInterrupt):
            self.pipeline.run(map(item_of, self.take_numbers(12)))

    @precondition(lambda self: not self.has_failed)
    @rule(sizes=st.lists(st.integers(0, 9), min_size=2, max_size=4))
    def run_at_once(self, sizes):
        calls = [self.take_numbers(size) for size in sizes]
        with ThreadPoolExecutor(len(calls)) as threads:
            results = threads.map(lambda numbers: self.pipeline.run(map(item_of, numbers)), calls)
            assert list(map(plain, results)) == list(map(outputs_of, calls))

    @precondition(lambda self: len(self.unread) < self.pipeline.capacity)
    @rule()
    def submit(self):
        (number,) = self.take_numbers(1)
        if self.has_failed:
            with pytest.raises(StageError):
                self.pipeline.submit(item_of(number))
        else:
            self.pipeline.submit(item_of(number))
            self.unread.append(number)

    @precondition(lambda self: self.unread)
    @rule()
    def read(self):
        number = self.unread.pop(0)
        try:
            result = next(self.pipeline.results())
        except StageError:
            assert self.has_failed
        else:
            assert plain([result]) == outputs_of([number])

    @precondition(lambda self: not self.has_failed)
    @rule(at=st.integers(0, 5))
    def run_a_stage_that_fails(self, at):
        self.fail_at = at
        with pytest.raises(StageError):
            self.pipeline.run(map(item_of, self.take_numbers(6)))
        self.has_failed = True


TestAnySequenceOfCalls = Calls.TestCase
TestAnySequenceOfCalls.settings = settings(stateful_step_count=20)
