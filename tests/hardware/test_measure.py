"""Measuring with a clock one turns by hand: what counts is which results are timed, not how long a machine takes."""

import numpy as np
import pytest

from autosplit.hardware import measure
from autosplit.hardware.measure import Budget
from autosplit.hardware.pipeline import Event
from tests.hardware.fakes import fake_pipeline, graph, in_time, items

CHAIN = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b"])], ["x"], ["c"])


def test_completions_are_the_ends_of_the_last_stage_by_item():
    events = [
        Event(0, 0, 0.0, 1.0),
        Event(1, 0, 1.0, 3.0),
        Event(0, 1, 1.0, 2.0),
        Event(1, 1, 3.0, 5.0),
        Event(0, 2, 2.0, 9.0),
    ]
    assert measure.completions(events, 0, 2) == [3.0, 5.0]
    assert measure.completions(events, 1, 3) == [5.0, 9.0]


def test_gaps_of_a_short_stream_are_its_gaps():
    assert measure.gaps([0.0, 0.001, 0.003]) == pytest.approx([1.0, 2.0])


def test_gaps_of_a_long_stream_are_means_of_neighbours():
    """Results in threes, 0, 0 and 3 ms apart, have a period of 1 ms; their median gap would say 0."""
    ends = [3e-3 * (i // 3) for i in range(65)]
    assert 0.7 < np.median(measure.gaps(ends)) < 1.3


def test_results_of_two_that_work_in_step_are_averaged_in_pairs():
    ends = [0.05 * (i // 2) + 1e-4 * (i % 2) for i in range(9)]
    assert measure.gaps(ends, 2) == pytest.approx([25.0] * 4)


@pytest.mark.parametrize(
    "budget", [Budget(seconds=0.05, items=8), Budget(seconds=1e-9, items=5), Budget(seconds=0.05, share=0.0)]
)
def test_a_pipeline_is_empty_again_after_measuring(budget):
    pipeline, stages = fake_pipeline(CHAIN, [[0], [1], [2]], ["c"], trace=True)
    with pipeline:
        period, busy = in_time(lambda: measure.period_and_stages(pipeline, items(3), budget))
        latency = in_time(lambda: measure.latency(pipeline, items(3), budget))
        assert len(in_time(lambda: pipeline.run(items(2)))) == 2
    assert 0 < period.low <= period.median <= period.high
    assert (len(busy), len(latency.samples)) == (3, budget.latency_items)
    assert len({len(s.seen) for s in stages}) == 1


def test_at_least_the_items_asked_for_are_timed():
    pipeline, _ = fake_pipeline(CHAIN, [[0], [1], [2]], ["c"], trace=True)
    with pipeline:
        period, _ = in_time(
            lambda: measure.period_and_stages(pipeline, items(3), Budget(seconds=1e-9, items=12, share=0))
        )
    assert len(period.samples) >= 12


def test_a_failing_stage_ends_the_measurement():
    def fail(item):
        if item == 10:
            raise RuntimeError("broken")

    from autosplit.errors import StageError

    pipeline, _ = fake_pipeline(CHAIN, [[0], [1], [2]], ["c"], trace=True, before={1: fail})
    with pytest.raises(StageError, match="broken"):
        in_time(lambda: measure.period_and_stages(pipeline, items(3), Budget(seconds=20, share=0)))
