import gc
import itertools
import time
import weakref
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from autosplit.errors import StageError
from autosplit.hardware.measurement import open_loop
from autosplit.hardware.measurement.open_loop import load_test, open_latencies
from autosplit.hardware.measurement.results import LoadPoint, LoadTest, Spread, spread
from autosplit.planner.workload import WARM_UP, Workload
from tests.hardware.fakes import fake_pipeline, graph, in_time, items

ONE_OP = graph([("y", ["x"])], ["x"], ["y"])


def slow_pipeline(seconds, batch=1):
    before = {0: lambda number: time.sleep(seconds)}
    return fake_pipeline(ONE_OP, [[0]], ["y"], before=before, batch=batch)[0]


def test_an_item_that_has_to_wait_is_late():
    with slow_pipeline(0.02) as pipeline:
        latencies = open_latencies(pipeline, items(3), Workload(1000.0), 100)
    # Each takes 20 times as long as it has, so that delays add up, even of those not yet sent.
    assert 2 <= len(latencies) < 100
    assert latencies == sorted(latencies)
    assert latencies[-1] - latencies[0] > 10 * (len(latencies) - 1)


@pytest.mark.parametrize("limit", [None, 1e3, 1.0])
def test_no_further_item_comes_once_the_limit_is_surely_exceeded(limit):
    workload = Workload(200.0, limit_ms=limit)
    with slow_pipeline(0.002) as pipeline:
        latencies = open_latencies(pipeline, items(3), workload, 100)
    assert (len(latencies) < 100) == (limit == 1.0)
    if limit == 1.0:
        timed = spread(latencies[int(WARM_UP * len(latencies)) :], share=workload.share)
        assert timed.median > limit


class Clock:
    """A time that passes only in ``sleep``."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(
    ("pauses", "sent"), [((), {100}), ((50,), {200}), ((50, 150), range(150, 160))]
)
def test_a_moment_of_a_machine_that_stands_still_is_no_fault_of_a_rate(monkeypatch, pauses, sent):
    clock, numbers = Clock(), itertools.count()
    monkeypatch.setattr(open_loop, "time", clock)

    def enter(*_):
        clock.sleep(0.02 if next(numbers) in pauses else 0)
        done = Future()
        done.set_result({})
        return done

    pipeline = SimpleNamespace(enter=enter, wiring=SimpleNamespace(steps=None))
    workload = Workload(1000.0, limit_ms=5.0, quantile="p90")
    monkeypatch.setattr(Workload, "arrivals", lambda self, count: np.arange(count) * 1.0)
    assert len(open_latencies(pipeline, items(1), workload, 100)) in sent


@pytest.mark.parametrize("batch", [1, 4])
def test_every_item_of_a_batch_is_timed_and_none_is_kept(batch):
    tickets, alive = [], []
    pipeline = slow_pipeline(0.001, batch)

    def enter(*item, usual=pipeline.enter):
        alive.append(sum(ticket() is not None for ticket in tickets))
        tickets.append(weakref.ref(ticket := usual(*item)))
        return ticket

    pipeline.enter = enter
    gc.disable()  # what refers to itself would stay
    try:
        with pipeline.with_delay(1):
            latencies = open_latencies(pipeline, items(3), Workload(500.0), 200)
    finally:
        gc.enable()
    assert len(latencies) == 200
    assert min(latencies) >= 1
    assert max(alive) <= pipeline.limit


def test_a_stage_that_fails_is_an_error():
    fail = Mock(side_effect=ValueError("broken"))
    pipeline, _ = fake_pipeline(ONE_OP, [[0]], ["y"], before={0: fail})
    with pipeline, pytest.raises(StageError, match="broken"):
        open_latencies(pipeline, items(3), Workload(1000.0), 10)


def test_no_full_collection_of_garbage_stops_the_pipeline():
    thresholds, inside = gc.get_threshold(), []
    before = {0: lambda _: inside.append(gc.get_threshold())}
    with fake_pipeline(ONE_OP, [[0]], ["y"], before=before)[0] as pipeline:
        open_latencies(pipeline, items(1), Workload(1000.0), 3)
    assert {(*thresholds[:2], 1_000_000)} == set(inside)
    assert gc.get_threshold() == thresholds


def test_the_first_item_of_a_very_low_rate_is_not_waited_for():
    with slow_pipeline(0.001) as pipeline:
        latencies = in_time(lambda: open_latencies(pipeline, items(1), Workload(1e-9), 1))
    assert len(latencies) == 1


def point(rate, p99):
    times = {"p50": 1.0, "p90": 1.0, "p95": p99 - 6, "p99": p99}
    return LoadPoint(rate, 900, {name: Spread(ms, ms, ms) for name, ms in times.items()})


@pytest.fixture
def rates(monkeypatch):
    """The rates that were measured; items are late above 70 a second."""
    rates = []

    def measured(pipeline, items, workload, *_):
        rates.append(workload.rate)
        return point(workload.rate, 20.0 if workload.rate <= 70 else 20.1)

    monkeypatch.setattr(open_loop, "load_point", measured)
    return rates


@pytest.mark.parametrize(("quantile", "limit"), [("p99", 20.0), ("p95", 14.0)])
def test_goodput_is_bisected_to_the_greatest_rate_within_the_limit(rates, quantile, limit):
    with fake_pipeline(ONE_OP, [[0]], ["y"])[0] as pipeline:
        asked = Workload(50.0, limit, quantile=quantile)
        test = load_test(pipeline, items(1), asked, 1.0, 100.0)
    assert rates == [50, 80, 40, 60, 70, 75, 72.5]
    assert (test.goodput, test.exceeded, test.at(None).rate) == (70, 72.5, 70)
    assert test.at(50).rate == 50
    assert [p.rate for p in test.points] == sorted(rates)
    assert test.text == (
        f"goodput 70 items/s within {quantile} {limit:g} ms: "
        "70% of the 100 items/s with all items waiting"
    )


@pytest.mark.parametrize(
    ("least", "tried", "goodput"),
    [(64.0, [64, 82, 73, 68.5, 70.75, 69.625], 69.625), (72.0, [72], None)],
)
def test_a_goodput_below_the_least_stays_unknown(rates, least, tried, goodput):
    with fake_pipeline(ONE_OP, [[0]], ["y"])[0] as pipeline:
        test = load_test(pipeline, items(1), Workload(limit_ms=20.0), 1.0, 100.0, least=least)
    assert (rates, test.goodput) == (tried, goodput)


def test_a_limit_below_the_latency_of_a_lone_item_says_what_is_possible():
    with slow_pipeline(0.002) as pipeline:
        pipeline.wiring = replace(pipeline.wiring, steps=2)  # items that a stream has room for
        test = load_test(pipeline, items(1), Workload(limit_ms=1.0), 1.0, 100.0)
    assert (test.points, test.goodput) == ((), 0.0)
    assert test.text.startswith("p99 1 ms is not possible: an item that comes alone takes ")


def test_a_quantile_has_the_interval_of_order_statistics():
    p99 = spread([float(n) for n in range(1, 1001)], share=0.99)
    assert (p99.median, p99.low, p99.high) == (990, 984, 998)


def test_the_line_of_a_rate_says_why_it_is_doubted():
    assert point(50, 20).text == "50 items/s: latency p50 1 ms, p99 20 ms"
    times = {"p50": Spread(1, 1, 1), "p99": Spread(20, 18, 23)}
    noisy = LoadPoint(50, 9, times, ("a neighbour",))
    doubts = "; of only 9 items, it may look too good: measure longer; not to be trusted: "
    assert noisy.text.endswith(f"p99 20 ms (18 to 23){doubts}a neighbour")
    assert LoadTest((), 1.0, 100.0).text == ""
