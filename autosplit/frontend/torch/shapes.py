"""Static shapes for a program with dynamic dimensions, some of which follow from others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ConfigError
from autosplit.frontend.shapes import Shapes, bound_symbols, of_one_item
from autosplit.frontend.torch.checks import user


def static_shapes(program: Any, shapes: Shapes) -> Shapes:
    """The shape of each input that ``shapes`` determines: ``n + 1`` follows from ``n``.

    Raises:
        ConfigError: A shape is given for no input, or does not fit the others.
    """
    names = {spec.arg.name for spec in user(program.graph_signature.input_specs)}
    sizes_of = {node.name: _sizes(node) for node in program.graph.nodes if node.name in names}
    shapes = of_one_item(sizes_of, shapes)
    symbols = bound_symbols(sizes_of, shapes)
    static = {}
    for name, sizes in sizes_of.items():
        shape = [_value(size, symbols) for size in sizes]
        for axis, (size, number) in enumerate(zip(shape, shapes.get(name, ()), strict=False)):
            if isinstance(size, int) and size != number:
                raise ConfigError(
                    f"shape {name}={'x'.join(map(str, shapes[name]))} differs at axis {axis}, "
                    f"which is {size} by the other inputs; give {size}"
                )
        shape = list(shapes.get(name, shape))
        if all(isinstance(size, int) for size in shape):
            static[name] = tuple(shape)
    return static


def _sizes(node: Any) -> list[Any]:
    """The sizes of an input: numbers, and sympy's expressions for dynamic ones."""
    shape = node.meta["val"].shape
    return [size if isinstance(size, int) else size.node.expr for size in shape]


def _value(size: Any, symbols: Mapping[Any, int]) -> Any:
    """A size with the numbers of symbols put in; an int if that determines it."""
    if isinstance(size, int):
        return size
    size = size.subs({symbol: n for symbol, n in symbols.items() if symbol.is_Symbol})
    return int(size) if size.is_Integer else size
