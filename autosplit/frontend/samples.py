"""Random items for a model: one array for each of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import ModelError

Array = np.ndarray[Any, np.dtype[Any]]
Signature = Sequence[tuple[str, Sequence[int], str]]

# The upper end of random integers by their bytes, if nothing else is known of the input. Narrow
# integers are quantities. Wide ones are indices, and the shortest table has two rows (token types),
# or masks, in which only 0 and 1 mean anything.
_INTEGERS = {1: 8, 2: 8, 4: 2, 8: 2}
# The standard deviation of the floats of items 0 to 7, and so on: saturation, rounding to a grid
# and the range of narrow types show at some scales only.
_SCALES = (1.0, 0.25, 4.0, 1.0, 0.0625, 2.0, 0.5, 8.0)


def random_items(
    signature: Signature, count: int, seed: int, below: Mapping[str, int] | None = None
) -> list[dict[str, Array]]:
    """``count`` items for inputs given as (name, shape, dtype), alike for the same arguments.

    Floats are normal, of unlike scale in eight items; the first are standard normal, the fourth not
    negative. Booleans are true or false with equal probability, in every fourth item many a row
    whole. Integers of 8 and 16 bits are 0 to 7, in every second item any, wider ones 0 and 1.
    ``below`` gives the upper end of an input's integers by its name. An item depends on its number,
    not on ``count``; an array on its input's name, not on its place.

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
    """Random items with special values among their floats, one kind for each item, in turn.

    The kinds are NaN, both infinities, denormals, negative zeros and the largest finite number.
    Few elements are special, so that an op that hides one is seen behind an op that spreads it.
    """
    items = random_items(signature, count, seed, below)
    for number, item in enumerate(items):
        for name, array in item.items():
            if array.dtype.kind == "f" and array.size:
                generator = np.random.default_rng(
                    [seed, number, 1, *name.encode("utf-8", "surrogatepass")]
                )
                places = generator.choice(array.size, max(1, array.size // 64), replace=False)
                array.flat[places] = _special_value(number, array.dtype)
    return items


def _special_value(number: int, dtype: np.dtype[Any]) -> Any:
    limits = np.finfo(dtype)
    values = (np.nan, np.inf, -np.inf, limits.tiny / 4, -0.0, limits.max)
    return values[number % len(values)]


def _draw(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], below: int | None, seed: int, item: int
) -> Array:
    generator = np.random.default_rng([seed, item, *name.encode("utf-8", "surrogatepass")])
    if dtype.kind == "f":
        scale = _SCALES[item % len(_SCALES)]
        array = np.asarray(scale * generator.standard_normal(shape)).astype(dtype)
        return np.abs(array) if item % len(_SCALES) == 3 else array
    limits = np.iinfo(np.int8 if dtype.kind == "b" else dtype)
    if below is None and dtype.itemsize <= 2 and item % 2 and dtype.kind != "b":
        return np.asarray(generator.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    limit = 2 if dtype.kind == "b" else min(below or _INTEGERS[dtype.itemsize], int(limits.max))
    array = np.asarray(generator.integers(0, limit, shape)).astype(dtype)
    if dtype.kind == "b" and item % 4 == 3 and shape:
        # A mask that hides everything is treated apart by many a kernel.
        rows = generator.integers(0, 3, (*shape[:-1], 1))
        array = np.where(rows == 2, array, rows == 1)
    return array


def _dtype(name: str, dtype: str) -> np.dtype[Any]:
    error = f"input {name!r}: no random values for dtype {dtype!r}: give items of your own"
    try:
        numeric = np.dtype(dtype)
    except TypeError as cause:
        raise ModelError(error) from cause
    if numeric.kind not in "fbiu":
        raise ModelError(error)
    return numeric
