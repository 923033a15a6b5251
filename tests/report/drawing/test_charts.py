"""The charts of a study: what they hold, and that they can be drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing import charts
from autosplit.report.drawing.plot import plot


def trial(number: int, period: float | None, stages: tuple[float, ...] = (), **more: Any) -> Trial:
    spread = None if period is None else Spread(period, period - 1, period + 2)
    more = {"state": "complete", "period_ms": spread, "stage_ms": stages} | more
    return Trial(number, **more)


def flat(value: float) -> Spread:
    return Spread(value, value, value)


ZERO = flat(0.0)
STUDY = Study(
    "s",
    devices=("<b>a</b>", "b"),
    bound_ms=4.0,
    baselines=(Baseline("one core", flat(20.0), flat(20.0)),),
    trials=(
        trial(0, 8.0, (8.0, 3.0), predicted_ms=6.0, latency_ms=flat(11.0)),
        trial(1, None, state="fail"),
        trial(2, 10.0, (4.0, 10.0), latency_ms=flat(14.0)),
        trial(4, 5.0, (5.0,), predicted_ms=9.0, latency_ms=flat(20.0)),
    ),
)
EMPTY = replace(STUDY, trials=(), baselines=(), bound_ms=None)


def points(chart: charts.Chart) -> dict[str, list[tuple[float, float]]]:
    return {s.name: list(zip(s.x, s.y, strict=True)) for s in chart.series}


def test_every_stage_has_a_point_in_the_trials_that_have_it_and_failed_trials_have_none() -> None:
    assert points(charts.stage_times(STUDY)) == {
        "stage 0, <b>a</b>": [(-0.1, 8.0), (1.9, 4.0), (3.9, 5.0)],
        "stage 1, b": [(0.1, 3.0), (2.1, 10.0)],
        "period": [(0, 8.0), (2, 10.0), (4, 5.0)],
    }


def test_convergence_has_the_best_so_far_the_bound_and_the_best_baseline() -> None:
    chart = charts.convergence(STUDY)
    assert points(chart) == {
        "measured": [(0, 8.0), (2, 10.0), (4, 5.0)],
        "best so far": [(0, 8.0), (2, 8.0), (4, 5.0)],
        "without splitting: one core": [(0, 20.0), (4, 20.0)],
        "predicted bound": [(0, 4.0), (4, 4.0)],
    }
    assert [(s.low, s.high) for s in chart.series[0].spreads] == [(7, 10), (9, 12), (4, 7)]


def test_throughput_and_latency_of_trials_and_baselines() -> None:
    assert points(charts.throughput_latency(STUDY)) == {
        "trials": [(11.0, 125.0), (14.0, 100.0), (20.0, 200.0)],
        "Pareto front of the trials": [(11.0, 125.0), (20.0, 200.0)],
        "one core": [(20.0, 50.0)],
    }


def test_predictions_stand_against_measurements() -> None:
    predicted = points(charts.predicted_measured(STUDY))
    assert predicted == {"trials": [(6.0, 8.0), (9.0, 5.0)], "equal": [(5.0, 5.0), (9.0, 9.0)]}
    assert "equal" not in points(charts.predicted_measured(EMPTY))


def test_the_final_comparison_is_marked() -> None:
    again = replace(STUDY, final_comparison={4: flat(6.0), 2: flat(9.0)})
    assert points(charts.convergence(again))["final comparison"] == [(2, 9.0), (4, 6.0)]
    throughput = points(charts.throughput_latency(again))
    assert throughput["best, compared again"] == [(20.0, 1000 / 6)]


@pytest.mark.parametrize(
    ("measured", "names"),
    [
        ([], ""),
        ([(1, 1, "a")], "a"),
        ([(2, 1, "a"), (1, 2, "b")], "b"),
        ([(1, 1, "a"), (2, 2, "b"), (3, 2, "c"), (4, 3, "d")], "abd"),
        ([(1, 1, "a"), (1, 2, "b")], "b"),
    ],
)
def test_the_front_gives_more_throughput_for_more_latency(measured: list[Any], names: str) -> None:
    assert "".join(name for _, _, name in charts.pareto_front(measured)) == names


WIDE = trial(0, 1.0, (1.0,) * 256, latency_ms=flat(1.0))
ODD = {
    "empty": EMPTY,
    "no trials": replace(STUDY, trials=()),
    "many stages": replace(STUDY, trials=(WIDE,)),
    "zero": replace(STUDY, trials=(replace(WIDE, period_ms=ZERO, latency_ms=ZERO),), bound_ms=0.0),
    "many baselines": replace(
        STUDY, baselines=tuple(Baseline(f"${i}", ZERO, flat(1.0)) for i in range(300))
    ),
    "mathematics": replace(STUDY, devices=("$x_{",) * 2),
}


@pytest.mark.parametrize("study", ODD.values(), ids=ODD)
def test_odd_studies_are_drawn(study: Study) -> None:
    for chart in charts.study_charts(study):
        assert ElementTree.fromstring(plot(chart).render()).tag.endswith("svg")


def test_a_mark_says_its_trial_and_its_value() -> None:
    titles = ElementTree.fromstring(plot(charts.convergence(STUDY)).render()).iter(
        "{http://www.w3.org/2000/svg}title"
    )
    assert "measured, trial 2: 10 ms" in [title.text for title in titles]
