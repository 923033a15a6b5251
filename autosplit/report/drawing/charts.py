"""The charts of a study as values; ``plot`` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from autosplit.hardware.measurement.results import Baseline, LoadTest, Spread
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.canvas import INK, PALETTE, colour
from autosplit.study.record import Figures

Symbol = Literal["circle", "diamond", "square"]

_BEST, _BASELINE, _FINAL = PALETTE[5], PALETTE[2], PALETTE[3]


@dataclass(frozen=True)
class Series:
    """Points, steps from left to right, or a ``level`` across the chart.

    ``spreads`` are the intervals of points, ``texts`` say what each is; where ``labelled`` they
    stand beside it.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: str
    kind: Literal["points", "steps", "level"] = "points"
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
    charts = [convergence(study, measured), throughput_latency(study, measured)]
    tests = study.record.final_comparison.loads
    named = {f"trial {n}" if n.isdecimal() else n: test for n, test in tests.items()}
    return [*charts, latency_rate(named)] if named else charts


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


def latency_rate(tests: Mapping[str, LoadTest]) -> Chart:
    """The p99 of the latency against the rate of some deployments by name, and their limit."""
    series = []
    for number, (name, test) in enumerate(tests.items()):
        rates = tuple(point.rate for point in test.points)
        spreads = tuple(point.p99_ms for point in test.points)
        medians = tuple(spread.median for spread in spreads)
        title = f"{name} p99".strip()
        series.append(Series(title, rates, medians, colour(number), spreads=spreads))
    limit = next((test.limit_ms for test in tests.values() if test.limit_ms), None)
    if limit:
        series.append(_level("limit", limit, INK, [0]))
    about = "Items come by themselves; latencies count from when they are due."
    return Chart("Latency against rate", "items/s", "latency, ms", tuple(series), about=about)


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
