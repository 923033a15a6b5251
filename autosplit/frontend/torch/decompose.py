"""A PyTorch program rewritten so that TVM's importer reads it: no in-place op, no op or form of an op that it lacks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.torch import unsupported
from autosplit.frontend.torch.normalize import reformed, target_name

# What TVM's importer knows, but not in every form: several layers, a number of another type, no kernel. Torch's own
# decomposition is in ops that it reads.
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
    """The program without in-place ops, and with ops that the importer does not know decomposed."""
    from torch.export import default_decompositions
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = (
        set(ExportedProgramImporter().convert_map) - _DECOMPOSED - set(_odd_forms(program.graph))
    )
    for spec in user(program.graph_signature.input_specs):
        if type(spec.arg).__name__ != "TensorArgument":
            raise ModelError(
                f"input '{spec.arg.name}' is no tensor; export the program with tensors as inputs alone"
            )
    decompositions = default_decompositions()
    _require_computation(program.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = {op: how for op, how in decompositions.items() if target_name(op) not in known}
        try:
            program = program.run_decompositions(table)
        except Exception as error:
            raise ModelError(f"torch cannot decompose the program: {line_of(error)}") from error
    _require_known(program.graph, known)
    _require_no_memory(program)
    unsupported.check(program.graph)
    reformed(program, _held(program))
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
                f"op {node.target} of node '{node.name}' does more than compute; export without it"
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


def _held(program: Any) -> dict[str, Any]:
    """The values of the program's constants by the names of their nodes, as far as they are there."""
    names = {
        s.arg.name: s.target
        for s in program.graph_signature.input_specs
        if s.kind.name == "CONSTANT_TENSOR"
    }
    return {
        name: program.constants[target]
        for name, target in names.items()
        if target in program.constants
    }


def _require_no_memory(program: Any) -> None:
    """A buffer that the program updates and reads makes each item depend on those before it; stages keep no state."""
    updated = {
        s.target for s in program.graph_signature.output_specs if s.kind.name == "BUFFER_MUTATION"
    }
    kept = {s.arg.name for s in user(program.graph_signature.output_specs)}
    for spec in program.graph_signature.input_specs:
        if spec.target not in updated:
            continue
        reached = {spec.arg.name}
        for node in program.graph.nodes:
            if reached & {n.name for n in node.all_input_nodes} and node.op == "call_function":
                reached.add(node.name)
        if reached & kept:
            raise ModelError(
                f"buffer '{spec.target}' is updated by the program and decides its outputs, so that items depend on those "
                f"before; make it an input and an output"
            )


def user(specs: Any) -> list[Any]:
    """The inputs the caller gives, or the outputs the caller gets; buffers that a program updates are neither."""
    return [s for s in specs if s.kind.name in ("USER_INPUT", "USER_OUTPUT")]


def _odd_forms(graph: Any) -> Iterator[str]:
    """Ops that the program has in a form the importer misreads: norms without weights, attention but for the plainest."""
    for node in graph.nodes:
        name = target_name(node.target) if node.op == "call_function" else ""
        bare = None in (*node.args, None, None)[2:4]
        if name == "group_norm.default" and bare:
            raise ModelError(
                f"node '{node.name}' normalises groups without weight and bias; export it with both"
            )
        if name in ("layer_norm.default", "native_layer_norm.default") and bare:
            yield name
        if name == "pad.default" and node.args[2:3] == ("circular",) and min(node.args[1]) < 0:
            yield name
        if name == "scaled_dot_product_attention.default" and not _is_plain(node):
            yield name
        if name == "celu.default" and node.args[1:2] not in ((), (1.0,)):
            yield name


def _is_plain(attention: Any) -> bool:
    """Whether the importer reads an attention: four dimensions throughout, no mask of truths, no scale, no shared heads."""
    import torch

    read = [a.meta["val"] for a in attention.args[:4] if a is not None and hasattr(a, "meta")]
    read += [m.meta["val"] for m in [attention.kwargs.get("attn_mask")] if m is not None]
    options = attention.kwargs.get("scale") is not None or attention.kwargs.get("enable_gqa")
    return not options and all(v.ndim == 4 and v.dtype != torch.bool for v in read)
