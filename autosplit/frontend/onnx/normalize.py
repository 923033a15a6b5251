"""Rewrites ONNX ops that TVM's converters would misread: old opsets, attributes they ignore.

If a converter ignores an attribute, the result differs from the model's. Such a node is rewritten
in terms that the converter knows (``rewrites``), or refused. The semantics are those of the ONNX
operator specification.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.onnx.rewrites import REWRITES, Attributes, Convert, Node
from autosplit.frontend.relax.expressions import is_constant, shape_of

# Ops of which the converters return the first result only.
_FIRST_RESULT_ONLY = frozenset({
    "Attention", "Dropout", "LayerNormalization", "MaxPool", "SkipLayerNormalization",
})  # fmt: skip
# Ops that TVM's converters misread whatever the operands, and how.
_MISREAD = {
    "BitShift": "TVM's result of a shift by more bits than the type has depends on the processor",
    "DynamicQuantizeLinear": "TVM divides by 0 where all numbers are 0",
    "GroupNormalization": "TVM subtracts squares, which is inexact for values far from 0",
    "MeanVarianceNormalization": "TVM subtracts squares, which is inexact for values far from 0",
    "NonMaxSuppression": "TVM makes its result as large as all boxes would need",
    "OneHot": "TVM's importer ignores the type of its values",
    "ReduceLogSumExp": "TVM subtracts infinities, which gives NaN",
    "RoiAlign": "TVM samples regions at other places",
    "ThresholdedRelu": "TVM multiplies infinities by 0, which gives NaN",
    "Upsample": "TVM's importer has no Upsample",
}
_FLOAT8 = 17  # TensorProto.FLOAT8E4M3FN; the importer knows no other type of 8 bits


def converted(
    convert: Convert, node: Any, inputs: Any, attrs: Attributes, opset: int, read: set[str]
) -> Any:
    """The Relax expression of the NodeProto ``node``; ``convert`` is the importer's conversion.

    ``read`` has the names of all tensors that a node reads or the model returns.

    Raises:
        ValueError: The node cannot be rewritten; the text does not name it.
    """
    kind = node.op_type
    further = [o for o in node.output[1:] if o in read]
    reason = _MISREAD.get(kind) or _refused(kind, attrs, inputs, opset)
    if kind in _FIRST_RESULT_ONLY and further:
        reason = f"TVM's importer does not make its output '{further[0]}'"
    if reason:
        raise ValueError(reason)
    result = REWRITES.get(kind, Node.converted)(Node(convert, kind, inputs, attrs, opset))
    if kind in _FIRST_RESULT_ONLY and len(node.output) > 1 and not isinstance(result, relax.Tuple):
        return relax.Tuple([result] * len(node.output))  # nothing reads the others
    return result


def _refused(kind: str, attrs: Attributes, inputs: Any, opset: int) -> str:
    """Why TVM would compute another result than the model; empty where it would not."""
    axis = attrs.get("axis", -1)  # of norms
    # Before opset 11, Resize took only scales, as Upsample does.
    if kind == "Resize" and opset < 11:
        return _MISREAD["Upsample"]
    if kind == "BatchNormalization" and attrs.get("training_mode", 0):
        return "it normalises by batch statistics (training_mode=1); export the model for inference"
    # TVM's converter is for the Attention of com.microsoft, where the attribute is mandatory.
    if kind == "Attention" and "num_heads" not in attrs:
        return "TVM's importer has no Attention of the ONNX standard"
    if kind.startswith(("Reduce", "Arg", "Global")) and 0 in shape_of(inputs[0]):
        return "TVM does not reduce a tensor without elements"
    if kind.startswith("Reduce") and str(inputs[0].ty.dtype) == "bool":
        return "TVM does not reduce booleans"
    if kind == "ReduceMean" and "int" in str(inputs[0].ty.dtype):
        return "TVM's mean of integers has another type"
    if kind == "Sign" and not str(inputs[0].ty.dtype).startswith("int"):
        return "TVM compares with -1 and 0, which fails for NaN and unsigned integers"
    if kind in ("Scatter", "ScatterElements") and not _reaches_all(inputs, attrs.get("axis", 0)):
        return "TVM scatters along whole axes"
    if kind == "RMSNormalization" and axis in (0, -len(inputs[0].ty.shape)):
        return "TVM does not normalise over all axes"
    if kind == "LayerNormalization" and str(inputs[0].ty.dtype) == "float64":
        return "TVM does not normalise layers in float64"
    if kind == "LayerNormalization" and shape_of(inputs[1]) != shape_of(inputs[0])[axis:]:
        return "TVM normalises over the axes of its scale alone"
    if kind == "SpaceToDepth" and attrs.get("mode", b"DCR") != b"DCR":
        return "TVM's importer knows mode DCR alone"
    if kind == "IsInf" and 0 in (attrs.get("detect_negative"), attrs.get("detect_positive")):
        return "TVM's importer finds infinities of both signs"
    if kind == "Cast" and attrs["to"] == _FLOAT8 and not is_constant(inputs[0]):
        return "TVM's conversion to float8 neither saturates nor keeps NaN"
    if kind == "Gemm" and attrs.get("alpha", 1) == 0:
        return "TVM replaces a product with 0 by 0, which loses NaN"
    if kind == "Mod" and not attrs.get("fmod", 0) and "float" in str(inputs[0].ty.dtype):
        return "TVM uses a rounded quotient, which is wrong if it is large; fmod=1 is exact"
    if kind in ("Div", "Mod") and "int" in str(inputs[0].ty.dtype) and not _divides(inputs[1]):
        return "TVM ends the process where an integer is divided by 0"
    if kind == "MaxUnpool" and any(attrs.get("pads", ())):
        return "TVM's importer mixes up the padding of axes"
    if kind == "ConvTranspose" and "output_shape" in attrs:
        return "TVM's importer ignores output_shape"
    if kind == "Pow" and str(inputs[0].ty.dtype).startswith(("int", "uint")):
        return f"TVM has powers of floats only, its base is {inputs[0].ty.dtype}"
    pads = inputs[1:2] if kind == "Pad" and attrs.get("mode") == b"wrap" else ()
    if any(is_constant(p) and (p.value.numpy() < 0).any() for p in pads):
        return "TVM wraps the whole tensor, even where negative padding crops it"
    return ""


def _reaches_all(inputs: Any, axis: int) -> bool:
    """Whether indices cover the data along all axes that TVM's kernel merges into one."""
    sizes = list(zip(shape_of(inputs[0]), shape_of(inputs[1]), strict=True))
    first = axis % len(sizes)
    return all(size == number for size, number in (sizes[1:first] + sizes[first + 2 :]))


def _divides(divisor: Any) -> bool:
    """Whether it is a constant without 0 and -1: by -1, the division of the least one overflows."""
    return is_constant(divisor) and not np.isin(divisor.value.numpy(), (0, -1)).any()
