"""The canonical text of a split, by which a study knows it.

It is the number of stages, then each cut as the hexadecimal bitset of the ops before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from autosplit.cuts import full
from autosplit.cuts.stages import Stages, cuts_between, stages_between
from autosplit.errors import SplitError
from autosplit.planner import CostModel


def key_of(stages: Stages) -> str:
    """The key of a split."""
    return f"{len(stages)}:" + ".".join(f"{cut:x}" for cut in cuts_between(stages))


def stages_of_key(costs: CostModel, key: str) -> Stages:
    """The stages of a key, some of which may be empty.

    Raises SplitError where it is no key, or its cuts are not nested cuts of these ops.
    """
    count, _, text = key.partition(":")
    try:
        cuts = [int(digits, 16) for digits in text.split(".")] if text else []
    except ValueError:
        raise SplitError(
            f"'{key[:60]}' is not the key of a split; keys are made by Space.key"
        ) from None
    ends: Sequence[int] = (0, *cuts, full(costs))
    are_nested = all(a >= 0 and not a & ~b for a, b in pairwise(ends))
    if count != str(len(cuts) + 1) or not are_nested:
        raise other_space(key)
    return stages_between(costs, cuts)


def without_runtimes(key: str) -> tuple[str, tuple[str, ...]]:
    """A key without the runtimes that may follow it, and their names."""
    parts = key.split(":")
    names = tuple(parts[2].split(",")) if len(parts) > 2 else ()
    return ":".join(parts[:2]), names


def other_space(key: str) -> SplitError:
    """The error for a key of another space."""
    return SplitError(
        f"'{key[:60]}' is not a candidate of this space; read it with the space it was made in"
    )
