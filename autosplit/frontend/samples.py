"""Random items for a model: one array for each of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import ModelError

Array = np.ndarray[Any, np.dtype[Any]]
Signature = Sequence[tuple[str, Sequence[int], str]]

# The exclusive upper limit of random integers, by size in bytes, if nothing else is known of the
# input. Narrow integers are quantities. Wide ones are indices, and the shortest table has two rows
# (token types), or masks, where only 0 and 1 have a meaning.
_INTEGERS = {1: 8, 2: 8, 4: 2, 8: 2}
# The standard deviations of the floats of items 0 to 7, repeated for all further items: saturation,
# rounding to a grid and the range of narrow types show at some scales only.
_SCALES = (1.0, 0.25, 4.0, 1.0, 0.0625, 2.0, 0.5, 8.0)


def random_items(
    signature: Signature, count: int, seed: int, below: Mapping[str, int] | None = None
) -> list[dict[str, Array]]:
    """Draw ``count`` items for inputs given as (name, shape, dtype), the same for equal arguments.

    Floats are normal, with scales that repeat every eight items: the first item is standard normal,
    the fourth not negative. Booleans are true or false with equal probability; in every fourth item
    many rows have one value. Integers of 8 and 16 bits are 0 to 7, in every second item any; wider
    ones are 0 or 1. ``below`` gives the exclusive limit of integers by input name. An item depends
    on its number but not on ``count``, an array on the name of its input but not on its position.

    Raises:
        ModelError: A dtype is not numeric.
    """
    inputs = [(name, tuple(shape), _dtype(name, dtype)) for name, shape, dtype in signature]
    limits = below or {}
    return [
        {
            name: _draw(name, shape, dtype, limits.get(name), seed, item)
            for name, shape, dtype in inputs
        }
        for item in range(count)
    ]


def special_items(
    signature: Signature, count: int, seed: int, below: Mapping[str, int] | None = None
) -> list[dict[str, Array]]:
    """Draw random items with special values among their floats: one kind per item, in turn.

    The kinds are NaN, both infinities, denormals, negative zeros and the largest finite number.
    Few elements are special: an op that hides one is noticed even if another op spreads others.
    """
    items = random_items(signature, count, seed, below)
    for number, item in enumerate(items):
        for name, array in item.items():
            if array.dtype.kind == "f" and array.size:
                numbers = [seed, number, 1, *name.encode("utf-8", "surrogatepass")]
                generator = np.random.default_rng(numbers)
                places = generator.choice(array.size, max(1, array.size // 64), replace=False)
                limits = np.finfo(array.dtype)
                values = (np.nan, np.inf, -np.inf, limits.tiny / 4, -0.0, limits.max)
                array.flat[places] = values[number % len(values)]
    return items


def _draw(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], below: int | None, seed: int, item: int
) -> Array:
    generator = np.random.default_rng([seed, item, *name.encode("utf-8", "surrogatepass")])
    if dtype.kind == "f":
        scale = _SCALES[item % len(_SCALES)]
        array = np.asarray(scale * generator.standard_normal(shape)).astype(dtype)
        return np.abs(array, out=array) if item % len(_SCALES) == 3 else array
    limits = np.iinfo(np.int8 if dtype.kind == "b" else dtype)
    if below is None and dtype.itemsize <= 2 and item % 2 and dtype.kind != "b":
        return np.asarray(generator.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    limit = 2 if dtype.kind == "b" else min(below or _INTEGERS[dtype.itemsize], int(limits.max))
    array = np.asarray(generator.integers(0, limit, shape)).astype(dtype)
    if dtype.kind == "b" and item % 4 == 3 and shape:
        # Many kernels treat a mask that hides everything as a special case.
        rows = generator.integers(0, 3, (*shape[:-1], 1))
        array = np.where(rows == 2, array, rows == 1)
    return array


def _dtype(name: str, dtype: str) -> np.dtype[Any]:
    try:
        numeric = np.dtype(dtype)
    except TypeError:  # numpy has no such type
        numeric = np.dtype(object)
    if numeric.kind in "fbiu":
        return numeric
    raise ModelError(f"input {name!r}: no random values for dtype {dtype!r}; give your own items")
