"""A drawn SVG as part of an HTML page: without its file header, its names its own, a description for who cannot see it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_XLINK = "{http://www.w3.org/1999/xlink}href"
_INHERITED = "stroke-linejoin:round;stroke-linecap:butt"  # what matplotlib says in a style sheet for every element

_PIXELS_A_POINT = 100 / 72  # pictures are drawn at 100 pixels an inch, their files count points
_SMALLEST = (
    0.82  # of its own width: text in a smaller picture is hard to read, so it scrolls instead
)


def inline(svg: bytes, name: str, description: str) -> str:
    """The element to put into a page; ``name`` differs from picture to picture on the page.

    ``svg`` is a picture that this package drew. It fills the width it is given, but stays wide enough to be read.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element)
        element.attrib = {
            ("href" if k == _XLINK else k): _own(k, v, name) for k, v in element.attrib.items()
        }
    box = root.attrib["viewBox"]
    least = float(box.split()[2]) * _PIXELS_A_POINT * _SMALLEST
    style = f"{_INHERITED};min-width:{least:.0f}px"
    root.attrib = {"viewBox": box, "role": "img", "aria-label": description, "style": style}
    return ElementTree.tostring(root, encoding="unicode")


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _own(key: str, value: str, name: str) -> str:
    """Identities and what refers to them, each with the picture's name before it: a page holds several pictures."""
    if key == "id":
        return f"{name}-{value}"
    if key == _XLINK:
        return f"#{name}-{value.removeprefix('#')}"
    return re.sub(r"url\(#", f"url(#{name}-", value)
