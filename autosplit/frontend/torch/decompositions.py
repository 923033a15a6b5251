"""Decomposes ops, or forms of ops, that ONNX or TVM's importer of it lacks into ops that both have.

What torch decomposes itself is named only; the functions here are for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from autosplit.extras import torch
from autosplit.frontend.torch.checks import target_name
from autosplit.frontend.torch.names import calls

# ONNX has ops for some that TVM's importer lacks. The exporter writes a wrong Conv for a conv3d
# without bias, stacks by a function of sequences, and divides numbers of unlike types.
_BY_TORCH = """
    celu.default conv3d.default gru.input lstm.input cross_entropy_loss.default nll_loss_nd.default
    nll_loss.default nll_loss2d.default nll_loss_forward.default nll_loss2d_forward.default
    hstack.default vstack.default dstack.default column_stack.default linalg_vander.default
    adaptive_max_pool1d.default adaptive_avg_pool3d.default
    divide.Tensor multiply.Tensor subtract.Tensor true_divide.Tensor
"""
Pair = tuple[Any, Any]


def without_lacking_ops(program: Any) -> Any:
    """The program without the ops that are lacking; itself where there are none."""
    functions = _functions()
    replaced = frozenset((*_BY_TORCH.split(), *map(target_name, functions)))
    misread = {_misread(node, replaced) for node in calls(program).values()} - {None}
    if not misread:
        return program
    decompositions = {**torch.export.default_decompositions(), **functions}
    # Remainders of integers are right as they are.
    targets = misread | {name for name in replaced if not name.startswith("remainder.")}
    return program.run_decompositions(
        {op: function for op, function in decompositions.items() if target_name(op) in targets}
    )


def _misread(node: Any, replaced: frozenset[str]) -> str | None:
    """The functional name of an op that is decomposed; None for any other."""
    name, _, form = target_name(node.target).partition(".")
    name = f"{name.removesuffix('_')}.{form}"
    args: tuple[Any, ...] = (*node.args, *[None] * 3)
    is_misread = name in replaced
    if name == "scaled_dot_product_attention.default":
        is_misread = args[0].meta["val"].ndim != 4 or bool(node.kwargs.get("enable_gqa"))
    if name == "pad.default" and args[2] == "circular":
        is_misread = min(args[1]) < 0
    if name in ("remainder.Tensor", "remainder.Scalar"):
        is_misread = node.meta["val"].dtype.is_floating_point
    if name in ("softmax.int", "log_softmax.int"):  # of integers, as floating point
        is_misread = not args[0].meta["val"].dtype.is_floating_point
    return name if is_misread else None


def _functions() -> dict[Any, Callable[..., Any]]:
    """The functions for ops that torch does not decompose, or to ops that ONNX lacks."""
    aten = torch.ops.aten
    return {
        aten.median.dim: _median,
        aten.median.default: _median,
        aten.kthvalue.default: _kthvalue,
        aten.remainder.Tensor: _remainder,
        aten.remainder.Scalar: _remainder,
        aten.atleast_1d.Sequence: lambda parts: [torch.atleast_1d(part) for part in parts],
        aten.atleast_2d.Sequence: lambda parts: [torch.atleast_2d(part) for part in parts],
        aten.atleast_3d.Sequence: lambda parts: [torch.atleast_3d(part) for part in parts],
        aten.fmax.default: lambda a, b: _but_nan(torch.maximum, a, b),
        aten.fmin.default: lambda a, b: _but_nan(torch.minimum, a, b),
        aten.copy.default: _copy,
        aten.cumprod.default: _cumprod,
        aten.cummax.default: lambda x, dim: _cumulative_extreme(torch.amax, x, dim, _ends(x)[0]),
        aten.cummin.default: lambda x, dim: _cumulative_extreme(torch.amin, x, dim, _ends(x)[1]),
        aten.cdist.default: _cdist,
        aten._cdist_forward.default: _cdist,
        aten.adaptive_max_pool2d.default: _adaptive_max_pool,
        aten.adaptive_max_pool3d.default: _adaptive_max_pool,
        aten._adaptive_avg_pool3d.default: _adaptive_avg_pool,
    }


def _copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """The source alone: the exporter would read the old values of the target for their type."""
    return source.to(target.dtype).expand(target.shape).clone()


def _median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two in the middle, as torch has it."""
    if dim is None:
        return _median(x.reshape(-1), 0)[0]
    return _kthvalue(x, (x.shape[dim] + 1) // 2 if x.ndim else 1, dim, keepdim)


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    values, places = (part.narrow(dim, k - 1, 1) for part in x.sort(dim))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _remainder(x: Any, divisor: Any) -> Any:
    """Exact for any quotient, which the exporter's ``x - floor(x / divisor) * divisor`` is not."""
    result = torch.fmod(x, divisor)
    differ = (result != 0) & ((result < 0) != (divisor < 0))
    return torch.where(differ, result + divisor, result)


def _but_nan(function: Any, a: Any, b: Any) -> Any:
    """The larger or lesser; where one is NaN the other."""
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, function(a, b)))


def _prefixes(x: Any, dim: int, rest: float) -> tuple[Any, Any]:
    """For each place along ``dim``, which comes last but one, the numbers up to it and ``rest``.

    Also where they are. Steps that double what is summed up would be fewer operations, but in one
    fused kernel each would compute those before it twice.
    """
    places = torch.arange(x.shape[dim])
    is_before = places <= places.unsqueeze(1)
    return torch.where(is_before, x.movedim(dim, -1).unsqueeze(-2), rest), is_before


def _cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    kind = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if not x.ndim:
        return x.to(kind)
    return _prefixes(x.to(kind), dim, 1)[0].prod(-1).movedim(-1, dim)


def _cumulative_extreme(function: Any, x: Any, dim: int, rest: float) -> Pair:
    """The largest or least so far and the last place where it was."""
    if not x.ndim:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    numbers, is_before = _prefixes(x, dim, rest)
    values = function(numbers, [-1], True)
    # NaN is the largest and the least of all, and differs from itself.
    is_there = (numbers == values) | ((numbers != numbers) & (values != values))
    places = torch.where(is_there & is_before, torch.arange(x.shape[dim]), -1).amax([-1])
    return values.squeeze(-1).movedim(-1, dim), places.movedim(-1, dim)


def _ends(x: Any) -> tuple[float, float]:
    """The least and the largest number of a type."""
    if x.dtype.is_floating_point:
        return -math.inf, math.inf
    return torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).max


def _cdist(a: Any, b: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """The distances of all rows of ``a`` and all rows of ``b``."""
    distances = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    if p == 0:
        return (distances != 0).to(a.dtype).sum(-1)
    if p == 1:
        return distances.sum(-1)
    if p == 2:
        return (distances * distances).sum(-1).sqrt()
    return distances.amax([-1]) if math.isinf(p) else distances.pow(p).sum(-1).pow(1 / p)


def _windows(x: Any, dim: int, count: int) -> tuple[Any, Any, Any]:
    """What each of ``count`` results of adaptive pooling reads along ``dim``, counted from the end.

    The dimension becomes two, of windows and of the places in them. Shorter windows repeat their
    last place. Also the first place of each window and whether a place in it is not repeated.
    """
    length, number = x.shape[dim], torch.arange(count)
    first = number * length // count
    last = ((number + 1) * length + count - 1) // count - 1
    longest = max(-(-(i + 1) * length // count) - i * length // count for i in range(count))
    places = first.unsqueeze(1) + torch.arange(longest)
    parts = x.index_select(dim, torch.minimum(places, last.unsqueeze(1)).reshape(-1))
    return parts.unflatten(dim, (count, longest)), first, places <= last.unsqueeze(1)


def _adaptive_avg_pool(x: Any, size: Sequence[int]) -> Any:
    for dim, count in zip(range(-len(size), 0), size, strict=True):
        parts, _, counts = _windows(x, dim, count)
        weights = counts.to(x.dtype) / counts.sum(1, True)
        x = (parts * weights.reshape(*weights.shape, *[1] * (-1 - dim))).sum(dim)
    return x


def _adaptive_max_pool(x: Any, size: Sequence[int]) -> Pair:
    """The largest of each window and its place in the flattened image."""
    outer, image, firsts = x.ndim - len(size), x.shape[-len(size) :], []
    for dim, count in zip(range(-len(size), 0), size, strict=True):
        # The windows of the dimensions before have two dimensions each.
        x, first, _ = _windows(x, dim, count)
        firsts.append(first)
    pairs = range(outer, x.ndim, 2)
    inside = [x.shape[pair + 1] for pair in pairs]
    x = x.permute(*range(outer), *pairs, *(pair + 1 for pair in pairs)).flatten(-len(size))
    values, chosen = x.max(-1)
    place, stride = 0, 1
    for dim in range(-1, -len(size) - 1, -1):
        along = chosen % inside[dim] + firsts[dim].reshape(-1, *[1] * (-1 - dim))
        place, stride = place + along * stride, stride * image[dim]
        chosen = chosen // inside[dim]
    return values, place
