"""Refuses nodes of a PyTorch program that do more than compute, or that ONNX would compute wrong.

Nodes are named as in the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import torch

_NORMS = frozenset(("batch_norm", "native_batch_norm", "_native_batch_norm_legit")).union(
    ("_native_batch_norm_legit_functional",)
)
_DROPOUTS = frozenset(
    ("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def require_computation(program: Any) -> None:
    """Raise ModelError for an op that reaches out of the program: to files, storages, Python.

    Torch runs the ops of a program while it decomposes them. What its dispatcher does not know
    (``aten.save``, ``aten.manual_seed``) are functions of TorchScript and no kernels.
    """
    graphs = [
        m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)
    ]
    for node in (node for graph in graphs for node in graph.nodes):
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        schema = node.target._schema
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        words = {argument.name for argument in schema.arguments}
        words |= {str(argument.type) for argument in schema.arguments}
        if words & {"filename", "Storage"} or not torch._C._dispatch_has_kernel(name):
            raise ModelError(
                f"op {node.target} of node '{node.name}' has side effects; export without it"
            )


def require_arrays(program: Any) -> None:
    """Raise ModelError for an input or output that is no tensor of a type that numpy has.

    A stage may return bfloat16, as an array of bits. ONNX has complex numbers as pairs.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    for kind, specs in (("input", signature.input_specs), ("output", signature.output_specs)):
        for spec in user(specs):
            name = getattr(spec.arg, "name", spec.arg)
            if type(spec.arg).__name__ != "TensorArgument":
                raise ModelError(f"{kind} '{name}' is not a tensor; export a program of tensors")
            require_array(kind, name, values[name].dtype)


def require_array(kind: str, name: str, dtype: Any) -> None:
    """Raise ModelError for an input, an output or a buffer of a type that numpy lacks."""
    if kind == "output" and dtype.is_complex:
        raise ModelError(
            f"output '{name}' is {dtype}, which ONNX does not have; return torch.view_as_real of it"
        )
    if kind != "output" and (dtype.is_complex or dtype == torch.bfloat16):
        raise ModelError(
            f"{kind} '{name}' is {dtype}, which has no arrays; "
            "take float32 and convert it inside the program"
        )


def require_supported(program: Any, origins: Mapping[str, str]) -> None:
    """Raise ModelError for control flow, for what draws at random, and for what ONNX cannot say.

    ``origins`` maps nodes to those that a message names.
    """
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        place = f"node '{origins.get(node.name, node.name)}'"
        if isinstance(node.target, torch._ops.HigherOrderOperator) and not is_wrapper(node):
            raise ModelError(
                f"{place} is control flow ({node.target}), which cannot be split; export without it"
            )
        name = target_name(node.target).partition(".")[0]
        reason = _lost(node, name) or _undefined(node, name) or _random(node, name)
        if reason is not None:
            raise ModelError(f"{place} {reason}")


def is_wrapper(node: Any) -> bool:
    """Whether a node calls a part of the program as it stands, without a choice or a loop.

    That is how ``torch.no_grad`` and ``torch.autocast`` are exported.
    """
    return target_name(node.target).startswith("wrap_with_")


def target_name(op: Any) -> str:
    """An op of torch without its namespace: ``add.Tensor``."""
    return str(getattr(op, "__name__", op))


def _lost(node: Any, name: str) -> str | None:
    """What torch's ONNX exporter leaves out or computes wrong."""
    args = (*node.args, *[None] * 7)
    if name in ("special_erfcx", "special_log_ndtr"):
        return "overflows in ONNX for numbers that are far from 0; replace it"
    if name == "_scaled_dot_product_flash_attention_for_cpu" and any(
        item.args[1] and item.users for item in node.users
    ):
        return "has a logarithm of sums that ONNX does not compute; use its first result alone"
    if name in ("avg_pool2d", "avg_pool3d") and args[6] is not None:
        return f"divides by divisor_override={args[6]}; export it without"
    if name in _NORMS and args[5] is True and args[3] is not None:
        return "normalises by the statistics of its input; export the model after eval()"
    return None


def _undefined(node: Any, name: str) -> str | None:
    """An output that is whatever the memory holds; what is written there first is defined."""
    if name.removeprefix("new_").startswith("empty") and any(u.op == "output" for u in node.users):
        return "has values that are not defined; use torch.zeros"
    return None


def _random(node: Any, name: str) -> str | None:
    """An op that draws at random gives other results for each item and each runtime."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return None
    args = (*node.args, *[None] * 7)
    deterministic = False
    if name in _DROPOUTS:
        deterministic = not args[1] or args[2] is False
    elif name == "scaled_dot_product_attention":
        deterministic = not (args[4] or node.kwargs.get("dropout_p"))
    elif name == "_scaled_dot_product_flash_attention_for_cpu":
        deterministic = not args[3]
    elif name in _RECURRENT:
        deterministic = not args[5] or args[6] is False
    if deterministic:
        return None
    return "draws random numbers, so outputs differ between runs; export the model after eval()"


def user(specs: Any) -> list[Any]:
    """The inputs that the caller gives, or the outputs it gets; updated buffers are neither."""
    return [s for s in specs if s.kind.name in ("USER_INPUT", "USER_OUTPUT")]
