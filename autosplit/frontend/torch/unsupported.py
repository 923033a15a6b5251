"""Refuses forms of torch's ops that TVM's importer would misread, by the name of the node."""

from __future__ import annotations

from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.torch.normalize import target_name

_NORMS = frozenset(("batch_norm", "native_batch_norm", "_native_batch_norm_legit")).union(
    ("_native_batch_norm_legit_functional",)
)
_DROPOUTS = frozenset(
    ("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def check(graph: Any) -> None:
    """Raise ModelError if a node of a decomposed program has such a form."""
    for node in graph.nodes:
        if node.op == "call_function":
            name = target_name(node.target).partition(".")[0]
            reason = _misread(node, name) or _random(node, name)
            if reason is not None:
                raise ModelError(f"node '{node.name}' {reason}")


def _misread(node: Any, name: str) -> str | None:
    args = (*node.args, *[None] * 7)
    if name in ("avg_pool2d", "avg_pool3d") and args[6] is not None:
        return f"divides by divisor_override={args[6]}; export it without"
    if name.startswith("max_pool") and not node.args[0].meta["val"].dtype.is_floating_point:
        return "takes the largest of integers; export it with floating point"
    if name in _NORMS and args[5] is True and args[3] is not None:
        return "normalises by the statistics of its input; export the model after eval()"
    if name == "cross_entropy_loss" and not _is_plain_loss(args):
        return (
            "takes a loss in a form that TVM does not have; "
            "export it as a mean over rows of classes, or without"
        )
    return _misread_scale(node) if name.startswith("upsample_") else None


def _misread_scale(node: Any) -> str | None:
    """TVM scales by the ratio of the sizes, torch by its factor; they differ for a rounded size."""
    factors = node.args[-1]
    if not isinstance(factors, list | tuple) or len(node.args) <= 2 or node.args[2] is True:
        return None
    sizes = node.args[0].meta["val"].shape[2:]
    for size, factor in zip(sizes, factors, strict=False):
        if isinstance(size, int) and abs(size * factor - round(size * factor)) > 1e-3:
            return (
                f"scales {size} by {factor:.4g}, which is not a whole size; "
                "export it with a size instead"
            )
    return None


def _is_plain_loss(args: tuple[Any, ...]) -> bool:
    """Whether it is a mean over rows: no other reduction, no class left out, no smoothing."""
    return (
        args[0].meta["val"].ndim <= 2
        and args[3] in (None, 1)
        and args[4] in (None, -100)
        and not args[5]
    )


def _random(node: Any, name: str) -> str | None:
    """An op that draws at random gives other results for each item and each runtime."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return None
    args = (*node.args, *[None] * 7)
    deterministic = False
    if name in _DROPOUTS:
        deterministic = not args[1] or args[2] is False
    elif name == "scaled_dot_product_attention":
        deterministic = not (args[4] or node.kwargs.get("dropout_p"))
    elif name in _RECURRENT:
        deterministic = not args[5] or args[6] is False
    if deterministic:
        return None
    return "draws random numbers, so outputs differ between runs; export the model after eval()"
