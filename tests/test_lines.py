"""The lines of each room: a budget that may fall, but not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Lower the number when a room has fewer lines. All lines of the Python files count.
MOST = {
    "autosplit/cuts autosplit/planner": 3_744,
    "autosplit/study": 3_817,
    "autosplit/frontend": 3_704,
    "autosplit/lowering": 3_012,
    "autosplit/hardware": 10_956,
    "autosplit/deploy": 2_736,
    "autosplit/report autosplit/cli autosplit/zoo": 5_462,
    "autosplit": 35_044,
    "studies": 3_903,
    "tests": 24_000,
}


def lines(folders: str) -> int:
    """The lines of all Python files in some folders."""
    files = (file for folder in folders.split() for file in (ROOT / folder).rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("folders", MOST)
def test_a_room_does_not_grow(folders: str) -> None:
    most = MOST[folders]
    assert lines(folders) <= most, f"{folders} has more than {most} lines; remove some"
