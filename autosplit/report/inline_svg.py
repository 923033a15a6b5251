"""A drawn SVG as part of an HTML page: without its file header, its names its own, a description for who cannot see it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_XLINK = "{http://www.w3.org/1999/xlink}href"
_INHERITED = "stroke-linejoin:round;stroke-linecap:butt"  # what matplotlib says in a style sheet for every element


def inline(svg: bytes, name: str, description: str) -> str:
    """The element to put into a page; ``name`` must differ from picture to picture and become no other picture's start.

    ``svg`` is a picture that this package drew.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element)
        element.attrib = {("href" if k == _XLINK else k): _own(k, v, name) for k, v in element.attrib.items()}
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-label": description,
        "style": _INHERITED,
    }
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
