"""The charts of a study as plotly figures, which need nothing from outside the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autosplit.report.documents.record import Study
from autosplit.report.drawing.charts import Chart, Series, study_charts

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SYMBOLS = {"triangle": "triangle-up", "dash": "line-ew-open"}
_SIZES = {"circle": 9, "star": 16, "dash": 14}
_NAME_LENGTH = 60


def study_plots(study: Study) -> dict[str, Figure]:
    """The figures by name."""
    return {name: _figure(chart) for name, chart in study_charts(study).items()}


def _figure(chart: Chart) -> Figure:
    from plotly.graph_objects import Figure

    figure = Figure()
    figure.update_layout(
        title=chart.title, xaxis_title=chart.x, yaxis_title=chart.y, template="none"
    )
    for series in chart.series:
        figure.add_scatter(x=series.x, y=series.y, name=_escaped(series.name), **_style(series))
    return figure


def _style(series: Series) -> dict[str, Any]:
    if series.kind == "steps":
        return {"mode": "lines", "line": {"color": series.colour, "shape": "hv"}}
    if series.kind in ("line", "level"):
        return {"mode": "lines", "line": {"color": series.colour, "dash": "dash"}}
    marker = {
        "color": series.colour,
        "symbol": _SYMBOLS.get(series.symbol, series.symbol),
        "size": _SIZES.get(series.symbol, 12),
    }
    style: dict[str, Any] = {"mode": "markers", "marker": marker}
    if series.texts:
        style["text"] = [f"trial {text}" if text else "" for text in series.texts]
    if series.spreads:
        low, high = series.error_bars()
        style["error_y"] = {"array": high, "arrayminus": low, "symmetric": False}
    return style


def _escaped(text: str) -> str:
    """Text that plotly shows literally: it reads a few HTML tags in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:_NAME_LENGTH]
