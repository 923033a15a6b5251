"""Symbolic sizes of a Relax module bound by the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ConfigError, ModelError

Shapes = Mapping[str, tuple[int, ...]]
ENTRY = "main"


def bind_shapes(module: Any, shapes: Shapes) -> Any:
    """The module with its symbolic sizes bound by the shapes of its inputs. Raises ConfigError where those do not fit."""
    from tvm.relax import transform as t

    params = {p.name: p for p in module[ENTRY].params}
    for name in shapes:
        if name not in params:
            known = ", ".join(map(repr, params)) or "none"
            raise ConfigError(f"--shape names '{name}', but the model's inputs are {known}")
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
            f'input \'{name}\' has a shape without sizes; declare it, e.g. R.Tensor(("n", 4), "float32")'
        )
    return list(param.ty.shape.values)


def _match(name: str, sizes: list[Any], shape: tuple[int, ...], symbols: dict[Any, int]) -> None:
    given = "x".join(map(str, shape))
    if len(sizes) != len(shape):
        raise ConfigError(
            f"--shape {name}={given} has rank {len(shape)}, but the input has rank {len(sizes)}: {sizes}"
        )
    for axis, (size, wanted) in enumerate(zip(sizes, shape, strict=True)):
        if wanted < 1:
            raise ConfigError(
                f"--shape {name}={given} has size {wanted} at axis {axis}; sizes start at 1"
            )
        fixed = int(size.value) if hasattr(size, "value") else symbols.setdefault(size, wanted)
        if fixed != wanted:
            raise ConfigError(
                f"--shape {name}={given} differs at axis {axis}, which the model fixes to {fixed}"
            )


def _require_static(param: Any) -> None:
    sizes = _sizes(param.name, param)
    if not all(hasattr(s, "value") for s in sizes):
        text = ", ".join(map(str, sizes))
        example = "x".join(str(s.value) if hasattr(s, "value") else "1" for s in sizes)
        raise ModelError(
            f"input '{param.name}' has a dynamic shape ({text}); give it, e.g. --shape {param.name}={example}"
        )
    if str(param.ty.dtype) in ("", "void", "None"):
        raise ModelError(f"input '{param.name}' has no element type; declare it in the module")
