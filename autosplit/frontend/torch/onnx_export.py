"""Exports a program as ONNX by torch's own exporter, under the names of the program's nodes."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import torch
from autosplit.frontend.torch import names
from autosplit.frontend.torch.checks import is_wrapper, target_name
from autosplit.frontend.torch.names import NamedGraph

_FAILED_NODE = re.compile(r"translating node %(\w+)[^\n]*target=([\w.]+)")
# ONNX has ops for these that TVM's importer lacks, and the exporter writes a wrong Conv for a
# conv3d without bias. Torch decomposes them into ops that are right in both.
_LACKING = """
    celu.default conv3d.default gru.input lstm.input cross_entropy_loss.default nll_loss_nd.default
    nll_loss.default nll_loss2d.default nll_loss_forward.default nll_loss2d_forward.default
    median.dim median.default
"""
_DECOMPOSED = frozenset(_LACKING.split())


@dataclass(frozen=True)
class OnnxProgram:
    """A program as a ModelProto, in which values are named after the nodes of ``program``.

    ``program`` is what was exported, with the bodies of wrapping calls in place. ``decomposed`` is
    what the exporter made of it; ``origins`` names, for each of its nodes, that of ``program``.
    """

    proto: Any
    program: Any
    decomposed: Any
    origins: dict[str, str]
    named: NamedGraph


def export(
    program: Any, changed: Any = None, inputs: Mapping[str, str] = MappingProxyType({})
) -> OnnxProgram:
    """Export a program that was checked. Raises ModelError, which names the node, on failure.

    ``changed`` is a functional form of it to take in its place, ``inputs`` names placeholders.
    """
    # Attention has other strides where gradients are wanted, which a view of it may not allow.
    with quiet(), torch.no_grad():
        # ONNX has no wrapping calls: their bodies take their places.
        is_wrapped = changed is None and any(map(is_wrapper, program.graph.nodes))
        flat = functional_form(program) if is_wrapped else changed or program
        node_names = {**names.flat_names(flat, program), **inputs}
        flat = _with_numbered_weights(flat)
        try:
            readable = _decomposed(flat)
            exported = torch.onnx.export(
                readable,
                dynamo=True,
                optimize=False,
                verbose=False,
                custom_translation_table=_translations(),
            )
            decomposed = exported.exported_program
            origins = _origins(decomposed, flat, node_names)
            named = names.rename(exported.model.graph, flat, decomposed, node_names, origins)
            return OnnxProgram(exported.model_proto, flat, decomposed, origins, named)
        except Exception as error:
            raise ModelError(_refusal(error, flat, node_names)) from error


def functional_form(program: Any) -> Any:
    """The program without wrapping calls, in which nothing is changed in place."""
    try:
        with quiet():
            return program.run_decompositions({})
    except Exception as error:
        raise ModelError(f"torch cannot decompose the program: {line_of(error)}") from error


def _origins(decomposed: Any, flat: Any, node_names: dict[str, str]) -> dict[str, str]:
    """For each node of the decomposed program, the name of the node that it came from."""
    origins = names.origins(decomposed, flat)
    return {name: node_names.get(origin, origin) for name, origin in origins.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence torch, which prints, warns and logs what it is about to raise."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sink = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _with_numbered_weights(program: Any) -> Any:
    """A copy of the program with its weights under numbered names.

    The exporter gives weights the names that they have in the module, and loses one of two where
    such a name is the placeholder of the other. No placeholder begins with a number.
    """
    signature = program.graph_signature
    targets = {
        spec.target: f"{number}.{spec.target}"
        for number, spec in enumerate(signature.input_specs)
        if spec.target
    }
    return torch.export.ExportedProgram(
        program.graph_module,
        program.graph,
        type(signature)(
            [replace(s, target=targets.get(s.target, s.target)) for s in signature.input_specs],
            [replace(s, target=targets.get(s.target, s.target)) for s in signature.output_specs],
        ),
        {targets[name]: tensor for name, tensor in program.state_dict.items() if name in targets},
        program.range_constraints,
        program.module_call_graph,
        constants={targets[n]: value for n, value in program.constants.items() if n in targets},
        verifiers=program.verifiers,
    )


def _decomposed(program: Any) -> Any:
    """The program without the ops, or forms of ops, that ONNX or TVM's importer of it lacks."""
    misread = {_misread(node) for node in names.calls(program).values()} - {None}
    if not misread:
        return program
    aten = torch.ops.aten
    medians = {aten.median.dim: _median, aten.median.default: _median}
    remainders = {aten.remainder.Tensor: _remainder, aten.remainder.Scalar: _remainder}
    decompositions = {**torch.export.default_decompositions(), **medians, **remainders}
    replaced = misread | _DECOMPOSED  # some are decomposed to others
    return program.run_decompositions(
        {op: how for op, how in decompositions.items() if target_name(op) in replaced}
    )


def _median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two in the middle, as torch has it; torch itself has no decomposition."""
    if dim is None:
        return _median(x.reshape(-1), 0)[0]
    middle = (x.shape[dim] - 1) // 2 if x.ndim else 0
    values = [part.narrow(dim, middle, 1) for part in x.sort(dim)]
    return tuple(part if keepdim else part.squeeze(dim) for part in values)


def _remainder(x: Any, divisor: Any) -> Any:
    """Exact for any quotient, which the exporter's ``x - floor(x / divisor) * divisor`` is not."""
    result = torch.fmod(x, divisor)
    differ = (result != 0) & ((result < 0) != (divisor < 0))
    return torch.where(differ, result + divisor, result)


def _translations() -> dict[Any, Any]:
    """ONNX for ops that the exporter writes as ``log(1 + x)`` and ``exp(x) - 1``.

    These lose a small ``x``. Near 0 the logarithm is the series of ``2 atanh(x / (2 + x))``.
    TVM would simplify the usual correction, ``(1 + x) - 1``, to ``x``.
    """
    from onnxscript import opset18

    op: Any = opset18

    def log1p(x: Any) -> Any:
        ratio = op.Div(x, op.Add(x, op.CastLike(2.0, x)))
        square = op.Mul(ratio, ratio)
        series = op.CastLike(2 / 9, x)
        for divisor in (7, 5, 3, 1):
            series = op.Add(op.Mul(series, square), op.CastLike(2 / divisor, x))
        is_near = op.Less(op.Abs(x), op.CastLike(0.25, x))
        return op.Where(is_near, op.Mul(ratio, series), op.Log(op.Add(x, op.CastLike(1.0, x))))

    def expm1(x: Any) -> Any:
        half = op.Mul(x, op.CastLike(0.5, x))
        return op.Mul(op.Tanh(half), op.Add(op.Exp(x), op.CastLike(1.0, x)))

    aten = torch.ops.aten
    return {aten.log1p.default: log1p, aten.expm1.default: expm1}


def _misread(node: Any) -> str | None:
    """The functional name of an op that is decomposed; None for any other."""
    name, _, form = target_name(node.target).partition(".")
    name = f"{name.removesuffix('_')}.{form}"
    args: tuple[Any, ...] = (*node.args, *[None] * 3)
    is_misread = name in _DECOMPOSED
    if name == "scaled_dot_product_attention.default":
        is_misread = args[0].meta["val"].ndim != 4 or bool(node.kwargs.get("enable_gqa"))
    if name == "pad.default" and args[2] == "circular":
        is_misread = min(args[1]) < 0
    if name in ("remainder.Tensor", "remainder.Scalar"):
        is_misread = node.meta["val"].dtype.is_floating_point
    if name in ("softmax.int", "log_softmax.int"):  # of integers, as floating point
        is_misread = not args[0].meta["val"].dtype.is_floating_point
    return name if is_misread else None


def _refusal(error: BaseException, flat: Any, node_names: dict[str, str]) -> str:
    """The node that the exporter stopped at, and its reason."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    reason = line_of(chain[-1])
    if reason.startswith("No ONNX function found"):
        reason = "torch has no ONNX function for it"
    for link in chain:
        match = _FAILED_NODE.search(str(link))
        if match:
            name = _origin_of(match[1], flat, node_names)
            op = match[2].removeprefix("torch.ops.")
            return f"node '{name}' ({op}) cannot be exported as ONNX: {reason}; replace it"
    return f"torch cannot export the program as ONNX: {reason}"


def _origin_of(name: str, flat: Any, node_names: dict[str, str]) -> str:
    """The node of the program that the exporter's node ``name`` was decomposed from."""
    from torch.onnx._internal.exporter import _fx_passes, _registration

    # The exporter does not tell. Decomposing again gives the same nodes the same names.
    with contextlib.suppress(Exception):
        registry = _registration.ONNXRegistry.from_torchlib()
        decomposed = _fx_passes.decompose_with_registry(_decomposed(flat), registry)
        return _origins(decomposed, flat, node_names).get(name, name)
    return name
