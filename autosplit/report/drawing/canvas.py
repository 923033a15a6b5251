"""Pictures in SVG: shapes and texts in pixels, y downwards, for a page or as a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10

# Okabe and Ito, "Color Universal Design" (2008): distinct with all common colour blindnesses.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7A00", "#7F7F7F")
# Classes and not attributes, so that a dark page has dark pictures, and a phone no wide columns.
STYLE = """
.picture { font-family: "DejaVu Sans", Verdana, Arial, Helvetica, sans-serif; fill: none; }
.picture text, .picture .ink { fill: #222; } .picture .line { stroke: #222; }
.picture .paper { fill: #fff; } .picture .aside { fill: #5b6470; }
.picture .wire { stroke: #6b7480; stroke-width: 1.5; } .picture .grid { stroke: #ddd; }
.picture .bold { font-weight: bold; }
.picture .middle { text-anchor: middle; } .picture .end { text-anchor: end; }
@media (max-width: 640px) { .picture .roomy { display: none; } }
@media (prefers-color-scheme: dark) {
  .picture text, .picture .ink { fill: #e7eaee; } .picture .line { stroke: #e7eaee; }
  .picture .paper { fill: #1d2127; } .picture .aside { fill: #a2acb8; }
  .picture .wire { stroke: #8d97a3; } .picture .grid { stroke: #39414b; }
}
"""


def colour(stage: int) -> str:
    """The colour of a stage; it repeats after eight."""
    return PALETTE[stage % len(PALETTE)]


def label(text: str, limit: int = 40) -> str:
    """A name as one line of at most ``limit`` characters, its middle left out if it is longer."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    if len(text) > limit:
        # Names of ops differ at their ends, so more of the end is left.
        tail = max(limit - 1, 0) * 2 // 3
        text = text[: limit - 1 - tail] + "…" + text[len(text) - tail :]
    return text


def ticks(high: float, most: int = 8, whole: bool = False) -> list[float]:
    """Round numbers from 0 to ``high``, at most about ``most``; whole ones for a count."""
    span = max(high, 1e-9)
    unit = 10.0 ** floor(log10(span / most))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k * most >= span * (1 - 1e-9))
    if whole:
        step = max(1.0, float(ceil(step)))
    return [step * k for k in range(floor(high / step + 1e-9) + 1)]


class Canvas:
    """A picture with a size in pixels. All texts are escaped.

    ``about`` describes the picture. A ``fluid`` picture is as wide as its page, so what is drawn
    inside ``at_right`` has x relative to the right edge.
    """

    def __init__(self, width: float, height: float, about: str, *, fluid: bool = False) -> None:
        self.width, self.height, self.about, self._fluid = width, height, about, fluid
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", *, px: float = 11) -> None:
        """Text of ``px`` pixels' height, from x to the right and centred on y by default.

        ``kind``: classes such as ``bold``, ``middle`` or ``end``.
        """
        # Not every program that shows SVG knows how to centre text vertically.
        place = _attributes(x=x, y=y + 0.35 * px, font_size=px)
        self._parts.append(f"<text{_class(kind)}{place}>{escaped(text)}</text>")

    def path(self, way: str, kind: str = "", **style: object) -> None:
        """Draw a path, given as SVG path data."""
        self._parts.append(f'<path{_class(kind)} d="{way}"{_attributes(**style)}/>')

    def line(
        self, xs: Sequence[float], ys: Sequence[float], kind: str = "", **style: object
    ) -> None:
        """Draw a line through points."""
        points = (f"{_number(float(x))} {_number(float(y))}" for x, y in zip(xs, ys, strict=True))
        self.path(f"M{'L'.join(points)}", kind, **style)

    def rectangle(
        self, x: float, y: float, width: float | str, height: float, kind: str = "", **style: object
    ) -> None:
        """Draw a rectangle by its upper left corner and its size; a width may be ``100%``."""
        place = _attributes(x=x, y=y, width=width, height=height, **style)
        self._parts.append(f"<rect{_class(kind)}{place}/>")

    @contextlib.contextmanager
    def group(self, title: str, *, ops: str = "") -> Iterator[None]:
        """Group what is drawn inside; ``title`` is its tooltip.

        ``ops``: the ops that the group stands for, a bitset in hexadecimal.
        """
        marks = _attributes(data_ops=ops)
        self._parts.append(f'<g class="node"{marks}><title>{escaped(title)}</title>')
        yield
        self._parts.append("</g>")

    @contextlib.contextmanager
    def at_right(self) -> Iterator[None]:
        """Draw what is inside with x relative to the right edge, so that x is negative."""
        self._parts.append('<svg x="100%" overflow="visible">')
        yield
        self._parts.append("</svg>")

    def inline(self) -> str:
        """The SVG element for a page that includes ``STYLE``."""
        size = {"viewBox": f"0 0 {_number(self.width)} {_number(self.height)}"}
        if self._fluid:
            size = {"width": "100%", "height": _number(self.height)}
        head = " ".join(f'{key}="{value}"' for key, value in size.items())
        # A group and not an image, so that screen readers find the texts in it.
        about = f'role="group" aria-label="{escaped(self.about)}"'
        return f'<svg class="picture" {head} {about}>{"".join(self._parts)}</svg>'

    def render(self) -> bytes:
        """The picture as a file, the same for the same data byte for byte."""
        box = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        size = _attributes(width=self.width, height=self.height)
        paper = f"<style>{STYLE}</style><rect{_class('paper')} width='100%' height='100%'/>"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {box}{size}>'
        return f"{head}{paper}{''.join(self._parts)}</svg>".encode()


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def escaped(text: str) -> str:
    """A text of one or several lines for SVG and HTML."""
    # XML has no character for most controls and none for a lone surrogate.
    return escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _attributes(**values: object) -> str:
    """Attributes in SVG's spelling; those without a value are left out."""
    pairs = ((key.replace("_", "-"), _number(value)) for key, value in values.items())
    return "".join(f' {key}="{escaped(value)}"' for key, value in pairs if value)
