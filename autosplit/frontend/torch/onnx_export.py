"""Exports a program as ONNX by torch's own exporter, under the names of the program's nodes."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    """A program as a ModelProto, in which values are named after the nodes of the program.

    ``decomposed`` is what the exporter made of the program.
    """

    proto: Any
    decomposed: Any
    named: NamedGraph


def export(program: Any) -> OnnxProgram:
    """Export a program without wrapping calls. Raises ModelError, which names the node."""
    _require_distinct_weights(program)
    # Attention has other strides where gradients are wanted, which a view of it may not allow.
    with quiet(), torch.no_grad():
        try:
            exported = torch.onnx.export(
                without_lacking_ops(program),
                dynamo=True,
                optimize=False,
                verbose=False,
                custom_translation_table=_translations(),
            )
            decomposed = exported.exported_program
            named = names.rename(exported.model.graph, program, decomposed)
            return OnnxProgram(exported.model_proto, decomposed, named)
        except Exception as error:
            raise ModelError(_refusal(error, program)) from error


def flat(program: Any) -> Any:
    """The program without calls that wrap a part of it, which ONNX does not have."""
    return functional_form(program) if any(map(is_wrapper, program.graph.nodes)) else program


def functional_form(program: Any) -> Any:
    """The program without wrapping calls, in which nothing is changed in place."""
    try:
        with quiet(), torch.no_grad():
            functional = program.run_decompositions({})
    except Exception as error:
        raise ModelError(f"torch cannot decompose the program: {line_of(error)}") from error
    names.name_as(functional, program)
    return functional


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


def _require_distinct_weights(program: Any) -> None:
    """Raise ModelError for a weight that the exporter would lose, called as another's input is."""
    weights = {s.target: s.arg.name for s in program.graph_signature.input_specs if s.target}
    for name, placeholder in weights.items():
        if name != placeholder and name in weights.values():
            raise ModelError(
                f"weight '{name}' is called as torch calls the input of another one; rename it"
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


def _refusal(error: BaseException, program: Any) -> str:
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
            name, op = _origin_of(match[1], program), match[2].removeprefix("torch.ops.")
            return f"node '{name}' ({op}) cannot be exported as ONNX: {reason}; replace it"
    return f"torch cannot export the program as ONNX: {reason}"


def _origin_of(name: str, program: Any) -> str:
    """The node of the program that the exporter's node ``name`` was decomposed from."""
    from torch.onnx._internal.exporter import _fx_passes, _registration

    # The exporter does not tell. Decomposing again gives the same nodes the same names.
    with contextlib.suppress(Exception):
        registry = _registration.ONNXRegistry.from_torchlib()
        decomposed = _fx_passes.decompose_with_registry(without_lacking_ops(program), registry)
        return names.origins(decomposed, program).get(name, name)
    return name
