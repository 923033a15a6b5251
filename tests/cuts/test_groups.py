"""Downsets near a cut that tears a group of ops apart."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autosplit import cuts

CHAIN = SimpleNamespace(predecessors=(0, 0b1, 0b10, 0b100, 0b1000))
FORK = SimpleNamespace(predecessors=(0, 0b1, 0b1, 0b110))


@pytest.mark.parametrize(
    ("downset", "groups", "larger", "smaller"),
    [
        (0b11, [0b110], 0b111, 0b1),
        (0b11, [0b110, 0b1100], 0b1111, 0b1),
        (0b11, [0b1000], 0b11, 0b11),
        (0b1, [0b11111], 0b11111, 0),
    ],
)
def test_groups_are_whole_in_the_nearest_downsets(
    downset: int, groups: list[int], larger: int, smaller: int
) -> None:
    assert cuts.with_whole_groups(CHAIN, downset, groups) == larger
    assert cuts.without_torn_groups(CHAIN, downset, groups) == smaller


def test_an_op_goes_with_its_producer() -> None:
    assert cuts.without_torn_groups(FORK, 0b111, [0b1001]) == 0


def test_the_last_ops_are_those_that_nothing_inside_reads() -> None:
    assert cuts.last_ops(FORK, 0b111) == 0b110
    assert cuts.last_ops(FORK, 0b1111) == 0b1000
