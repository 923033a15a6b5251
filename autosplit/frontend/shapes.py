"""Static shapes for the inputs of a model, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.errors import ConfigError, ModelError

_NAME = re.compile(r"[^\W\d]\w*")
_SYMBOL_OF_TORCH = re.compile(r"s\d+")  # numbered by torch
_ITEMS = re.compile(r"[nb]|batch\w*", re.IGNORECASE)  # usual names of the batch size

Shapes = Mapping[str, tuple[int, ...]]
Sizes = Sequence[Any] | None  # numbers, symbols, None for an unknown size; None for an unknown rank


def of_one_item(inputs: Mapping[str, Sizes], shapes: Shapes) -> Shapes:
    """``shapes``, or if there are none and only batch sizes are open, the shapes of one item."""
    if shapes:
        return shapes
    first_sizes = {name: sizes[0] for name, sizes in inputs.items() if sizes}
    items = {name: size for name, size in first_sizes.items() if not isinstance(size, int)}
    if not all(size is None or _ITEMS.fullmatch(str(size)) for size in items.values()):
        return shapes
    of_items = {name: (1, *(inputs[name] or ())[1:]) for name in items}
    return {n: s for n, s in of_items.items() if all(isinstance(size, int) for size in s)}


def bound_symbols(inputs: Mapping[str, Sizes], shapes: Shapes) -> dict[Any, int]:
    """The sizes that ``shapes`` give to the symbols of inputs.

    Raises:
        ConfigError: A shape is given for no input, or does not fit.
    """
    for name in shapes:
        if name not in inputs:
            names = ", ".join(map(repr, inputs)) or "none"
            raise ConfigError(f"shapes name '{name}', but the model's inputs are {names}")
    symbols: dict[Any, int] = {}
    for name, shape in shapes.items():
        known = inputs[name]
        sizes = [None] * len(shape) if known is None else known
        option = f"shape {name}={'x'.join(map(str, shape))}"
        if len(sizes) != len(shape):
            rank, text = len(sizes), _text(sizes)
            raise ConfigError(
                f"{option} has rank {len(shape)}, but the input has rank {rank}: {text}"
            )
        for axis, (size, number) in enumerate(zip(sizes, shape, strict=True)):
            if number < 1:
                raise ConfigError(f"{option} has size {number} at axis {axis}; sizes start at 1")
            fixed = size if isinstance(size, int) else number
            # A symbol has one value, whichever inputs it stands in.
            if not isinstance(size, int | None):
                fixed = symbols.setdefault(size, number)
            if fixed != number:
                raise ConfigError(
                    f"{option} differs at axis {axis}, which the model fixes to {fixed}"
                )
    return symbols


def require_static(name: str, sizes: Sizes) -> None:
    """Raise ModelError, with the option that helps, unless all sizes of an input are numbers."""
    if sizes is not None and all(isinstance(size, int) for size in sizes):
        return
    example = tuple(size if isinstance(size, int) else 1 for size in sizes or (1, 3, 224, 224))
    raise ModelError(
        f"input '{name}' has a dynamic shape {_text(sizes)}; give it, e.g. --shape "
        f"{name}={'x'.join(map(str, example))}, in Python shapes={ {name: example} }"
    )


def _text(sizes: Sizes) -> str:
    return "(of unknown rank)" if sizes is None else f"({', '.join(map(_size_text, sizes))})"


def _size_text(size: Any) -> str:
    """A size as its number or as the name that the model gives it, else as a question mark."""
    is_named = _NAME.fullmatch(str(size)) and not _SYMBOL_OF_TORCH.fullmatch(str(size))
    return str(size) if isinstance(size, int) or (size is not None and is_named) else "?"
