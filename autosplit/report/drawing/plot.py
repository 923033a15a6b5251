"""A chart as a picture; each mark says what it is when pointed at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosplit.report.drawing.canvas import Canvas, label, painted, ticks
from autosplit.report.drawing.charts import Chart, Series
from autosplit.units import digits

_PLOT = 250  # height of the plot itself
_LEFT, _RIGHT, _TITLE, _FOOT = 52, 14, 34, 44
_LEGEND_ROW, _LEGEND_MOST, _NAME_LENGTH = 17, 18, 42
_CHARACTER = 6.6  # the width of a character of 11 pixels
_SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "diamond": "M0-6L5 0 0 6-5 0z",
    "square": "M-4-4H4V4H-4z",
}


@dataclass(frozen=True)
class _Axis:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def plot(chart: Chart, *, width: int = 440) -> Canvas:
    """The picture of a chart; ``width`` is in pixels."""
    rows = list(_legend_rows(chart, width))
    top = _TITLE + _LEGEND_ROW * len(rows) + 20.0
    canvas = Canvas(width, top + _PLOT + _FOOT)
    canvas.text(8, 16, label(chart.title, width // 8), "bold", px=13)
    for n, row in enumerate(rows):
        for x, series in row:
            y = _TITLE + (n + 0.5) * _LEGEND_ROW
            _mark(canvas, series, x + 8, y)
            canvas.text(x + 20, y, label(series.name, _NAME_LENGTH), px=11)
    x_axis, y_axis = _axes(chart, width, top)
    _grid(canvas, chart, x_axis, y_axis)
    # Marks above lines, so that each can be pointed at.
    for series in sorted(chart.series, key=lambda s: s.kind == "points"):
        _draw(canvas, chart, series, x_axis, y_axis)
    return canvas


def _legend_rows(chart: Chart, width: int) -> Iterator[list[tuple[float, Series]]]:
    """The first 18 series with their places, broken into rows."""
    row: list[tuple[float, Series]] = []
    x = 8.0
    for series in chart.series[:_LEGEND_MOST]:
        room = 34 + _CHARACTER * min(len(series.name), _NAME_LENGTH)
        if row and x + room > width:
            yield row
            row, x = [], 8.0
        row.append((x, series))
        x += room
    yield row


def _axes(chart: Chart, width: int, top: float) -> tuple[_Axis, _Axis]:
    xs, ys = [0.0], [0.0]
    for series in chart.series:
        xs += series.x
        ys += (*series.y, *(s.high for s in series.spreads))
    # Room for whole marks: trials begin with number 0, other values are not below it.
    right = (max(xs) or 1.0) * 1.05 + 0.5 * chart.trials
    x_axis = _Axis(-0.5 * chart.trials, right, _LEFT, width - _RIGHT)
    return x_axis, _Axis(0.0, (max(ys) or 1.0) * 1.08, top + _PLOT, top)


def _grid(canvas: Canvas, chart: Chart, x_axis: _Axis, y_axis: _Axis) -> None:
    for value in ticks(0.0, y_axis.high, 7):
        y = y_axis(value)
        canvas.line((x_axis.start, x_axis.end), (y, y), "grid")
        canvas.text(x_axis.start - 5, y, f"{value:.6g}", "end", px=11)
    for value in ticks(0.0, x_axis.high, 7, whole=chart.trials):
        canvas.text(x_axis(value), y_axis.start + 13, f"{value:.6g}", "middle", px=11)
    canvas.line((x_axis.start, x_axis.end), (y_axis.start, y_axis.start), "line")
    middle = (x_axis.start + x_axis.end) / 2
    canvas.text(middle, y_axis.start + 32, chart.x, "middle", px=12)
    # Level, since text on its side is hard to read.
    canvas.text(x_axis.start, y_axis.end - 9, chart.y, px=11)


def _draw(canvas: Canvas, chart: Chart, series: Series, x_axis: _Axis, y_axis: _Axis) -> None:
    if series.kind == "level":
        # A level is one value for all trials.
        for y in map(y_axis, series.y[:1]):
            with canvas.group(f"{series.name}: {digits(series.y[0])}"):
                _stroke(canvas, series, (x_axis.start, x_axis.end), (y, y), "8 3 2 3")
        return
    xs, ys = list(map(x_axis, series.x)), list(map(y_axis, series.y))
    if series.kind == "steps" and xs:
        corner_xs, corner_ys = [xs[0]], [ys[0]]
        for n in range(1, len(xs)):
            corner_xs += [xs[n], xs[n]]
            corner_ys += [ys[n - 1], ys[n]]
        _stroke(canvas, series, corner_xs, corner_ys)
    for n, (x, y) in enumerate(zip(xs, ys, strict=True)):
        text = series.texts[n] if n < len(series.texts) else ""
        if series.kind == "steps" and text:
            canvas.text(x + 5, y - 8, text, px=10)
        elif series.kind == "points":
            with canvas.group(_title(chart, series, n, text)):
                if n < len(series.spreads):
                    low, high = series.spreads[n].low, series.spreads[n].high
                    _stroke(canvas, series, (x, x), (y_axis(low), y_axis(high)))
                _mark(canvas, series, x, y)
                if series.labelled:
                    _label(canvas, label(text, 24), x, y)


def _label(canvas: Canvas, text: str, x: float, y: float) -> None:
    """A name beside its mark, on the side that has room."""
    is_right = x + 8 + _CHARACTER * len(text) > canvas.width - _RIGHT
    canvas.text(x - 8 if is_right else x + 8, y, text, "end" if is_right else "", px=10)


def _title(chart: Chart, series: Series, n: int, text: str) -> str:
    """What a point says: its trial and its values."""
    if chart.trials:
        return f"{series.name}, trial {round(series.x[n])}: {digits(series.y[n])} ms"
    name = f"trial {text}" if text.isdigit() else text or series.name
    return f"{name}\n{chart.x}: {digits(series.x[n])}\n{chart.y}: {digits(series.y[n])}"


def _mark(canvas: Canvas, series: Series, x: float, y: float) -> None:
    """The symbol of a series, or a piece of its line."""
    if series.kind != "points":
        _stroke(canvas, series, (x - 7, x + 7), (y, y), "" if series.kind == "steps" else "5 3")
        return
    place = f"translate({x:.1f} {y:.1f})"
    style = painted("fill", series.colour)
    canvas.path(_SHAPES[series.symbol], transform=place, **style)


def _stroke(
    canvas: Canvas, series: Series, xs: Sequence[float], ys: Sequence[float], dashes: str = ""
) -> None:
    style = painted("stroke", series.colour)
    canvas.line(xs, ys, stroke_dasharray=dashes, stroke_width=1.6, **style)
