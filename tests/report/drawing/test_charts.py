import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autosplit.hardware.measurement.results import LoadPoint, LoadTest, Spread
from autosplit.report.documents.record import Study
from autosplit.report.drawing import charts
from autosplit.study.record import Figures, FinalComparison, StudyRecord
from studies.simulation.bench import exact
from tests.report.studies import changed, trial


def timed(number, period, stages=(), **more):
    spread = None if period is None else Spread(period, period - 1, period + 2)
    return trial(number, spread, stage_ms=stages, **more)


def baseline(name, period, **more):
    """A baseline as it is stored."""
    document = {"name": name, "period_ms": exact(period), "latency_ms": exact(20.0), **more}
    return StudyRecord(baselines=[document]).baselines[0]


def chart_of(study, number):
    """A chart by its place on the page."""
    return charts.study_charts(study)[number]


ZERO = exact(0.0)
STUDY = changed(
    Study("s"),
    devices=("<b>a</b>", "b"),
    bound_ms=4.0,
    baselines=(baseline("one core", 20.0),),
    trials=(
        timed(0, 8.0, (8.0, 3.0), predicted_ms=6.0, latency_ms=exact(11.0)),
        timed(1, None, state="fail"),
        timed(2, 10.0, (4.0, 10.0), latency_ms=exact(14.0)),
        timed(4, 5.0, (5.0,), predicted_ms=9.0, latency_ms=exact(20.0)),
    ),
)


def points(chart):
    return {s.name: [(x, y) for x, y, _ in s.points] for s in chart.series}


def test_convergence_has_the_best_so_far_the_bound_and_the_best_baseline():
    chart = chart_of(STUDY, 0)
    assert points(chart) == {
        "in the search": [(0, 8.0), (2, 10.0), (4, 5.0)], "one core": [(0, 20.0)],
        "best so far": [(0, 8.0), (2, 8.0), (4, 5.0)], "predicted bound": [(0, 4.0)],
    }  # fmt: skip
    assert [(s.low, s.high) for s in chart.series[0].spreads] == [(7, 10), (9, 12), (4, 7)]


def test_throughput_and_latency_of_trials_and_baselines():
    assert points(chart_of(STUDY, 1)) == {
        "in the search": [(11.0, 125.0), (14.0, 100.0), (20.0, 200.0)],
        "Pareto front": [(11.0, 125.0), (20.0, 200.0)],
        "baselines": [(20.0, 50.0)],
    }


def test_the_final_comparison_is_charted_from_its_own_measurements():
    final = {4: Figures(period_ms=exact(6.0), latency_ms=exact(21.0))}
    final[2] = Figures(period_ms=exact(9.0))
    trials = tuple(replace(t, final=final.get(t.number)) for t in STUDY.trials)
    again = changed(STUDY, trials=trials)
    assert points(chart_of(again, 0))["final comparison"] == [(2, 9.0), (4, 6.0)]
    assert points(chart_of(again, 1))["final comparison"] == [(21.0, 1000 / 6)]
    searched = [points(chart_of(study, 1))["in the search"] for study in (again, STUDY)]
    assert searched[0] == searched[1]


def test_many_baselines_are_told_apart_by_their_names():
    names = [f"baseline {i}" for i in range(10)]
    many = changed(STUDY, baselines=tuple(baseline(n, 9.0 + i) for i, n in enumerate(names)))
    picture = chart_of(many, 1).draw().render().decode()
    assert [f">{name}</text>" in picture for name in names] == [True] * 10


def test_goodput_is_charted_against_the_cores_that_it_takes():
    def load(goodput):
        return LoadTest((), 5.0, 100.0, 1.0, limit_ms=20.0, goodput=goodput)

    loads = {"0": load(80.0), "4": load(150.0), "one core": load(70.0), "2": load(None)}
    devices = {0: (("cores:0", "cores:0"),), 4: (("cores:0,1",), ("ray:n/cores:2-3",))}
    trials = [
        replace(t, record=t.record.model_copy(update={"devices": devices[t.number]}))
        for t in STUDY.trials
        if t.number in devices
    ]
    baselines = (baseline("one core", 20.0, devices=["cores:0"]),)
    comparison = FinalComparison(loads=loads)
    served = changed(STUDY, trials=trials, baselines=baselines, final_comparison=comparison)
    assert points(chart_of(served, 3)) == {
        "Pareto front": [(1, 80), (4, 150)],
        "deployments": [(1, 80), (4, 150), (1, 70)],
    }


NO_POINTS = LoadPoint(1.0, 9, {}), LoadPoint(math.nan, 9, {"p99": exact(math.nan)})
ODD = {
    "empty": changed(STUDY, trials=(), baselines=(), bound_ms=None),
    "no trials": changed(STUDY, trials=()),
    "many stages": changed(STUDY, trials=(timed(0, 1.0, (1.0,) * 256, latency_ms=exact(1.0)),)),
    "zero": changed(STUDY, trials=(trial(0, ZERO, latency_ms=ZERO),), bound_ms=0.0),
    "many baselines": changed(STUDY, baselines=tuple(baseline(f"${i}", 0.0) for i in range(300))),
    "hostile": changed(
        STUDY,
        trials=(trial(0, exact(1e-306), latency_ms=exact(1.7e308)),),
        final_comparison=FinalComparison(loads={"0": LoadTest(NO_POINTS, math.nan, math.inf)}),
    ),
}


@pytest.mark.parametrize("study", ODD.values(), ids=ODD)
def test_odd_studies_are_drawn(study):
    for chart in charts.study_charts(study):
        assert ElementTree.fromstring(chart.draw().render()).tag.endswith("svg")
