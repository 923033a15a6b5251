"""The plots of a study for the dashboard's study page, as plotly figures that need nothing from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autosplit.extras import require
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.style import INK, colour

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def study_plots(study: Study) -> dict[str, Figure]:
    """The plots by name: stage times, throughput against latency, convergence, predicted against measured.

    Raises MachineError where plotly is missing.
    """
    require("plotly.graph_objects", "dashboard")
    measured = [t for t in study.trials if t.state == "complete" and t.period_ms]
    return {
        "stage-times": stage_times(study, measured),
        "throughput-latency": throughput_latency(study, measured),
        "convergence": convergence(study, measured),
        "predicted-measured": predicted_measured(measured),
    }


def stage_times(study: Study, trials: list[Trial]) -> Figure:
    """Busy time of every stage in every trial, and the measured period, which the slowest stage decides."""
    figure = _figure("Stage times", "trial", "ms")
    for stage in range(max((len(t.stage_ms) for t in trials), default=0)):
        own = [t for t in trials if stage < len(t.stage_ms)]
        name = f"stage {stage}" + (
            f", {_plain(device)}" if (device := study.device_of(stage)) else ""
        )
        x, y = [t.number for t in own], [t.stage_ms[stage] for t in own]
        figure.add_bar(x=x, y=y, name=name, marker={"color": colour(stage)})
    x, y = [t.number for t in trials], [t.period_ms.median for t in trials if t.period_ms]
    figure.add_scatter(
        x=x,
        y=y,
        name="period",
        mode="markers",
        marker={"color": INK, "symbol": "line-ew-open", "size": 14},
    )
    figure.update_layout(barmode="group")
    return figure


def throughput_latency(study: Study, trials: list[Trial]) -> Figure:
    """Each trial and baseline by its latency and throughput; the line joins those no other beats in both."""
    figure = _figure("Throughput against latency", "latency, ms", "results a second")
    points = [
        (t.latency_ms.median, 1000 / t.period_ms.median, f"trial {t.number}")
        for t in trials
        if t.latency_ms and t.period_ms and t.period_ms.median
    ]
    front = pareto(points)
    figure.add_scatter(
        x=[p[0] for p in points], y=[p[1] for p in points], text=[p[2] for p in points],
        mode="markers", name="trials", marker={"color": colour(0), "size": 9},
    )  # fmt: skip
    figure.add_scatter(
        x=[p[0] for p in front], y=[p[1] for p in front], text=[p[2] for p in front],
        mode="lines+markers", name="Pareto front", line={"color": colour(5), "shape": "hv"},
        marker={"symbol": "circle-open", "size": 14},
    )  # fmt: skip
    for i, b in enumerate(
        b for b in study.baselines if b.period_ms.median and b.latency_ms.median > 0
    ):
        marker = {
            "color": colour(2),
            "symbol": ("square", "diamond", "triangle-up", "cross")[i % 4],
            "size": 12,
        }
        y = [1000 / b.period_ms.median]
        figure.add_scatter(
            x=[b.latency_ms.median], y=y, mode="markers", name=_plain(b.name), marker=marker
        )
    return figure


def pareto(points: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """The points (latency, throughput, name) no other beats: less latency and more throughput, by latency."""
    front: list[tuple[float, float, str]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front


def convergence(study: Study, trials: list[Trial]) -> Figure:
    """Periods in the order they were measured, the best so far, and the lower bound."""
    figure = _figure("Convergence", "trial", "period, ms")
    x = [t.number for t in trials]
    spreads = [t.period_ms for t in trials if t.period_ms]
    y = [s.median for s in spreads]
    error = {"array": [max(0.0, s.high - s.median) for s in spreads],
             "arrayminus": [max(0.0, s.median - s.low) for s in spreads], "symmetric": False}  # fmt: skip
    figure.add_scatter(
        x=x, y=y, error_y=error, mode="markers", name="measured", marker={"color": colour(0)}
    )
    best = [min(y[: i + 1]) for i in range(len(y))]
    figure.add_scatter(
        x=x, y=best, mode="lines", name="best so far", line={"color": colour(5), "shape": "hv"}
    )
    if study.bound_ms is not None and x:
        ends, bound = [x[0], x[-1]], [study.bound_ms] * 2
        figure.add_scatter(
            x=ends, y=bound, mode="lines", name="lower bound", line={"color": INK, "dash": "dash"}
        )
    return figure


def predicted_measured(trials: list[Trial]) -> Figure:
    """What the cost model said against what was measured; on the line the model was right."""
    figure = _figure("Predicted against measured", "predicted period, ms", "measured period, ms")
    known = [
        (t.predicted_ms, t.period_ms.median, t.number)
        for t in trials
        if t.predicted_ms is not None and t.period_ms
    ]
    figure.add_scatter(
        x=[k[0] for k in known], y=[k[1] for k in known], text=[f"trial {k[2]}" for k in known],
        mode="markers", name="trials", marker={"color": colour(0), "size": 9},
    )  # fmt: skip
    if known:
        ends = [min(min(k[:2]) for k in known), max(max(k[:2]) for k in known)]
        figure.add_scatter(
            x=ends, y=ends, mode="lines", name="equal", line={"color": INK, "dash": "dash"}
        )
    return figure


def _figure(title: str, x: str, y: str) -> Figure:
    from plotly.graph_objects import Figure

    figure = Figure()
    figure.update_layout(title=title, xaxis_title=x, yaxis_title=y, template="none")
    return figure


def _plain(text: str) -> str:
    """Text that plotly shows literally: it reads a few HTML tags in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:60]
