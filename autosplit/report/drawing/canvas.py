"""Pictures in pixels, drawn by matplotlib without global state, a display or a system program."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from autosplit.extras import require

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
# Okabe and Ito, "Color Universal Design" (2008): distinct with all common colour blindnesses.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7A00", "#7F7F7F")
INK, FAINT, PAPER = "#222222", "#8C8C8C", "#FFFFFF"


def colour(stage: int) -> str:
    """The colour of a stage; it repeats after eight."""
    return PALETTE[stage % len(PALETTE)]


def ink_on(fill: str) -> str:
    """White or dark, whichever is easier to read on a colour given as #rrggbb."""
    # relative luminance of WCAG 2
    red, green, blue = (
        ((int(fill[k : k + 2], 16) / 255 + 0.055) / 1.055) ** 2.4 for k in (1, 3, 5)
    )
    return PAPER if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.18 else INK


def label(text: str, limit: int = 40) -> str:
    """A name as one line of at most ``limit`` characters, its middle left out if it is longer."""
    # The font lacks other characters: they would be drawn as boxes, with a warning each.
    text = "".join(c if c.isprintable() and ord(c) < 0x250 else "?" for c in " ".join(text.split()))
    if len(text) > limit:
        # Names of ops differ at their ends, so more of the end is left.
        tail = max(limit - 1, 0) * 2 // 3
        text = text[: limit - 1 - tail] + "…" + text[len(text) - tail :]
    # A dollar sign would start mathematics.
    return text.replace("$", r"\$")


def lines(text: str, limit: int, most: int = 2) -> list[str]:
    """A name in at most ``most`` lines of ``limit`` characters, broken after separators."""
    rest = " ".join(text.split())
    broken: list[str] = []
    while len(rest) > limit and len(broken) < most - 1:
        at = max((m.end() for m in re.finditer(r"[/_.:\- ]+", rest[:limit])), default=limit)
        # A separator too far to the left wastes the line, unless the rest then fits the next.
        is_good = at > limit // 3 or len(rest) - at <= limit
        broken.append(rest[: at if is_good else limit])
        rest = rest[len(broken[-1]) :]
    return [label(line, limit) for line in (*broken, rest)]


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

    # The same picture for the same data, byte for byte: no date in the file.
    buffer = io.BytesIO()
    scale = _PNG_SCALE if form == "png" else 1
    metadata = {"Date": None} if form == "svg" else None
    with _RENDERING, matplotlib.rc_context(_TEXT_AS_TEXT):
        figure.savefig(buffer, format=form, dpi=DPI * scale, metadata=metadata)
    return buffer.getvalue()


def points(px: float) -> float:
    """A length in pixels as matplotlib measures text: in points."""
    return px * 72 / DPI
