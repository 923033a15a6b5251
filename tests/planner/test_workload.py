"""The simulation of a deployment under load, against queueing theory and by its properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import Stage
from autosplit.planner import workload
from autosplit.planner.workload import Server, Station, Workload, goodput, latencies, quantile_at

ARRIVALS = 1_000_000


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_replica_with_equal_times_is_the_queue_m_d_1(load):
    server = Server((Station((2.0,)),))
    mean = latencies(server, Workload(500 * load).arrivals(ARRIVALS, seed=1)).mean()
    assert mean == pytest.approx(2.0 + 2.0 * load / (2 * (1 - load)), rel=0.01)


def erlang_c(replicas, load):
    """The probability of waiting in M/M/c; ``load`` is that of all replicas, in replicas."""
    waiting = load**replicas / math.factorial(replicas) * replicas / (replicas - load)
    idle = sum(load**n / math.factorial(n) for n in range(replicas))
    return waiting / (idle + waiting)


@pytest.mark.parametrize(("replicas", "load"), [(1, 0.6), (2, 0.7), (4, 0.8)])
def test_replicas_with_exponential_times_are_the_queue_m_m_c(replicas, load):
    # Quantiles of the exponential distribution with mean 1, as many as to make it smooth.
    levels = (np.arange(20_000) + 0.5) / 20_000
    server = Server((Station(tuple(-np.log1p(-levels)), replicas),))
    arrivals = Workload(1e3 * replicas * load).arrivals(ARRIVALS, seed=2)
    mean = latencies(server, arrivals, seed=3).mean()
    busy = replicas * load
    assert mean == pytest.approx(1 + erlang_c(replicas, busy) / (replicas - busy), rel=0.01)


def test_equal_times_of_replicas_are_served_as_one_by_one():
    arrivals, times = Workload(1500.0).arrivals(3000), (1.0, 1.0)
    fast = latencies(Server((Station((1.0,), 2), Station((0.5,)))), arrivals)
    slow = latencies(Server((Station(times, 2), Station((0.5, 0.5)))), arrivals)
    np.testing.assert_allclose(fast, slow)


TEN = Station((10.0,))


@pytest.mark.parametrize(
    ("server", "arrivals", "expected"),
    [
        # A batch waits for its delay or until it is full.
        (Server((TEN,), 3, 4.0), [0.0, 1, 100, 101, 102], [14, 13, 12, 11, 10]),
        # It grows while no replica is free.
        (Server((TEN,), 4), [0.0, 1, 6, 30], [10, 19, 14, 10]),
        # One that is not full enters while fewer are inside than replicas: the second waits for
        # the first stage, the third until the first batch is through.
        (Server((TEN, TEN), 4), [0.0, 1, 2, 3], [20, 29, 38, 37]),
    ],
)
def test_when_a_batch_enters(server, arrivals, expected):
    assert latencies(server, np.array(arrivals)).tolist() == expected


stations = st.lists(
    st.builds(
        Station, st.lists(st.floats(0.1, 5), min_size=1, max_size=3).map(tuple), st.integers(1, 3)
    ),
    min_size=1,
    max_size=3,
)
servers = st.builds(Server, stations.map(tuple), st.integers(1, 5), st.floats(0, 5))


@given(server=servers, gaps=st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_no_item_is_served_before_it_arrives_and_single_replicas_keep_the_order(server, gaps):
    arrivals = np.cumsum(gaps)
    shortest = sum(min(station.times_ms) for station in server.stations)
    assert latencies(server, arrivals).min() >= shortest - 1e-9
    single = Server(tuple(Station(s.times_ms) for s in server.stations), server.batch)
    assert np.all(np.diff(arrivals + latencies(single, arrivals)) >= -1e-9)


@given(server=servers, limits=st.tuples(st.floats(1, 60), st.floats(1, 60)).map(sorted))
def test_a_higher_limit_allows_no_lower_rate(server, limits):
    low, high = (goodput(server, Workload(limit_ms=limit), lambda _: 400) for limit in limits)
    assert low <= high


def test_goodput_keeps_the_limit_and_a_higher_rate_does_not():
    server = Server((Station((4.0,), 2), Station((1.5,))), batch=2, delay_ms=1.0)
    rate = goodput(server, Workload(limit_ms=20.0))
    assert quantile_at(server, Workload(rate)) <= 20.0 < quantile_at(server, Workload(1.02 * rate))
    assert rate < server.capacity


TIGHT = Workload(limit_ms=30.0)  # for batches that take 20 ms


def test_a_batch_waits_as_long_as_serves_most_and_a_single_item_not_at_all():
    stages = (Stage.on([0], "tvm", ["cpu:0", "cpu:1"], batch=16),)
    rate, delay = workload.served(TIGHT, stages, [20 / 16], 10 / 16)
    assert delay == pytest.approx(9)
    fixed = Workload(limit_ms=30.0, delay_ms=0.0)
    assert rate > 300 > workload.served(fixed, stages, [20 / 16], 10 / 16)[0]
    assert workload.served(TIGHT, (Stage.on([0], "tvm", ["cpu:0"]),), [20.0], 20.0)[1] == 0


def test_a_lower_quantile_within_the_same_limit_allows_a_higher_rate():
    server = Server((Station((4.0,)),))
    rates = [goodput(server, Workload(limit_ms=20.0, quantile=q)) for q in ("p99", "p95", "p50")]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_a_rate_is_measured_with_enough_items_and_one_that_nothing_keeps_with_no_more():
    numbers = [workload.items_measured(rate, 5.0) for rate in (1000.0, 50.0, 1.0, 0.001)]
    assert numbers == [5000, 1000, 60, 1]
    assert workload.items_measured(1e12, 5) == workload.items_measured(1e9, 5) <= 1_000_000


def test_arrivals_follow_each_other_as_the_times_do_on_the_scale_of_the_rate():
    bursts = Workload(rate=100.0, times=(3.0, 3.0, 5.0, 5.0, 7.0))
    assert bursts.arrivals(6).tolist() == [0, 20, 20, 40, 40, 60]
    server = Server((Station((1.0,)),))
    assert quantile_at(server, bursts) > quantile_at(server, Workload(100.0, times=(0.0, 1.0)))


def test_a_quantile_is_one_of_the_values():
    assert workload.quantile(np.arange(1.0, 101.0), 0.99) == 99.0
