from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import matplotlib.axes
import pytest

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.record import Study
from autosplit.report.drawing.study import convergence, stage_times, throughput_latency

CHARTS = (convergence, stage_times, throughput_latency)
ZERO = Spread(0.0, 0.0, 0.0)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was drawn under which name in the legend."""
    found: dict[str, Any] = {}
    real = matplotlib.axes.Axes.legend

    def legend(axes: Any, handles: Any, labels: Any, **style: Any) -> Any:
        found.update(zip(labels, handles, strict=True))
        return real(axes, handles, labels, **style)

    monkeypatch.setattr(matplotlib.axes.Axes, "legend", legend)
    return found


def test_convergence_shows_best_so_far_bound_and_the_best_way_without_splitting(
    study: Study, drawn: Any
) -> None:
    convergence(study)
    best = list(drawn["best so far"].get_ydata())
    assert best == sorted(best, reverse=True)
    assert min(best) == study.best().period_ms.median
    assert list(drawn["lower bound"].get_ydata()) == [10.25, 10.25]
    assert list(drawn["without splitting: replicas"].get_ydata()) == [10.4, 10.4]


def test_stage_times_have_a_row_a_stage_and_leave_the_failed_trial_out(
    study: Study, drawn: Any
) -> None:
    stage_times(study)
    first = drawn["stage 0, cores:0"].get_ydata()
    assert list(first) == [t.stage_ms[0] for t in study.trials if t.state == "complete"]
    assert len(drawn["period"].get_xdata()) == 11


def test_the_pareto_front_has_no_point_that_another_beats(study: Study, drawn: Any) -> None:
    throughput_latency(study)
    line = drawn["Pareto front of the trials"]
    front = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    points = [(t.latency_ms.median, 1000 / t.period_ms.median) for t in study.trials if t.period_ms]
    assert all(not (x < a and y > b) for a, b in front for x, y in points)
    assert {"one core", "all cores", "replicas"} <= set(drawn)


def test_the_final_comparison_is_marked(study: Study, drawn: Any) -> None:
    again = replace(study, duel={8: Spread(9.0, 9.0, 9.0)})
    convergence(again)
    throughput_latency(again)
    assert list(drawn["final comparison"].get_ydata()) == [9.0]
    assert list(drawn["best, compared again"].get_ydata()) == [1000 / 9.0]


@pytest.mark.parametrize("chart", CHARTS)
def test_odd_studies_are_drawn(study: Study, chart: Any) -> None:
    wide = replace(study.trials[0], stage_ms=(1.0,) * 256)
    odd = [
        replace(study, trials=(), baselines=(), bound_ms=None),
        replace(study, trials=(wide,)),
        replace(study, trials=(replace(wide, period_ms=ZERO, latency_ms=ZERO),), bound_ms=0.0),
        replace(
            study, baselines=tuple(Baseline(f"${i}", ZERO, Spread(1, 1, 1)) for i in range(300))
        ),
        replace(study, devices=("$x_{",) * 2),
    ]
    for each in odd:
        assert ElementTree.fromstring(chart(each, form="svg")).tag.endswith("svg")
