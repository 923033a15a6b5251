"""Rewrites calls of a PyTorch program into the form that TVM's importer reads correctly.

The importer takes positions as they stand, numbers in the type of the tensor beside them, and no
factor of a sum. Torch counts negative positions from the end, joins the types of what an op reads,
and scales the second summand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_LIKE_OPS = frozenset({"full_like", "ones_like", "zeros_like"})
_JOINED = """
    add sub mul div floor_divide fmod remainder maximum minimum atan2 cat cumsum where eq ne lt le
    gt ge
"""
_TYPE_JOINING_OPS = _LIKE_OPS.union(_JOINED.split())


def normalize(program: Any, constants: Mapping[str, Any]) -> None:
    """Change the graph of ``program`` in place; ``constants`` are its values by node names."""
    for node in list(program.graph.nodes):
        if node.op != "call_function":
            continue
        name, _, form = target_name(node.target).partition(".")
        if name in ("add", "sub") and form == "Tensor" and node.kwargs.get("alpha", 1) != 1:
            _scale_second(program.graph, node)
        if name in ("eq", "ne") and form == "Tensor" and node.args[0] is node.args[1]:
            _ask_for_nan(program.graph, node, name)
        if name in ("clamp", "clamp_min", "clamp_max"):
            _bound(program.graph, node, name)
        if name in _TYPE_JOINING_OPS and isinstance(node.meta.get("val"), _tensor_type()):
            _join_types(program.graph, node)
        if name == "select" and node.args[2] < 0:
            _count_from_start(program.graph, node)
        if name == "index":
            _keep_positions_inside(program.graph, node, constants)


def target_name(op: Any) -> str:
    """What TVM's importer calls an op of torch: ``add.Tensor``."""
    return str(getattr(op, "__name__", op))


def _tensor_type() -> Any:
    import torch

    return torch.Tensor


def _insert(graph: Any, node: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """A call before ``node``, on behalf of the same node of the program."""
    values = [a.meta["val"] if hasattr(a, "meta") else a for a in args]
    return _insert_as(target(*values, **kwargs), graph, node, target, *args, **kwargs)


def _insert_as(value: Any, graph: Any, node: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """``_insert`` of a call whose result is known to be like ``value``."""
    with graph.inserting_before(node):
        call = graph.call_function(target, args, kwargs)
    call.meta = {**node.meta, "val": value}
    return call


def _ask_for_nan(graph: Any, node: Any, name: str) -> None:
    """isnan in place of x != x, and its negation for x == x: TVM simplifies both to a constant."""
    import torch

    aten, tensor = torch.ops.aten, node.args[0]
    if name == "eq":
        is_nan = _insert(graph, node, aten.isnan.default, tensor)
        node.target, node.args = aten.logical_not.default, (is_nan,)
    else:
        node.target, node.args = aten.isnan.default, (tensor,)


def _scale_second(graph: Any, node: Any) -> None:
    import torch

    scaled = _insert(graph, node, torch.ops.aten.mul.Tensor, node.args[1], node.kwargs["alpha"])
    node.args, node.kwargs = (node.args[0], scaled), {}


def _join_types(graph: Any, node: Any) -> None:
    """Give every tensor that the op reads the type that torch computes it in."""
    import torch

    operands = list(_operands(node))
    values = [a.meta["val"] if hasattr(a, "meta") else a for a in operands]
    dtype = node.meta["val"].dtype
    if dtype == torch.bool:  # of a comparison, which is computed in the type of its operands
        if len(values) != 2 or any(not isinstance(v, torch.Tensor | int | float) for v in values):
            return
        dtype = torch.result_type(*values)
    for operand, value in zip(operands, values, strict=True):
        if isinstance(value, torch.Tensor) and value.dtype != dtype:
            copy = torch.ops.aten._to_copy.default
            node.replace_input_with(operand, _insert(graph, node, copy, operand, dtype=dtype))


def _bound(graph: Any, node: Any, name: str) -> None:
    """Put both bounds of a clamp in their places.

    Integers have no infinity to stand for a bound that is left out; they get maximum and minimum.
    """
    import torch

    aten, x, dtype = torch.ops.aten, node.args[0], node.meta["val"].dtype
    names = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}[name]
    bounds = {**dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
    low, high = bounds.get("min"), bounds.get("max")
    node.kwargs = {}
    if dtype.is_floating_point:
        has_tensor = any(hasattr(b, "meta") for b in (low, high))
        node.target = aten.clamp.Tensor if has_tensor else aten.clamp.default
        node.args = (x, low, high)
        return
    steps = [(aten.maximum.default, low), (aten.minimum.default, high)]
    steps = [(op, bound) for op, bound in steps if bound is not None]
    for op, bound in steps[:-1]:
        x = _insert_as(node.meta["val"], graph, node, op, x, _filled(graph, node, bound))
    node.target, bound = steps[-1]
    node.args = (x, _filled(graph, node, bound))


def _filled(graph: Any, node: Any, bound: Any) -> Any:
    import torch

    if hasattr(bound, "meta"):
        return bound
    like = node.meta["val"]
    return _insert_as(
        like.new_empty(()), graph, node, torch.ops.aten.full.default, [], bound, dtype=like.dtype
    )


def _operands(node: Any) -> Iterator[Any]:
    name = target_name(node.target).partition(".")[0]
    if name == "cat":
        yield from dict.fromkeys(node.args[0])
    elif name == "cumsum" or name in _LIKE_OPS:
        yield node.args[0]
    else:
        yield from dict.fromkeys(node.args[1:3] if name == "where" else node.args[:2])


def _count_from_start(graph: Any, node: Any) -> None:
    import torch

    tensor, axis, place = node.args[:3]
    size = tensor.meta["val"].shape[axis]
    if isinstance(size, int):
        node.args = (tensor, axis, place + size)
        return
    end = place + 1 if place < -1 else torch.iinfo(torch.int64).max
    item = _insert(graph, node, torch.ops.aten.slice.Tensor, tensor, axis, place, end)
    node.target, node.args = torch.ops.aten.squeeze.dims, (item, [axis])


def _keep_positions_inside(graph: Any, node: Any, constants: Mapping[str, Any]) -> None:
    """Positions that may be negative are taken modulo the size of their axis."""
    import torch

    shape = node.args[0].meta["val"].shape
    places = list(node.args[1])
    for axis, place in enumerate(places):
        if place is None or place.meta["val"].dtype == torch.bool:
            continue
        value = constants.get(place.name)
        is_positive = value is not None and bool((value >= 0).all())
        if isinstance(shape[axis], int) and not is_positive:
            places[axis] = _insert(graph, node, torch.ops.aten.remainder.Scalar, place, shape[axis])
    node.args = (node.args[0], places)
