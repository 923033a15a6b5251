"""The colours of all pictures, and names as texts that cannot break a picture."""

from __future__ import annotations

import re

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
