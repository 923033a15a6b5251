"""The charts of a study as values; ``plot`` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.canvas import INK, PALETTE, colour
from autosplit.study.record import Figures

Symbol = Literal["circle", "diamond", "square", "dash"]

_BEST, _BASELINE, _FINAL = PALETTE[5], PALETTE[2], PALETTE[3]


@dataclass(frozen=True)
class Series:
    """Points, steps from left to right, a dashed ``line``, or a ``level`` across the chart.

    ``spreads`` are the intervals of points, ``texts`` say what each is; where ``labelled`` they
    stand beside it.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: str
    kind: Literal["points", "steps", "line", "level"] = "points"
    symbol: Symbol = "circle"
    spreads: tuple[Spread, ...] = ()
    texts: tuple[str, ...] = ()
    labelled: bool = False


@dataclass(frozen=True)
class Chart:
    """Series with the titles of their axes; ``trials`` says that x counts trials.

    ``about`` tells how to read it.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    trials: bool = False
    about: str = ""


def study_charts(study: Study) -> list[Chart]:
    """The charts of a study in the order of its page."""
    measured = [(t, p) for t in study.trials if t.state == "complete" and (p := t.record.period_ms)]
    charts = (convergence, stage_times, throughput_latency, predicted_measured)
    return [chart(study, measured) for chart in charts]


Measured = Sequence[tuple[Trial, Spread]]  # the complete trials with their periods in the search


def convergence(study: Study, measured: Measured) -> Chart:
    """Periods by trial, the best so far, the final comparison, the best baseline, the bound."""
    numbers = tuple(t.number for t, _ in measured)
    spreads = tuple(period for _, period in measured)
    medians = tuple(period.median for period in spreads)
    series = [
        Series("in the search", numbers, medians, colour(0), spreads=spreads),
        Series("best so far", numbers, tuple(accumulate(medians, min)), _BEST, "steps"),
    ]
    final = [(t.number, t.final.period_ms) for t, _ in measured if t.final and t.final.period_ms]
    if final:
        x, again = zip(*final, strict=True)
        y = tuple(period.median for period in again)
        series.append(Series("final comparison", x, y, _FINAL, symbol="diamond", spreads=again))
    if study.baselines:
        rival = min(study.baselines, key=lambda b: b.period_ms.median)
        series.append(_level(rival.name, rival.period_ms.median, _BASELINE, numbers))
    if study.record.bound_ms is not None:
        series.append(_level("predicted bound", study.record.bound_ms, INK, numbers))
    about = "The bound holds for the op times as profiled."
    return Chart("Convergence", "trial", "period, ms", tuple(series), trials=True, about=about)


def stage_times(study: Study, measured: Measured) -> Chart:
    """The busy time of every stage in every trial, and the period, which the slowest decides."""
    count = max((len(t.record.stage_ms) for t, _ in measured), default=0)
    series = []
    for stage in range(count):
        staged = [t for t, _ in measured if stage < len(t.record.stage_ms)]
        name = ", ".join(filter(None, (f"stage {stage}", study.device_of(stage))))
        # aside, so that equal times do not hide each other
        aside = 0.4 * ((stage + 0.5) / count - 0.5)
        x = tuple(t.number + aside for t in staged)
        y = tuple(t.record.stage_ms[stage] for t in staged)
        series.append(Series(name, x, y, colour(stage)))
    x, y = tuple(t.number for t, _ in measured), tuple(p.median for _, p in measured)
    series.append(Series("period", x, y, INK, symbol="dash"))
    about = "Without replicas, the slowest stage decides the period."
    return Chart("Stage times", "trial", "ms an item", tuple(series), trials=True, about=about)


def throughput_latency(study: Study, measured: Measured) -> Chart:
    """Trials and baselines by latency and throughput; the steps are the trials' Pareto front."""
    searched = _places((str(t.number), t.record) for t, _ in measured)
    compared = _places((f"trial {t.number}", t.final) for t, _ in measured if t.final)
    baselines = _places((b.name, b) for b in study.baselines)
    series = [
        _points("Pareto front of the search", pareto_front(searched), _BEST, kind="steps"),
        _points("in the search", searched, colour(0)),
        _points("final comparison", compared, _FINAL, symbol="diamond", labelled=True),
        _points("baselines", baselines, _BASELINE, symbol="square", labelled=True),
    ]
    about = "Up and to the left is better; numbers are trials."
    shown = tuple(s for s in series if s.x or s.name == "in the search")
    return Chart("Throughput against latency", "latency, ms", "items/s", shown, about=about)


def predicted_measured(study: Study, measured: Measured) -> Chart:
    """Predicted against measured periods; on the line the cost model was right."""
    points = [
        (t.record.predicted_ms, period.median, str(t.number))
        for t, period in measured
        if t.record.predicted_ms is not None
    ]
    series = [_points("in the search", points, colour(0))]
    if points:
        values = [value for point in points for value in point[:2]]
        ends = (min(values), max(values))
        series.append(Series("equal", ends, ends, INK, "line"))
    title, about = "Predicted against measured", "On the line a prediction is right."
    axes = "predicted period, ms", "measured period, ms"
    return Chart(title, *axes, tuple(series), about=about)


Point = tuple[float, float, str]  # x, y and what it is


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """The points (latency, throughput, name) that no other dominates, by latency."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


def _places(named: Iterable[tuple[str, Figures | Baseline]]) -> list[Point]:
    """Latency and throughput of what has both."""
    points = []
    for name, figures in named:
        latency, period = figures.latency_ms, figures.period_ms
        if latency and period and latency.median > 0 and period.median > 0:
            points.append((latency.median, 1000 / period.median, name))
    return points


def _points(
    name: str,
    points: Sequence[Point],
    colour: str,
    kind: Literal["points", "steps"] = "points",
    symbol: Symbol = "circle",
    labelled: bool = False,
) -> Series:
    x, y = tuple(p[0] for p in points), tuple(p[1] for p in points)
    texts = tuple(p[2] for p in points)
    return Series(name, x, y, colour, kind, symbol, texts=texts, labelled=labelled)


def _level(name: str, value: float, colour: str, numbers: Sequence[int]) -> Series:
    ends = (numbers[0], numbers[-1]) if numbers else ()
    return Series(name, ends, (value,) * len(ends), colour, "level")
