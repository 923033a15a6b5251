"""Binds the symbolic sizes of a Relax module by the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ConfigError, ModelError

Shapes = Mapping[str, tuple[int, ...]]
ENTRY = "main"


def bind_shapes(module: Any, shapes: Shapes) -> Any:
    """The module with its symbolic sizes bound by the shapes of its inputs.

    Raises:
        ConfigError: The shapes do not fit the inputs.
        ModelError: An input is no tensor, or a size of it stays unknown.
    """
    from tvm.relax import transform as t

    params = {p.name: p for p in module[ENTRY].params}
    for name in shapes:
        if name not in params:
            inputs = ", ".join(map(repr, params)) or "none"
            raise ConfigError(f"--shape names '{name}', but the model's inputs are {inputs}")
    symbols: dict[Any, int] = {}
    for name, shape in shapes.items():
        _match(name, _sizes(name, params[name]), shape, symbols)
    if symbols:
        module = t.BindSymbolicVars(symbols, ENTRY)(module)
    for param in module[ENTRY].params:
        _require_static(param)
    return module


def _sizes(name: str, param: Any) -> list[Any]:
    from tvm import relax

    if not isinstance(param.ty, relax.TensorType):
        raise ModelError(
            f"input '{name}' is a {type(param.ty).__name__}; only tensors can be split"
        )
    if getattr(param.ty.shape, "values", None) is None:
        raise ModelError(
            f"input '{name}' has a shape without sizes; "
            'declare it, e.g. R.Tensor(("n", 4), "float32")'
        )
    return list(param.ty.shape.values)


def _match(name: str, sizes: list[Any], shape: tuple[int, ...], symbols: dict[Any, int]) -> None:
    """Bind the symbols among ``sizes`` to the numbers of ``shape``."""
    option = f"--shape {name}={'x'.join(map(str, shape))}"
    if len(sizes) != len(shape):
        raise ConfigError(
            f"{option} has rank {len(shape)}, but the input has rank {len(sizes)}: {sizes}"
        )
    for axis, (size, number) in enumerate(zip(sizes, shape, strict=True)):
        if number < 1:
            raise ConfigError(f"{option} has size {number} at axis {axis}; sizes start at 1")
        is_number = hasattr(size, "value")
        fixed = int(size.value) if is_number else symbols.setdefault(size, number)
        if fixed != number:
            raise ConfigError(f"{option} differs at axis {axis}, which the model fixes to {fixed}")


def _require_static(param: Any) -> None:
    sizes = _sizes(param.name, param)
    if not all(hasattr(s, "value") for s in sizes):
        text = ", ".join(map(str, sizes))
        example = "x".join(str(s.value) if hasattr(s, "value") else "1" for s in sizes)
        raise ModelError(
            f"input '{param.name}' has a dynamic shape ({text}); "
            f"give it, e.g. --shape {param.name}={example}"
        )
    if str(param.ty.dtype) in ("", "void", "None"):
        raise ModelError(f"input '{param.name}' has no element type; declare it in the module")
