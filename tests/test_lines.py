"""The lines of each room: a budget that may fall, but not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Lower the number when a room has fewer lines. All lines of the Python files count.
MOST = {
    "autosplit/cuts autosplit/planner": 3_380,
    "autosplit/study": 4_190,
    "autosplit/frontend": 4_290,
    "autosplit/lowering": 3_125,
    "autosplit/hardware": 10_940,
    "autosplit/deploy": 1_925,
    "autosplit/report autosplit/cli autosplit/zoo": 6_230,
    "autosplit": 35_690,
    "studies": 3_930,
    "tests": 35_260,
}


def lines(folders: str) -> int:
    """The lines of all Python files in some folders."""
    files = (file for folder in folders.split() for file in (ROOT / folder).rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("folders", MOST)
def test_a_room_does_not_grow(folders: str) -> None:
    most = MOST[folders]
    assert lines(folders) <= most, f"{folders} has more than {most} lines; remove some"
