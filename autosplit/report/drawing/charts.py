"""The charts of a study as values; ``plot`` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from autosplit.hardware.measurement.results import Spread
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.canvas import INK, PALETTE, colour

Symbol = Literal["circle", "diamond", "square", "triangle", "cross", "star", "dash"]

_BEST, _BASELINE, _FINAL = PALETTE[5], PALETTE[2], PALETTE[3]
_BASELINE_SYMBOLS: tuple[Symbol, ...] = ("square", "diamond", "triangle", "cross")


@dataclass(frozen=True)
class Series:
    """Points, steps from left to right, a dashed ``line``, or a ``level`` across the chart.

    ``spreads`` are the intervals of points, ``texts`` say what each is.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: str
    kind: Literal["points", "steps", "line", "level"] = "points"
    symbol: Symbol = "circle"
    spreads: tuple[Spread, ...] = ()
    texts: tuple[str, ...] = ()


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
    return [
        convergence(study),
        stage_times(study),
        throughput_latency(study),
        predicted_measured(study),
    ]


def convergence(study: Study) -> Chart:
    """Measured periods by trial, the best so far, the best baseline and the predicted bound."""
    trials = _measured(study)
    numbers = tuple(t.number for t, _ in trials)
    periods = tuple(p.median for _, p in trials)
    spreads = tuple(p for _, p in trials)
    best = tuple(accumulate(periods, min))
    series = [
        Series("measured", numbers, periods, colour(0), spreads=spreads),
        Series("best so far", numbers, best, _BEST, "steps"),
    ]
    compared = [t.number for t, _ in trials if t.number in study.final_comparison]
    if compared:
        again = tuple(study.final_comparison[n].median for n in compared)
        series.append(Series("final comparison", tuple(compared), again, _FINAL, symbol="diamond"))
    if study.baselines:
        rival = min(study.baselines, key=lambda b: b.period_ms.median)
        level = rival.period_ms.median
        series.append(_level(f"without splitting: {rival.name}", level, _BASELINE, numbers))
    if study.bound_ms is not None:
        series.append(_level("predicted bound", study.bound_ms, INK, numbers))
    title = "time between two results, ms"
    about = "The bound holds for the op times as profiled."
    return Chart("Convergence", "trial", title, tuple(series), trials=True, about=about)


def stage_times(study: Study) -> Chart:
    """The busy time of every stage in every trial, and the period, which the slowest decides."""
    trials = _measured(study)
    count = max((len(t.stage_ms) for t, _ in trials), default=0)
    series = []
    for stage in range(count):
        staged = [t for t, _ in trials if stage < len(t.stage_ms)]
        device = study.device_of(stage)
        name = f"stage {stage}, {device}" if device else f"stage {stage}"
        # aside, so that equal times do not hide each other
        aside = 0.4 * ((stage + 0.5) / count - 0.5)
        x = tuple(t.number + aside for t in staged)
        y = tuple(t.stage_ms[stage] for t in staged)
        series.append(Series(name, x, y, colour(stage)))
    numbers = tuple(t.number for t, _ in trials)
    periods = tuple(p.median for _, p in trials)
    series.append(Series("period", numbers, periods, INK, symbol="dash"))
    about = "The slowest stage decides the period."
    return Chart("Stage times", "trial", "ms an item", tuple(series), trials=True, about=about)


def throughput_latency(study: Study) -> Chart:
    """Trials and baselines by latency and throughput; the steps are the trials' Pareto front."""
    points = [
        (t.latency_ms.median, 1000 / period.median, str(t.number))
        for t, period in _measured(study)
        if t.latency_ms and period.median
    ]
    best_points = pareto_front(points)
    series = [
        _points("Pareto front of the trials", best_points, _BEST, kind="steps"),
        _points("trials", points, colour(0)),
    ]
    best = study.best()
    if best and best.latency_ms and best.number in study.final_comparison:
        period = study.final_comparison[best.number].median
        if period:
            place = (best.latency_ms.median, 1000 / period, "")
            series.append(_points("best, compared again", [place], _FINAL, symbol="star"))
    known = [b for b in study.baselines if b.period_ms.median and b.latency_ms.median > 0]
    for i, baseline in enumerate(known):
        place = (baseline.latency_ms.median, 1000 / baseline.period_ms.median, "")
        symbol = _BASELINE_SYMBOLS[i % len(_BASELINE_SYMBOLS)]
        series.append(_points(baseline.name, [place], _BASELINE, symbol=symbol))
    title = "Throughput against latency"
    about = "Up and to the left is better; numbers are trials."
    return Chart(title, "latency, ms", "results a second", tuple(series), about=about)


def predicted_measured(study: Study) -> Chart:
    """Predicted against measured periods; on the line the cost model was right."""
    points = [
        (t.predicted_ms, period.median, str(t.number))
        for t, period in _measured(study)
        if t.predicted_ms is not None
    ]
    series = [_points("trials", points, colour(0))]
    if points:
        values = [value for point in points for value in point[:2]]
        ends = (min(values), max(values))
        series.append(Series("equal", ends, ends, INK, "line"))
    title = "Predicted against measured"
    about = "On the line a prediction is right."
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


def _points(
    name: str,
    points: Sequence[Point],
    colour: str,
    kind: Literal["points", "steps"] = "points",
    symbol: Symbol = "circle",
) -> Series:
    x, y = tuple(p[0] for p in points), tuple(p[1] for p in points)
    return Series(name, x, y, colour, kind, symbol, texts=tuple(p[2] for p in points))


def _level(name: str, value: float, colour: str, numbers: Sequence[int]) -> Series:
    ends = (numbers[0], numbers[-1]) if numbers else ()
    return Series(name, ends, (value,) * len(ends), colour, "level")


def _measured(study: Study) -> list[tuple[Trial, Spread]]:
    """The complete trials with their periods."""
    return [(t, t.period_ms) for t in study.trials if t.state == "complete" and t.period_ms]
