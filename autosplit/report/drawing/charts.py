"""The charts of a study; each mark has a tooltip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, Literal

from autosplit.hardware.measurement.results import Baseline, LoadTest, Spread
from autosplit.report.documents.record import Study, Trial, resources
from autosplit.report.drawing.canvas import PALETTE, Canvas, colour, label, ticks
from autosplit.study.record import Figures
from autosplit.units import digits

_BEST, _BASELINE, _FINAL = PALETTE[5], PALETTE[2], PALETTE[3]
_INK = ""  # text and lines on white paper; on dark paper they are white
_WIDTH, _TOP, _PLOT, _FOOT, _LEFT, _RIGHT = 440, 76, 250, 44, 52, 14
_CHARACTER, _LINE, _LETTERS = 6.2, 11, 24  # of labels: pixels a letter and a line; most letters
_REACH = 60  # pixels that a label may be away from its mark, up or down
_SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "diamond": "M0-6L5 0 0 6-5 0z",
    "square": "M-4-4H4V4H-4z",
}
Point = tuple[float, float, str]  # x, y and what it is


@dataclass(frozen=True)
class Series:
    """Points, steps from left to right, or a ``level`` across the chart.

    ``spreads`` are the intervals of points. If ``labelled``, each point has its name beside it.
    """

    name: str
    points: Sequence[Point]
    colour: str
    kind: Literal["points", "steps", "level"] = "points"
    symbol: Literal["circle", "diamond", "square"] = "circle"
    spreads: Sequence[Spread] = ()
    labelled: bool = False


@dataclass(frozen=True)
class Chart:
    """Series with the titles of their axes; ``counts`` says that x is a whole number.

    ``about`` tells how to read the chart.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    counts: bool = False
    about: str = ""

    def draw(self) -> Canvas:
        """The picture."""
        return _Plot(self).canvas


def study_charts(study: Study) -> list[Chart]:
    """The charts of a study in the order of its page."""
    measured = [(t, p) for t in study.trials if t.state == "complete" and (p := t.record.period_ms)]
    charts = [convergence(study, measured), throughput_latency(study, measured)]
    loads = study.record.final_comparison.loads
    tests = {f"trial {n}" if n.isdecimal() else n: test for n, test in loads.items()}
    if tests:
        charts.append(latency_rate(tests))
    if any(test.goodput for test in tests.values()):
        charts.append(goodput_cores(study, tests))
    return charts


Measured = Sequence[tuple[Trial, Spread]]  # the complete trials with their periods in the search


def convergence(study: Study, measured: Measured) -> Chart:
    """Periods by trial, the best so far, the final comparison, the best baseline, the bound."""
    numbers = [t.number for t, _ in measured]
    best = accumulate((period.median for _, period in measured), min)
    steps = [(number, period, "") for number, period in zip(numbers, best, strict=True)]
    final = [(t, t.final.period_ms) for t, _ in measured if t.final and t.final.period_ms]
    series = [
        _of_trials("in the search", measured, colour(0), "circle"),
        Series("best so far", steps, _BEST, "steps"),
        *([_of_trials("final comparison", final, _FINAL, "diamond")] if final else []),
    ]
    if rival := study.rival:
        series.append(Series(rival.name, [(0, rival.period_ms.median, "")], _BASELINE, "level"))
    if study.record.bound_ms is not None:
        series.append(Series("predicted bound", [(0.0, study.record.bound_ms, "")], _INK, "level"))
    about = "The bound holds for the op times as profiled."
    return Chart("Convergence", "trial", "period, ms", series, counts=True, about=about)


def _of_trials(
    name: str, periods: Measured, colour: str, symbol: Literal["circle", "diamond"]
) -> Series:
    points = [(float(t.number), p.median, f"trial {t.number}") for t, p in periods]
    return Series(name, points, colour, symbol=symbol, spreads=[p for _, p in periods])


def throughput_latency(study: Study, measured: Measured) -> Chart:
    """Trials and baselines by latency and throughput; the steps are the trials' Pareto front."""
    searched = _places((f"trial {t.number}", t.record) for t, _ in measured)
    compared = _places((f"trial {t.number}", t.final) for t, _ in measured if t.final)
    baselines = _places((b.name, b) for b in study.baselines)
    series = [
        Series("Pareto front", pareto_front(searched), _BEST, "steps"),
        Series("in the search", searched, colour(0)),
        Series("final comparison", compared, _FINAL, symbol="diamond", labelled=True),
        Series("baselines", baselines, _BASELINE, symbol="square", labelled=True),
    ]
    shown = [s for s in series if s.points or s.name == "in the search"]
    about = "Up and to the left is better."
    return Chart("Throughput against latency", "latency, ms", "items/s", shown, about=about)


def latency_rate(tests: Mapping[str, LoadTest]) -> Chart:
    """A quantile of the latency against the rate of some deployments by name, and its limit."""
    series = []
    for number, (name, test) in enumerate(tests.items()):
        known = [point for point in test.points if test.quantile in point.quantiles_ms]
        spreads = [point.quantiles_ms[test.quantile] for point in known]
        pairs = zip(known, spreads, strict=True)
        points = [(point.rate, spread.median, name) for point, spread in pairs]
        series.append(Series(f"{name} {test.quantile}", points, colour(number), spreads=spreads))
    limit = next((test.limit_ms for test in tests.values() if test.limit_ms), None)
    if limit:
        series.append(Series("limit", [(0.0, limit, "")], _INK, "level"))
    about = "Items come by themselves; latencies count from when they are due."
    return Chart("Latency against rate", "items/s", "latency, ms", series, about=about)


def goodput_cores(study: Study, tests: Mapping[str, LoadTest]) -> Chart:
    """The goodput of some deployments against the devices that they take; the Pareto front."""
    devices: dict[str, Iterable[str]] = {b.name: b.devices for b in study.baselines}
    devices |= {f"trial {t.number}": chain(*t.record.devices) for t in study.trials}
    points = []
    for name, test in tests.items():
        count = len({r for device in devices.get(name, ()) for r in resources(device)})
        points += [(float(count), test.goodput, name)] if test.goodput else []
    series = [
        Series("Pareto front", pareto_front(points), _BEST, "steps"),
        Series("deployments", points, colour(0), labelled=True),
    ]
    y, about = "items/s within the limit", "Up and to the left is better."
    return Chart("Goodput against cores", "cores or devices", y, series, counts=True, about=about)


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """The Pareto front of points for small x and large y, sorted by x."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


def _places(named: Iterable[tuple[str, Figures | Baseline]]) -> list[Point]:
    """The points (latency, throughput) of those figures that have both."""
    points = []
    for name, figures in named:
        latency, period = figures.latency_ms, figures.period_ms
        if latency and period and latency.median > 0 and period.median > 0:
            points.append((latency.median, 1000 / period.median, name))
    return points


@dataclass
class _Plot:
    """A chart being drawn; ``taken`` has the left end, y and right end of each mark and label."""

    chart: Chart
    taken: list[tuple[float, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.canvas = Canvas(_WIDTH, _TOP + _PLOT + _FOOT, self.chart.about)
        points = [point for series in self.chart.series for point in series.points]
        highs = [spread.high for series in self.chart.series for spread in series.spreads]
        # Trials begin with number 0, and their marks need room on both sides.
        self.low = -0.5 * self.chart.counts
        self.right = (max([x for x, _, _ in points], default=0.0) or 1.0) * 1.05 - self.low
        self.top = (max([y for _, y, _ in points] + highs, default=0.0) or 1.0) * 1.08
        # A foreign database may hold infinite times and NaN, which ``min`` replaces as well.
        self.right, self.top = min(1e300, self.right), min(1e300, self.top)
        self._legend()
        self._grid()
        # Marks are drawn above lines, so that the pointer reaches each of them.
        for series in sorted(self.chart.series, key=lambda s: s.kind == "points"):
            getattr(self, f"_{series.kind}")(series)
        for series in self.chart.series:
            if series.kind == "level":
                self._label(self._level_text(series), _LEFT, self._y(series.points[0][1]) - _LINE)
            for x, y, text in series.points if series.labelled else ():
                self._label(label(text, _LETTERS), self._x(x), self._y(y))

    def _x(self, value: float) -> float:
        share = (value - self.low) / (self.right - self.low)
        return _LEFT + share * (_WIDTH - _RIGHT - _LEFT)

    def _y(self, value: float) -> float:
        return _TOP + _PLOT * (1 - value / self.top)

    def _legend(self) -> None:
        self.canvas.text(8, 16, self.chart.title, "bold", px=13)
        x = 8.0
        # A level has its name beside its line.
        for series in (s for s in self.chart.series if s.kind != "level"):
            if series.kind == "points":
                self._mark(series, x + 8, 38)
            else:
                self.canvas.line((x, x + 14), (38, 38), **_stroke(series))
            self.canvas.text(x + 18, 38, series.name, px=10)
            x += 30 + _CHARACTER * len(series.name)

    def _grid(self) -> None:
        canvas, bottom, right = self.canvas, _TOP + _PLOT, _WIDTH - _RIGHT
        for value in ticks(self.top, 7):
            canvas.line((_LEFT, right), (self._y(value),) * 2, "grid")
            canvas.text(_LEFT - 5, self._y(value), f"{value:.6g}", "end")
        for value in ticks(self.right, 7, whole=self.chart.counts):
            canvas.text(self._x(value), bottom + 13, f"{value:.6g}", "middle")
        canvas.line((_LEFT, right), (bottom, bottom), "line")
        canvas.text((_LEFT + right) / 2, bottom + 32, self.chart.x, "middle", px=12)
        # Horizontal, since rotated text is hard to read.
        canvas.text(_LEFT, _TOP - 12, self.chart.y)

    @property
    def _unit(self) -> str:
        """The unit of the y axis: ``ms`` of ``period, ms``."""
        return self.chart.y.rpartition(", ")[2]

    def _level_text(self, series: Series) -> str:
        return f"{series.name}: {digits(series.points[0][1])} {self._unit}"

    def _level(self, series: Series) -> None:
        y = self._y(series.points[0][1])
        self.taken.append((_LEFT, y, _WIDTH))
        with self.canvas.group(self._level_text(series)):
            ends = (_LEFT, _WIDTH - _RIGHT)
            self.canvas.line(ends, (y, y), stroke_dasharray="8 3 2 3", **_stroke(series))

    def _steps(self, series: Series) -> None:
        places = [(self._x(x), self._y(y)) for x, y, _ in series.points]
        corners = places[:1]
        for x, y in places[1:]:
            corners += [(x, corners[-1][1]), (x, y)]
        if corners:
            xs, ys = zip(*corners, strict=True)
            self.canvas.line(xs, ys, **_stroke(series))

    def _points(self, series: Series) -> None:
        for number, (x, y, _) in enumerate(series.points):
            with self.canvas.group(self._about(series, number)):
                if number < len(series.spreads):
                    spread = series.spreads[number]
                    ends = self._y(spread.low), self._y(spread.high)
                    self.canvas.line((self._x(x),) * 2, ends, **_stroke(series))
                self._mark(series, self._x(x), self._y(y))
                self.taken.append((self._x(x) - 4, self._y(y), self._x(x) + 4))

    def _about(self, series: Series, number: int) -> str:
        x, y, text = series.points[number]
        if self.chart.counts:
            return f"{series.name}, {text}: {digits(y)} {self._unit}"
        return f"{text}\n{self.chart.x}: {digits(x)}\n{self.chart.y}: {digits(y)}"

    def _label(self, text: str, x: float, y: float) -> None:
        """Write a name at a free place near its mark; without one, only the tooltip has it."""
        length = _CHARACTER * len(text)
        for step in range(2 * _REACH):
            middle = y + (step + 1) // 4 * (2 if step % 4 < 2 else -2)
            left = x + 8 if step % 2 == 0 else x - 8 - length
            right = left + length
            is_free = not any(
                abs(middle - row) < _LINE and start < right and left < end
                for start, row, end in self.taken
            )
            if is_free and left >= _LEFT and right <= _WIDTH - _RIGHT and middle < _TOP + _PLOT:
                self.taken.append((left, middle, right))
                self.canvas.text(left, middle, text, px=10)
                return

    def _mark(self, series: Series, x: float, y: float) -> None:
        place = f"translate({x:.1f} {y:.1f})"
        self.canvas.path(_SHAPES[series.symbol], transform=place, fill=series.colour)


def _stroke(series: Series) -> dict[str, Any]:
    ink = {"kind": "line"} if series.colour == _INK else {"stroke": series.colour}
    return {**ink, "stroke_width": 1.6}
