"""Refuses a PyTorch program that does more than compute on arrays."""

from __future__ import annotations

from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import torch


def require_computation(program: Any) -> None:
    """Raise ModelError for an op that affects files, storages or Python, trains, or is inexact.

    Torch runs the ops of a program while it decomposes them. Ops that its dispatcher does not know
    (``aten.save``, ``aten.manual_seed``) are TorchScript functions, not kernels.
    """
    modules = program.graph_module.modules()
    graphs = [module.graph for module in modules if isinstance(module, torch.fx.GraphModule)]
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
        kind = target_name(node.target)
        values = {a.name: value for a, value in zip(schema.arguments, node.args, strict=False)}
        values |= node.kwargs
        is_divided_anew = kind.startswith("avg_pool") and values.get("divisor_override") is not None
        if is_divided_anew or kind in ("histc.default", "logcumsumexp.default"):
            raise ModelError(f"node '{node.name}' ({kind}) has no exact form in ONNX; replace it")
        is_training = values.get("training") is True and values.get("running_mean") is not None
        if kind == "batch_norm.default" and is_training:
            raise ModelError(f"node '{node.name}' normalises as in training; export after eval()")


def require_arrays(program: Any) -> None:
    """Raise ModelError for an input or output that is not a tensor of a type that numpy has.

    An output may be bfloat16, returned as an array of bits. ONNX has complex numbers as pairs only.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    for kind, specs in (("input", signature.input_specs), ("output", signature.output_specs)):
        for spec in (s for s in specs if s.kind.name == f"USER_{kind.upper()}"):
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


def target_name(op: Any) -> str:
    """An op of torch without its namespace: ``add.Tensor``."""
    return str(getattr(op, "__name__", op))
