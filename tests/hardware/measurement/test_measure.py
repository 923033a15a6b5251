import math
import time
from functools import partial
from itertools import accumulate, count
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit import phases
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget, compare_interleaved, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from tests.hardware.fakes import CHAIN, Scripted, chain, fake_pipeline, graph, in_time, items


@pytest.mark.parametrize(
    "budget",
    [Budget(seconds=0.05, items=8), Budget(seconds=1e-9, items=5), Budget(seconds=0.05, share=0.0)],
)
def test_a_pipeline_is_empty_again_after_measuring(budget):
    pipeline, stages = chain(trace=True)
    with pipeline:
        period, busy = in_time(lambda: measure.period_and_busy(pipeline, items(3), budget))
        latency = in_time(lambda: measure.latency(pipeline, items(3), budget))
        assert len(in_time(lambda: pipeline.run(items(2)))) == 2
    assert 0 < period.low <= period.median <= period.high
    assert len(busy) == 3
    assert 1 <= len(latency.samples) <= budget.latency_items
    assert len({len(s.seen) for s in stages}) == 1


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_replicas_of_a_stage_with_states_share_the_items_of_several_streams(streams):
    net = graph([("y", ["x", "h"])], ["x", "h"], ["y"])
    options = {"states": {"h": "y"}, "replicas": [3], "trace": True}
    pipeline, stages = fake_pipeline(net, [[0]], ["y"], **options)
    budget = Budget(seconds=1e-9, items=12, share=0)
    with pipeline:
        in_time(lambda: measure.period_and_busy(pipeline, items(3), budget, streams))
    runs = [len(stage.seen) for stage in stages if stage.seen]
    assert len(runs) == streams
    assert max(runs) - min(runs) <= 1


def test_at_least_one_result_of_each_replica_is_timed():
    pipeline, _ = fake_pipeline(CHAIN, [[0], [1, 2]], ["c"], trace=True, replicas=[1, 7])
    with pipeline:
        budget = Budget(seconds=1e-9, items=3, share=0)
        period, _ = in_time(lambda: measure.period_and_busy(pipeline, items(3), budget))
    assert period.median > 0


FILL = 6 + 3  # six items inside, and one more for each of three stages


def steady(takes, budget, clock=lambda: 0.0):
    scripted = Scripted(takes)
    period, busy = measure.period_and_busy(scripted, [{}], budget, clock=clock)
    return period, [ms for (ms,) in busy], scripted


def test_neither_the_fill_nor_the_drain_of_the_pipeline_counts():
    usual = [2.0, 3.0, 3.0, 4.0] * 4
    takes = dict(enumerate(usual, FILL))
    budget = Budget(seconds=1.0, share=1.0, items=len(usual))
    period, busy, scripted = steady(lambda i: takes.get(i, 500.0), budget)
    assert len(scripted.submitted) == FILL + len(usual) + scripted.capacity
    assert scripted.most_inside == scripted.capacity
    assert 2.0 <= period.low <= period.median <= period.high <= 4.0
    assert busy == pytest.approx([0.25, 3.0, 0.25])


def test_items_of_an_earlier_measurement_do_not_count():
    pace, budget = [500.0], Budget(share=0.01, items=16)
    scripted = Scripted(lambda i: pace[0])
    for pace[0] in (500.0, 2.0):
        before = len(scripted.submitted)
        period, busy = measure.period_and_busy(scripted, [{}], budget, clock=lambda: 0.0)
        assert (period.median, *busy[1]) == pytest.approx((pace[0], pace[0]))
        assert len(scripted.submitted) - before == FILL + 16 + scripted.capacity


def test_replicas_share_the_time_of_their_stage():
    options = {"trace": True, "before": {1: lambda _: time.sleep(0.004)}, "replicas": [1, 2]}
    pipeline, _ = fake_pipeline(CHAIN, [[0], [1, 2]], ["c"], **options)
    with pipeline:
        budget = Budget(seconds=0.2, items=30)
        period, busy = in_time(lambda: measure.period_and_busy(pipeline, items(3), budget))
    assert list(map(len, busy)) == [1, 2]
    # A sleep of 4 ms takes at least as long; each of the two works for half of it a result.
    assert sum(busy[1]) > 3.5
    assert max(busy[1]) <= period.median


def test_a_measurement_that_settles_ends_before_its_time_but_not_on_fewer_than_six_times():
    _, _, scripted = steady(lambda i: 2.0, Budget(seconds=1e9, share=0.01, items=16))
    assert len(scripted.submitted) < 60
    period, _, _ = steady(lambda i: 2.0, Budget(seconds=1e9, share=0.01, items=1))
    assert len(period.samples) >= 6


def test_a_measurement_that_does_not_settle_ends_with_its_time():
    ticks = count()
    budget = Budget(100.0, 0.0, 4)
    period, _, scripted = steady(lambda i: 1.0 + i % 7, budget, lambda: float(next(ticks)))
    assert 100 <= len(scripted.submitted) <= 130
    assert period.low < period.high


def test_a_budget_without_time_still_times_its_items_and_reports_that_it_goes_on():
    ticks, reports = count(0, 30), []
    with phases.listening(lambda *report: reports.append(report)):
        period, _, _ = steady(lambda i: 2.0, Budget(1.0, 0.0, 100), lambda: float(next(ticks)))
    assert len(period.samples) == pytest.approx(100 // 6, abs=1)  # averaged in sixes
    assert reports == [("running", {"1f": "1"})] * 2  # so that a hang names its stage


def test_latency_lasts_from_submission_to_the_end_of_the_last_stage():
    scripted = Scripted(lambda i: 10.0 * (i + 1))
    latency = measure.latency(scripted, [{}], Budget(latency_items=3))
    assert latency.samples == pytest.approx((10.5, 20.5, 30.5))
    assert scripted.most_inside == 1


@given(st.lists(st.floats(0, 1), min_size=2, max_size=200), st.integers(1, 4))
def test_gaps_add_up_to_the_time_they_span(steps, sources):
    ends = list(accumulate(steps))
    samples = measure.gaps(ends, sources)
    width = sources * max(1, (len(ends) - 1) // (16 * sources))
    covered = len(samples) * width
    assert sum(samples) * width / 1e3 == pytest.approx(ends[covered] - ends[0], abs=1e-6)
    assert len(ends) - 1 - covered <= width


# who works when in an interleaved comparison, for how long, and what becomes of the samples


@pytest.fixture
def contenders():
    """Three contenders; the samples of a turn are its number and a mark of the contender."""
    turns = count(1)

    def work(name, budget):
        return Spread(1.0, 1.0, 1.0, (float(next(turns)), 100.0 * name))

    return [Mock(side_effect=partial(work, n)) for n in range(3)]


@pytest.mark.parametrize(
    ("items", "rounds", "each"), [(100, 5, 20), (16, 5, 4), (2, 1, 4), (40, 8, 5)]
)
def test_a_turn_has_its_share_of_the_budget(contenders, items, rounds, each):
    budget = Budget(seconds=10.0, share=0.5, items=items, latency_items=7)
    list(measure_rounds(contenders, budget, rounds))
    for contender in contenders:
        assert contender.call_args_list == [call(Budget(10.0 / rounds, 0.0, each, 7))] * rounds


def test_a_period_is_that_of_the_samples_of_all_turns(contenders):
    periods = compare_interleaved(contenders, Budget())
    assert sorted(periods[0].samples) == [0] * 6 + [1, 6, 7, 12, 13, 18]
    assert sorted(periods[1].samples) == [2, 5, 8, 11, 14, 17] + [100] * 6
    assert (periods[0].low, periods[0].median) == (0, 0.5)
    assert compare_interleaved([], Budget()) == []


def test_rounds_in_which_the_machine_is_slow_hide_no_difference():
    slowness = (1.0, 2.0, 1.5, 1.0, 3.0, 1.25)
    faster = Mock(side_effect=[spread((10.0 * s, 11.0 * s)) for s in slowness])
    slower = Mock(side_effect=[spread((12.0 * s, 13.0 * s)) for s in slowness])
    fast, slow = compare_interleaved([faster, slower], Budget())
    assert slow.median / fast.median == pytest.approx(12.5 / 10.5)
    assert fast.high < slow.low
    lone = compare_interleaved([Mock(side_effect=[spread((s,)) for s in slowness])], Budget())
    assert sorted(lone[0].samples) == sorted(slowness)


def test_a_single_item_that_takes_longer_than_a_turn_is_its_only_latency():
    slow = Scripted(lambda i: 2000.0)
    budget = Budget(seconds=1.0, latency_items=3)
    assert len(measure.latency(slow, [{}], budget, lambda: slow.now).samples) == 1


def test_few_samples_give_their_range():
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, (3.0, 1.0, 2.0))


def coverage(count):
    """How often the interval of ``count`` samples contains the median of their distribution."""
    interval = spread(list(map(float, range(count))))
    # The interval contains the median if this many samples are below the median.
    below = range(int(interval.low) + 1, int(interval.high) + 1)
    return sum(math.comb(count, k) for k in below) / 2**count


@pytest.mark.parametrize("count", [*range(6, 60), 99, 100, 500, 501])
def test_the_interval_covers_95_percent_and_hardly_more(count):
    assert 0.945 <= coverage(count) <= (0.99 if count < 20 else 0.98)
