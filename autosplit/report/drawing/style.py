"""What all pictures share: colours, text that cannot break a picture, and figures without global state."""

from __future__ import annotations

import io
import re
import threading
from typing import TYPE_CHECKING, Any, Literal

from autosplit.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["png", "svg"]

# Okabe and Ito, "Color Universal Design" (2008): told apart with any of the common colour blindnesses.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7A00", "#7F7F7F")
INK, FAINT, PAPER = "#222222", "#8C8C8C", "#FFFFFF"

# A reader without the first font has one that is as wide, or narrower.
_TEXT_AS_TEXT = {
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"],
}
_PNG_SCALE = 2  # device pixels a picture pixel, so that text stays sharp on dense screens
DPI = 100
_RENDERING = threading.Lock()  # matplotlib's font caches are not thread-safe


def colour(stage: int) -> str:
    """The colour of a stage; it repeats after eight."""
    return PALETTE[stage % len(PALETTE)]


def canvas(width: int, height: int) -> tuple[Figure, Axes]:
    """A white figure with one axes whose units are pixels, y downwards, nothing drawn on it.

    Raises MachineError where matplotlib is missing.
    """
    figure = blank(width, height)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    return figure, axes


def write(axes: Axes, x: float, y: float, text: str, *, px: float = 11, **style: Any) -> None:
    """Draw text of ``px`` pixels' height at a point in pixels, vertically centred unless told otherwise."""
    style = {"color": INK, "va": "center", "ha": "left", **style}
    axes.text(x, y, text, fontsize=points(px), **style)


def ink_on(fill: str) -> str:
    """White or dark, whichever is easier to read on a colour given as #rrggbb (relative luminance of WCAG 2)."""
    linear = [((int(fill[k : k + 2], 16) / 255 + 0.055) / 1.055) ** 2.4 for k in (1, 3, 5)]
    return PAPER if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.18 else INK


def render(figure: Figure, form: Form = "png") -> bytes:
    """The figure as PNG, or as SVG whose text is text, in the first common font that is there."""
    import matplotlib

    buffer = io.BytesIO()
    scale = _PNG_SCALE if form == "png" else 1
    metadata = {"Date": None} if form == "svg" else None
    with _RENDERING, matplotlib.rc_context(_TEXT_AS_TEXT):
        figure.savefig(buffer, format=form, dpi=DPI * scale, metadata=metadata)
    return buffer.getvalue()


def label(text: str, limit: int = 40) -> str:
    """A name as it can be drawn: one line of at most ``limit`` characters, its middle left out where it is longer.

    Dollar signs would start mathematics, and characters the font lacks would be drawn as boxes with a warning each.
    """
    text = "".join(c if c.isprintable() and ord(c) < 0x250 else "?" for c in " ".join(text.split()))
    if len(text) > limit:
        tail = max(limit - 1, 0) * 2 // 3
        text = text[: limit - 1 - tail] + "…" + text[len(text) - tail :]
    return text.replace("$", r"\$")


def lines(text: str, limit: int, most: int = 2) -> list[str]:
    """A name broken into at most ``most`` lines of ``limit`` characters, after a separator where there is one."""
    rest = " ".join(text.split())
    broken: list[str] = []
    while len(rest) > limit and len(broken) < most - 1:
        at = max((m.end() for m in re.finditer(r"[/_.:\- ]+", rest[:limit])), default=limit)
        broken.append(rest[: at if at > limit // 3 or len(rest) - at <= limit else limit])
        rest = rest[len(broken[-1]) :]
    return [label(line, limit) for line in (*broken, rest)]


def points(px: float) -> float:
    """A length in pixels as matplotlib counts text: in points."""
    return px * 72 / DPI


def blank(width: int, height: int) -> Figure:
    drawn = require("matplotlib.figure", "dashboard")
    canvas = require("matplotlib.backends.backend_agg", "dashboard")
    figure: Figure = drawn.Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    canvas.FigureCanvasAgg(figure)
    return figure
