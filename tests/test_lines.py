"""The lines of each room: a budget that may fall, but not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Lower the number when a room has fewer lines. All lines of the Python files count.
MOST = {
    "autosplit/cuts autosplit/planner": 3_734,
    "autosplit/study": 3_839,
    "autosplit/frontend": 3_669,
    "autosplit/lowering": 3_006,
    "autosplit/hardware": 11_030,
    "autosplit/deploy": 2_742,
    "autosplit/report autosplit/cli autosplit/zoo": 5_586,
    "autosplit": 35_220,
    "studies": 3_944,
    "tests": 23_995,
}


def lines(folders: str) -> int:
    """The lines of all Python files in some folders."""
    files = (file for folder in folders.split() for file in (ROOT / folder).rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("folders", MOST)
def test_a_room_does_not_grow(folders: str) -> None:
    most = MOST[folders]
    assert lines(folders) <= most, f"{folders} has more than {most} lines; remove some"
