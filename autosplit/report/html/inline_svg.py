"""A drawn SVG as an element of an HTML page, with names of its own and a description."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_XLINK = "{http://www.w3.org/1999/xlink}href"
# what matplotlib says of every element in a style sheet
_STYLE = "stroke-linejoin:round;stroke-linecap:butt"
_PIXELS_A_POINT = 100 / 72  # pictures are drawn at 100 pixels an inch, their files count points
_MIN_SCALE = 0.82  # text in a smaller picture is hard to read, so it scrolls instead


def inline(svg: bytes, name: str, description: str) -> str:
    """The element for a page; ``name`` differs from picture to picture on the page.

    ``svg`` is a picture that this package drew. It fills its width, but stays readable.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local_name(child) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local_name(element)
        element.attrib = dict(_renamed(k, v, name) for k, v in element.attrib.items())
    box = root.attrib["viewBox"]
    width = float(box.split()[2]) * _PIXELS_A_POINT * _MIN_SCALE
    style = f"{_STYLE};min-width:{width:.0f}px"
    root.attrib = {"viewBox": box, "role": "img", "aria-label": description, "style": style}
    return ElementTree.tostring(root, encoding="unicode")


def _local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _renamed(key: str, value: str, name: str) -> tuple[str, str]:
    """An attribute with the picture's name before identities and references to them."""
    if key == "id":
        return key, f"{name}-{value}"
    if key == _XLINK:
        return "href", f"#{name}-{value.removeprefix('#')}"
    return key, re.sub(r"url\(#", f"url(#{name}-", value)
