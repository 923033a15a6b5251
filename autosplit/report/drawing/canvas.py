"""Pictures in pixels, drawn by matplotlib without global state, a display or a system program."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from autosplit.extras import require
from autosplit.report.drawing.style import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Form = Literal["png", "svg"]

DPI = 100
_PNG_SCALE = 2  # device pixels a picture pixel, so that text stays sharp on dense screens
_RENDERING = threading.Lock()  # matplotlib's font caches are not thread-safe
# A reader without the first font has one that is as wide, or narrower.
_TEXT_AS_TEXT = {
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"],
}


class Canvas:
    """A white picture of a size in pixels, y downwards. Raises MachineError without matplotlib."""

    def __init__(self, width: int, height: int) -> None:
        self.figure = blank_figure(width, height)
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(height, 0)

    def text(self, x: float, y: float, text: str, *, px: float = 11, **style: Any) -> None:
        """Text of ``px`` pixels' height, from x to the right and centred on y by default."""
        style = {"color": INK, "va": "center", "ha": "left", **style}
        self.axes.text(x, y, text, fontsize=points(px), **style)

    def line(self, xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
        """A line from the first point to the second."""
        self.axes.plot(xs, ys, **{"color": INK, **style})

    def rectangle(self, x: float, y: float, width: float, height: float, **style: Any) -> None:
        """A rectangle by its upper left corner and its size, without a border by default."""
        from matplotlib.patches import Rectangle

        style = {"edgecolor": "none", **style}
        self.axes.add_patch(Rectangle((x, y), width, height, **style))

    def render(self, form: Form) -> bytes:
        """The picture as a file."""
        return render(self.figure, form)


def blank_figure(width: int, height: int) -> Figure:
    """A white figure of a size in pixels. Raises MachineError without matplotlib."""
    module = require("matplotlib.figure", "dashboard")
    backend = require("matplotlib.backends.backend_agg", "dashboard")
    figure: Figure = module.Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    backend.FigureCanvasAgg(figure)
    return figure


def render(figure: Figure, form: Form) -> bytes:
    """The figure as PNG, or as SVG whose text is text, in the first common font that is there."""
    import matplotlib

    buffer = io.BytesIO()
    scale = _PNG_SCALE if form == "png" else 1
    metadata = {"Date": None} if form == "svg" else None
    with _RENDERING, matplotlib.rc_context(_TEXT_AS_TEXT):
        figure.savefig(buffer, format=form, dpi=DPI * scale, metadata=metadata)
    return buffer.getvalue()


def points(px: float) -> float:
    """A length in pixels as matplotlib measures text: in points."""
    return px * 72 / DPI
