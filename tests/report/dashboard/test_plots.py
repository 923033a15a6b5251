"""The plots of the dashboard's study page: what is drawn, not how."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from autosplit.errors import MachineError
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.dashboard import plots
from autosplit.report.documents.record import Study, Trial

pytest.importorskip("plotly")


def trial(number: int, period: float | None, stages: tuple[float, ...] = (), **more: Any) -> Trial:
    spread = None if period is None else Spread(period, period - 1, period + 2)
    found = Trial(
        number, "complete", (), (), spread, more.pop("latency", None), stages, None, None, ""
    )
    return replace(found, **more)


def flat(value: float) -> Spread:
    return Spread(value, value, value)


TRIALS = (
    trial(0, 8.0, (8.0, 3.0), predicted_ms=6.0, latency=flat(11.0)),
    trial(1, None, state="fail"),
    trial(2, 10.0, (4.0, 10.0), latency=flat(14.0)),
    trial(4, 5.0, (5.0,), predicted_ms=9.0, latency=flat(20.0)),
)
STUDY = Study(
    "s",
    None,
    ("<b>a</b>", "b"),
    (),
    4.0,
    (Baseline("one core", flat(20.0), flat(20.0)),),
    "",
    "",
    "",
    {},
    {},
    TRIALS,
)


def drawn(figure: Any) -> dict[str, list[tuple[Any, Any]]]:
    return {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data}


def test_every_stage_has_a_bar_in_the_trials_that_have_it_and_failed_trials_have_none() -> None:
    found = drawn(plots.study_plots(STUDY)["stage-times"])
    assert found == {
        "stage 0, &lt;b&gt;a&lt;/b&gt;": [(0, 8.0), (2, 4.0), (4, 5.0)],
        "stage 1, b": [(0, 3.0), (2, 10.0)],
        "period": [(0, 8.0), (2, 10.0), (4, 5.0)],
    }


def test_convergence_has_the_best_so_far_the_spread_and_the_bound() -> None:
    figure = plots.study_plots(STUDY)["convergence"]
    found = drawn(figure)
    assert found["measured"] == [(0, 8.0), (2, 10.0), (4, 5.0)]
    assert found["best so far"] == [(0, 8.0), (2, 8.0), (4, 5.0)]
    assert found["lower bound"] == [(0, 4.0), (4, 4.0)]
    error = figure.data[0].error_y
    assert (list(error.array), list(error.arrayminus)) == ([2.0] * 3, [1.0] * 3)
    assert "lower bound" not in drawn(
        plots.study_plots(replace(STUDY, bound_ms=None))["convergence"]
    )


def test_throughput_and_latency_of_trials_and_baselines() -> None:
    found = drawn(plots.study_plots(STUDY)["throughput-latency"])
    assert found["trials"] == [(11.0, 125.0), (14.0, 100.0), (20.0, 200.0)]
    assert found["Pareto front"] == [(11.0, 125.0), (20.0, 200.0)]
    assert found["one core"] == [(20.0, 50.0)]


def test_what_was_predicted_stands_against_what_was_measured() -> None:
    found = drawn(plots.study_plots(STUDY)["predicted-measured"])
    assert found["trials"] == [(6.0, 8.0), (9.0, 5.0)]
    assert found["equal"] == [(5.0, 5.0), (9.0, 9.0)]
    assert "equal" not in drawn(plots.predicted_measured([]))


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([], ""),
        ([(1, 1, "a")], "a"),
        ([(2, 1, "a"), (1, 2, "b")], "b"),
        ([(1, 1, "a"), (2, 2, "b"), (3, 2, "c"), (4, 3, "d")], "abd"),
        ([(1, 1, "a"), (1, 2, "b")], "b"),
    ],
)
def test_the_front_gives_more_throughput_for_more_latency(points: list[Any], front: str) -> None:
    assert "".join(name for _, _, name in plots.pareto(points)) == front


def test_a_study_without_trials_has_empty_plots() -> None:
    for figure in plots.study_plots(replace(STUDY, trials=(), baselines=())).values():
        assert not any(len(trace.x) for trace in figure.data)


def test_plotly_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MachineError, match=r"pip install 'autosplit\[dashboard\]'"):
        plots.study_plots(STUDY)
