"""Text from outside, made safe to print."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""``text`` in one line, with all that a terminal would interpret written as an escape.

    Names in model files, studies and exports may hold control characters, escape sequences,
    bidirectional controls, line breaks and lone surrogates. They are shown as ``\x1b``, ``\u202e``.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in str(text)
    )
