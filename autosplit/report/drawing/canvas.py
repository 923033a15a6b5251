"""Pictures in SVG: shapes and texts in pixels, y downwards, for a page or as a file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Literal

# Okabe and Ito, "Color Universal Design" (2008): distinct with all common colour blindnesses.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7A00", "#7F7F7F")
INK = "#222222"  # text and lines on white paper; on dark paper they are white
# Classes and not attributes, so that a dark page has dark pictures.
STYLE = """
.picture { font-family: "DejaVu Sans", Verdana, Arial, Helvetica, sans-serif; fill: none; }
.picture text, .picture .ink { fill: #222; } .picture .line { stroke: #222; }
.picture .paper { fill: #fff; } .picture .faint { stroke: #8c8c8c; }
.picture .wire { stroke: #555; } .picture .head { fill: #555; } .picture .grid { stroke: #ddd; }
.picture .wide { stroke-width: 2.5; }
.picture .bold { font-weight: bold; }
.picture .middle { text-anchor: middle; } .picture .end { text-anchor: end; }
@media (prefers-color-scheme: dark) {
  .picture text, .picture .ink { fill: #e7eaee; } .picture .line { stroke: #e7eaee; }
  .picture .paper { fill: #1d2127; } .picture .wire { stroke: #a2acb8; }
  .picture .head { fill: #a2acb8; } .picture .grid { stroke: #39414b; }
}
"""


def colour(stage: int) -> str:
    """The colour of a stage; it repeats after eight."""
    return PALETTE[stage % len(PALETTE)]


def painted(how: Literal["fill", "stroke"], colour: str) -> dict[str, str]:
    """How something is drawn in a colour, which for ink depends on the paper."""
    return {"kind": {"fill": "ink", "stroke": "line"}[how]} if colour == INK else {how: colour}


def label(text: str, limit: int = 40) -> str:
    """A name as one line of at most ``limit`` characters, its middle left out if it is longer."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    if len(text) > limit:
        # Names of ops differ at their ends, so more of the end is left.
        tail = max(limit - 1, 0) * 2 // 3
        text = text[: limit - 1 - tail] + "…" + text[len(text) - tail :]
    return text


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


def ticks(low: float, high: float, most: int = 8, whole: bool = False) -> list[float]:
    """Round numbers from ``low`` to ``high``, at most about ``most``; whole ones for a count."""
    span = max(high - low, 1e-9)
    unit = 10.0 ** floor(log10(span / most))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k * most >= span * (1 - 1e-9))
    if whole:
        step = max(1.0, float(ceil(step)))
    return [step * k for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


class Canvas:
    """A picture of a size in pixels. Whatever text it is given, it shows it as text."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", *, px: float = 11) -> None:
        """Text of ``px`` pixels' height, from x to the right and centred on y by default.

        ``kind``: classes such as ``bold``, ``middle`` or ``end``.
        """
        # Not every program that shows SVG knows how to centre text vertically.
        place = _attributes(x=x, y=y + 0.35 * px, font_size=px)
        self._parts.append(f"<text{_class(kind)}{place}>{_escaped(text)}</text>")

    def path(self, way: str, kind: str = "", **style: object) -> None:
        """A path in the language of SVG."""
        self._parts.append(f'<path{_class(kind)} d="{way}"{_attributes(**style)}/>')

    def line(
        self, xs: Sequence[float], ys: Sequence[float], kind: str = "", **style: object
    ) -> None:
        """A line through points."""
        points = (f"{_number(float(x))} {_number(float(y))}" for x, y in zip(xs, ys, strict=True))
        self.path(f"M{'L'.join(points)}", kind, **style)

    def rectangle(
        self, x: float, y: float, width: float, height: float, kind: str = "", **style: object
    ) -> None:
        """A rectangle by its upper left corner and its size; ``rx`` rounds its corners."""
        place = _attributes(x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), **style)
        self._parts.append(f"<rect{_class(kind)}{place}/>")

    @contextlib.contextmanager
    def group(self, title: str, *, link: str = "", ops: str = "") -> Iterator[None]:
        """What is drawn inside belongs together; ``title`` says what it is when pointed at.

        ``link``: the identity of the element on the page that shows more of it. ``ops``: the ops
        it stands for, a bitset in hexadecimal.
        """
        tag = "a" if link else "g"
        marks = _attributes(href=f"#{link}" if link else "", data_ops=ops)
        self._parts.append(f'<{tag} class="node"{marks}><title>{_escaped(title)}</title>')
        yield
        self._parts.append(f"</{tag}>")

    def inline(self, about: str) -> str:
        """The element for a page that has ``STYLE``; ``about`` tells what the picture shows."""
        box = f"0 0 {_number(self.width)} {_number(self.height)}"
        # A group and not an image: readers then find the texts in it.
        head = f'class="picture" viewBox="{box}" role="group" aria-label="{_escaped(about)}"'
        return f"<svg {head}>{''.join(self._parts)}</svg>"

    def render(self) -> bytes:
        """The picture as a file, the same for the same data byte for byte."""
        size = _attributes(width=self.width, height=self.height)
        space = f'xmlns="http://www.w3.org/2000/svg"{size}'
        paper = f"<style>{STYLE}</style><rect{_class('paper')} width='100%' height='100%'/>"
        svg = self.inline("").replace("<svg ", f"<svg {space} ", 1).replace(">", f">{paper}", 1)
        return svg.encode()


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    # XML has no character for most controls and none for a lone surrogate.
    return escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _attributes(**values: object) -> str:
    """Attributes in SVG's spelling; those without a value are left out."""
    pairs = ((key.replace("_", "-"), _number(value)) for key, value in values.items())
    return "".join(f' {key}="{_escaped(value)}"' for key, value in pairs if value)
