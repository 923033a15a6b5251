"""Draws a chart of a study as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autosplit.report.drawing.canvas import (
    DPI,
    INK,
    PALETTE,
    Form,
    blank_figure,
    label,
    points,
    render,
)
from autosplit.report.drawing.charts import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 400
_LEGEND_COLUMNS, _LEGEND_ROW, _LEGEND_MOST = 3, 18, 18  # a row is in pixels
_NAME_LENGTH = 50
_MARKERS = {
    "circle": ("o", 7),
    "diamond": ("D", 8),
    "square": ("s", 8),
    "triangle": ("^", 8),
    "cross": ("P", 8),
    "star": ("*", 14),
    "dash": ("_", 14),
}


def plot(chart: Chart, *, form: Form = "png", width: int = 640) -> bytes:
    """The picture of a chart; ``width`` is in pixels. Raises MachineError without matplotlib."""
    figure = blank_figure(width, _HEIGHT)
    axes = figure.add_axes((64 / width, 52 / _HEIGHT, 1 - 80 / width, 1 - 92 / _HEIGHT))
    _style(axes, chart)
    for series in chart.series:
        _draw(axes, series)
    if chart.trials:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
    else:
        axes.margins(0.08)  # room for whole marks
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
    _title_and_legend(figure, axes, chart.title)
    return render(figure, form)


def _draw(axes: Axes, series: Series) -> None:
    style: dict[str, Any] = {"color": series.colour, "label": label(series.name, _NAME_LENGTH)}
    if series.kind == "level":
        # the bound is dashed, baselines have dots between
        style |= {"linestyle": "-.", "linewidth": 1.4}
        if series.colour == INK:
            style |= {"linestyle": "--", "linewidth": 1.2}
        # A level is one value for all trials.
        for level in series.y[:1]:
            axes.axhline(level, **style)
    elif series.kind == "line":
        axes.plot(series.x, series.y, linestyle="--", linewidth=1.2, **style)
    elif series.kind == "steps":
        axes.step(series.x, series.y, where="post", **style)
        for x, y, text in zip(series.x, series.y, series.texts, strict=False):
            apart: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points"}
            axes.annotate(text, (x, y), fontsize=8, color=INK, **apart)
    elif series.spreads:
        style |= {"ecolor": PALETTE[4], "elinewidth": 1.4}
        axes.errorbar(series.x, series.y, yerr=series.error_bars(), fmt="o", **style)
    else:
        marker, size = _MARKERS[series.symbol]
        style |= {"markersize": size, "markeredgewidth": 2 if series.symbol == "dash" else 1}
        axes.plot(series.x, series.y, marker, **style)


def _style(axes: Axes, chart: Chart) -> None:
    """Titles of the axes and a faint grid."""
    axes.set_xlabel(chart.x, fontsize=points(12), color=INK)
    axes.set_ylabel(chart.y, fontsize=points(12), color=INK)
    axes.tick_params(labelsize=points(11), colors=INK)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _title_and_legend(figure: Figure, axes: Axes, title: str) -> None:
    """The title and, below it, the legend of the first 18 series, where it hides nothing."""
    handles, names = axes.get_legend_handles_labels()
    handles, names = handles[:_LEGEND_MOST], names[:_LEGEND_MOST]
    # Rounded up.
    rows = -(-len(names) // _LEGEND_COLUMNS)
    height = rows * _LEGEND_ROW
    box, whole = axes.get_position(), figure.get_figheight() * DPI
    # The legend takes its room from the plot, so that the picture keeps its size.
    axes.set_position((box.x0, box.y0, box.width, box.height - height / whole))
    pad = points(12 + height)
    style: dict[str, Any] = {"fontsize": points(13), "fontweight": "bold", "color": INK}
    axes.set_title(title, loc="left", pad=pad, **style)
    axes.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=_LEGEND_COLUMNS,
        fontsize=points(11),
        labelcolor=INK,
        frameon=False,
        borderaxespad=0.2,
        borderpad=0.2,
        labelspacing=0.3,
    )
