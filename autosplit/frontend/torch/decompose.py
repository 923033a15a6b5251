"""Rewrites a PyTorch program so that TVM's importer reads it: functional, in ops that it knows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.torch import unsupported
from autosplit.frontend.torch.normalize import normalize, target_name

# TVM's importer reads these, but not in every form: several layers, a number of another type, no
# kernel. Torch decomposes them into ops that it reads.
_DECOMPOSED = frozenset(
    {
        "_upsample_bicubic2d_aa.default",
        "_upsample_bicubic2d_aa.vec",
        "_upsample_bilinear2d_aa.default",
        "_upsample_bilinear2d_aa.vec",
        "eye.default",
        "eye.m",
        "gru.input",
        "lstm.input",
        "pixel_shuffle.default",
        "pixel_unshuffle.default",
        "rsub.Scalar",
        "rsub.Tensor",
        "std.correction",
        "std.default",
        "std.dim",
        "upsample_linear1d.default",
        "upsample_linear1d.vec",
    }
)


def functional(program: Any) -> Any:
    """The program without in-place ops, and with ops that the importer does not know decomposed.

    Raises:
        ModelError: An op or an input cannot be read by TVM, or items depend on those before.
    """
    from torch.export import default_decompositions
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = set(ExportedProgramImporter().convert_map) - _DECOMPOSED
    known -= set(_misread_ops(program.graph))
    for spec in user(program.graph_signature.input_specs):
        if type(spec.arg).__name__ != "TensorArgument":
            raise ModelError(
                f"input '{spec.arg.name}' is not a tensor; "
                "export the program with tensor inputs only"
            )
    _require_computation(program.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decompositions = {
            op: decomposition
            for op, decomposition in default_decompositions().items()
            if target_name(op) not in known
        }
        try:
            program = program.run_decompositions(decompositions)
        except Exception as error:
            raise ModelError(f"torch cannot decompose the program: {line_of(error)}") from error
    _require_known(program.graph, known)
    _require_no_state(program)
    unsupported.check(program.graph)
    normalize(program, _constants(program))
    return program


def _require_computation(graph: Any) -> None:
    """Raise ModelError for an op that reaches out of the program: to files, storages, Python.

    Torch runs the ops of a program while it decomposes them. What its dispatcher does not know
    (``aten.save``, ``aten.manual_seed``) are functions of TorchScript and no kernels.
    """
    import torch

    for node in graph.nodes:
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


def _require_known(graph: Any, known: set[str]) -> None:
    """Raise ModelError for the first call of an op that is not in ``known``."""
    import torch

    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise ModelError(
                f"node '{node.name}' is control flow ({node.target}), which cannot be split; "
                "export without it"
            )
        if target_name(node.target) not in known:
            raise ModelError(
                f"op {node.target} of node '{node.name}' is not supported by TVM's importer; "
                "replace it"
            )


def _constants(program: Any) -> dict[str, Any]:
    """The values of the program's constants that it holds, by the names of their nodes."""
    values = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "CONSTANT_TENSOR" and spec.target in program.constants:
            values[spec.arg.name] = program.constants[spec.target]
    return values


def _require_no_state(program: Any) -> None:
    """Raise ModelError if a buffer that the program updates also decides its outputs.

    Each item would then depend on those before it.
    """
    signature = program.graph_signature
    updated = {s.target for s in signature.output_specs if s.kind.name == "BUFFER_MUTATION"}
    outputs = {s.arg.name for s in user(signature.output_specs)}
    for spec in signature.input_specs:
        if spec.target not in updated:
            continue
        dependent = {spec.arg.name}
        for node in program.graph.nodes:
            inputs = {n.name for n in node.all_input_nodes}
            if node.op == "call_function" and dependent & inputs:
                dependent.add(node.name)
        if dependent & outputs:
            raise ModelError(
                f"buffer '{spec.target}' is updated by the program and decides its outputs, so "
                "that items depend on those before; make it an input and an output"
            )


def user(specs: Any) -> list[Any]:
    """The inputs that the caller gives, or the outputs it gets; updated buffers are neither."""
    return [s for s in specs if s.kind.name in ("USER_INPUT", "USER_OUTPUT")]


def _misread_ops(graph: Any) -> Iterator[str]:
    """Ops in a form that the importer misreads, which torch therefore decomposes."""
    for node in graph.nodes:
        name = target_name(node.target) if node.op == "call_function" else ""
        without_weights = None in (*node.args, None, None)[2:4]
        if name == "group_norm.default" and without_weights:
            raise ModelError(
                f"node '{node.name}' normalises groups without weight and bias; export it with both"
            )
        if name in ("layer_norm.default", "native_layer_norm.default") and without_weights:
            yield name
        if name == "pad.default" and node.args[2:3] == ("circular",) and min(node.args[1]) < 0:
            yield name
        if name == "scaled_dot_product_attention.default" and not _is_plain(node):
            yield name
        if name == "celu.default" and node.args[1:2] not in ((), (1.0,)):
            yield name


def _is_plain(attention: Any) -> bool:
    """Whether the importer reads it: rank 4, no boolean mask, no scale, no shared heads."""
    import torch

    values = [a.meta["val"] for a in attention.args[:4] if a is not None and hasattr(a, "meta")]
    mask = attention.kwargs.get("attn_mask")
    if mask is not None:
        values.append(mask.meta["val"])
    if attention.kwargs.get("scale") is not None or attention.kwargs.get("enable_gqa"):
        return False
    return all(v.ndim == 4 and v.dtype != torch.bool for v in values)
