"""Exports a program as ONNX by torch's own exporter, under the names of the program's nodes."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import torch
from autosplit.frontend.torch import names
from autosplit.frontend.torch.checks import is_wrapper
from autosplit.frontend.torch.decompositions import without_lacking_ops
from autosplit.frontend.torch.names import NamedGraph

_FAILED_NODE = re.compile(r"translating node %(\w+)[^\n]*target=([\w.]+)")


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
            readable = without_lacking_ops(flat)
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

    def amax(x: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        return op.ReduceMax(x, *([op.Constant(value_ints=dim)] if dim else []), keepdims=keepdim)

    def amin(x: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        return op.ReduceMin(x, *([op.Constant(value_ints=dim)] if dim else []), keepdims=keepdim)

    aten = torch.ops.aten
    return {
        aten.log1p.default: log1p,
        aten.expm1.default: expm1,
        aten.amax.default: amax,
        aten.amin.default: amin,
    }


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
        decomposed = _fx_passes.decompose_with_registry(without_lacking_ops(flat), registry)
        return _origins(decomposed, flat, node_names).get(name, name)
    return name
