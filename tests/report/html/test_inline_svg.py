"""A drawn picture as part of a page."""

from xml.etree import ElementTree

import pytest

from autosplit.report.html.page import inline

SVG = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"
 "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 width="360pt" height="72pt" viewBox="0 0 360 72" onload="alert(1)">
<metadata><x>who</x></metadata>
<defs><style>*{stroke-linejoin: round}</style>
<clipPath id="c1"><rect/></clipPath><path id="p1"/></defs>
<g clip-path="url(#c1)" style="fill: url(#p1)">
<use xlink:href="#p1" x="3"/><style>a{}</style></g></svg>"""


@pytest.fixture
def element():
    return ElementTree.fromstring(inline(SVG, "net", 'a "picture" <of> it'))


def test_it_is_an_image_with_a_description(element):
    assert (element.tag, element.get("role"), element.get("aria-label")) == (
        "svg",
        "img",
        'a "picture" <of> it',
    )


def test_only_the_box_stays_of_what_the_root_said(element):
    assert set(element.attrib) == {"viewBox", "role", "aria-label", "style"}
    assert element.get("viewBox") == "0 0 360 72"


def test_it_is_at_least_four_fifths_as_wide_as_it_was_drawn(element):
    assert element.get("style").endswith("min-width:410px")  # 360 points are 500 pixels


def test_what_holds_for_the_whole_page_is_left_out(element):
    assert not [e for e in element.iter() if e.tag in ("metadata", "style")]
    assert "<?xml" not in inline(SVG, "net", "")
    assert "xmlns" not in inline(SVG, "net", "")


def test_names_and_what_refers_to_them_are_the_picture_s_own(element):
    assert [e.get("id") for e in element.iter() if e.get("id")] == ["net-c1", "net-p1"]
    group = element.find("g")
    assert (group.get("clip-path"), group.get("style")) == ("url(#net-c1)", "fill: url(#net-p1)")
    assert (group.find("use").get("href"), group.find("use").get("x")) == ("#net-p1", "3")
