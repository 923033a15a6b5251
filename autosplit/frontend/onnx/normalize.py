"""Rewrites ONNX ops that TVM's converters would misread: old opsets, attributes they ignore.

A converter that ignores an attribute gives another result than the model. Such a node is rewritten
in terms that the converter knows, or refused. Semantics: the ONNX operator specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.onnx import shape_arithmetic
from autosplit.frontend.onnx.resize import Attributes, modern_upsample, to_sizes
from autosplit.frontend.relax.expressions import is_constant, shape_of

Convert = Callable[[str, Any, dict[str, Any], int], Any]
Rewritten = tuple[Any, Attributes]

# The converters leave out the further results of these.
_FIRST_RESULT_ONLY = frozenset({"LayerNormalization", "MaxPool"})
_SIGNS = ("negative", "positive")
_FLOAT8 = 17  # TensorProto.FLOAT8E4M3FN; the importer knows no other type of 8 bits


def converted(
    convert: Convert, node: Any, inputs: Any, attrs: Attributes, opset: int, read: set[str]
) -> Any:
    """The Relax expression of the NodeProto ``node``; ``convert`` is the importer's conversion.

    ``read`` names the tensors that are read.

    Raises:
        ValueError: The node cannot be rewritten; the text does not name it.
    """
    kind = node.op_type
    # Before opset 11 a Resize had scales alone, as Upsample.
    if kind == "Upsample" or (kind == "Resize" and opset < 11):
        inputs, attrs = modern_upsample(inputs, attrs)
    if kind in ("Upsample", "Resize"):
        return convert("Resize", *to_sizes(inputs, attrs), opset)
    if kind == "Equal" and inputs[0].same_as(inputs[1]) and _is_float(inputs):
        # TVM simplifies x == x to true.
        return _not("IsNaN", convert, shape_arithmetic.input_list(inputs, inputs[:1]), opset)
    if kind == "Equal" and str(inputs[0].ty.dtype) == "bool":
        # TVM compares booleans as floats, and cannot build that.
        return _not("Xor", convert, inputs, opset)
    if kind in ("Max", "Mean", "Min", "Sum") and not all(map(is_constant, inputs)):
        return _pairwise(kind, inputs)
    reason = _refused(kind, attrs, inputs)
    if reason:
        raise ValueError(reason)
    if kind in _REWRITES:
        inputs, attrs = _REWRITES[kind](inputs, dict(attrs), opset)
    if kind == "LayerNormalization" and str(inputs[0].ty.dtype) == "bfloat16":
        result = _in_float32(convert, inputs, attrs, opset)
    else:
        result = convert(kind, inputs, attrs, opset)
    if kind == "OneHot":
        # The result has the type of the values, which the converter ignores.
        return _cast(result, inputs[2])
    if kind in _FIRST_RESULT_ONLY and len(node.output) > 1:
        return _first(result, [o for o in node.output[1:] if o in read], len(node.output))
    return result


def _refused(kind: str, attrs: Attributes, inputs: Any) -> str:
    """Why nothing can stand for what the converter ignores; empty where something can."""
    if kind == "BatchNormalization" and attrs.get("training_mode", 0):
        return "it normalises by batch statistics (training_mode=1); export the model for inference"
    # The converter is that of com.microsoft, where the attribute is mandatory.
    if kind == "Attention" and "num_heads" not in attrs:
        return "TVM's importer has no Attention of the ONNX standard; export it as MatMul, Softmax"
    if kind.startswith(("Reduce", "Arg", "Global")) and 0 in shape_of(inputs[0]):
        return "TVM does not reduce a tensor without elements"
    if kind == "NonMaxSuppression":
        return "TVM makes its result as large as all boxes would need"
    if kind == "RMSNormalization" and attrs.get("axis", -1) in (0, -len(inputs[0].ty.shape)):
        return "TVM does not normalise over all axes; flatten its input first"
    if kind == "LayerNormalization" and str(inputs[0].ty.dtype) == "float64":
        return "TVM does not normalise layers in float64; export the model in float32 or float16"
    if kind == "SpaceToDepth" and attrs.get("mode", b"DCR") != b"DCR":
        return "TVM's importer knows mode DCR alone; export it as Reshape, Transpose, Reshape"
    if kind == "IsInf" and not all(attrs.get(f"detect_{sign}", 1) for sign in _SIGNS):
        return "TVM's importer finds infinities of both signs; compare with a constant for one sign"
    if kind == "Cast" and attrs["to"] == _FLOAT8 and not is_constant(inputs[0]):
        return "TVM's conversion to float8 neither saturates nor keeps NaN; export it in float16"
    if kind == "BitShift":
        return "TVM leaves amounts that the type has no bits for to the processor"
    if kind == "Mod" and not attrs.get("fmod", 0) and _is_float(inputs):
        return (
            "TVM multiplies a rounded quotient, which large ones make wrong; export it with fmod=1"
        )
    if kind == "RoiAlign":
        return "TVM samples regions at other places, and takes the largest of other samples"
    if kind == "ConvTranspose" and "output_shape" in attrs:
        return "TVM's importer ignores output_shape; export it with output_padding"
    pads = inputs[1:2] if kind == "Pad" and attrs.get("mode") == b"wrap" else ()
    if any(is_constant(p) and (p.value.numpy() < 0).any() for p in pads):
        return "TVM wraps a tensor whole; crop it by a Slice instead of negative pads"
    return ""


def _slice(inputs: Any, attrs: Attributes, opset: int) -> Rewritten:
    """Starts, ends and axes became inputs in opset 10."""
    if opset >= 10:
        return inputs, attrs
    items = [inputs[0]]
    for name in ("starts", "ends", "axes"):
        numbers = attrs.get(name)
        known = numbers is not None
        items.append(shape_arithmetic.constant(np.array(numbers, np.int64)) if known else None)
    return shape_arithmetic.input_list(inputs, items), attrs


def _pow(inputs: Any, attrs: Attributes, opset: int) -> Rewritten:
    """The exponent has any type; the result has the base's."""
    if str(inputs[0].ty.dtype)[:3] in ("int", "uin"):
        raise ValueError(
            f"TVM has powers of floats only, its base is {inputs[0].ty.dtype}; "
            "multiply, or cast to float"
        )
    return shape_arithmetic.input_list(inputs, [inputs[0], _cast(inputs[1], inputs[0])]), attrs


def _not(kind: str, convert: Convert, inputs: Any, opset: int) -> Any:
    """The negation of what an op computes."""
    result = relax.BlockBuilder.current().normalize(convert(kind, inputs, {}, opset))
    return convert("Not", shape_arithmetic.input_list(inputs, [result]), {}, opset)


def _in_float32(convert: Convert, inputs: Any, attrs: Attributes, opset: int) -> Any:
    """LayerNormalization of bfloat16, which the specification computes in float32."""
    builder = relax.BlockBuilder.current()
    present = [i for i in inputs if i is not None]  # the bias, which may be absent, is the last
    floats = [builder.normalize(relax.op.astype(i, "float32")) for i in present]
    floats += [None] * (len(inputs) - len(present))
    floats = shape_arithmetic.input_list(inputs, floats)
    result, *others = convert("LayerNormalization", floats, attrs, opset)
    return relax.Tuple([relax.op.astype(builder.normalize(result), "bfloat16"), *others])


def _pairwise(kind: str, inputs: Any) -> Any:
    """An op of any number of tensors as a chain of ops of two.

    TVM's importer would stack the tensors, which copies every one and which no pass fuses.
    """
    combine = {"Max": relax.op.maximum, "Min": relax.op.minimum}.get(kind, relax.op.add)
    normalized = relax.BlockBuilder.current().normalize
    total = inputs[0]
    for operand in inputs[1:]:
        total = normalized(combine(total, operand))
    if kind != "Mean" or len(inputs) == 1:
        return total
    return normalized(relax.op.divide(total, relax.const(len(inputs), str(total.ty.dtype))))


def _is_float(inputs: Any) -> bool:
    return "float" in str(inputs[0].ty.dtype)


_REWRITES: dict[str, Callable[[Any, Attributes, int], Rewritten]] = {"Pow": _pow, "Slice": _slice}


def _first(result: Any, read_further: Sequence[str], count: int) -> Any:
    """The first result in place of results that nothing reads."""
    if read_further:
        raise ValueError(
            f"TVM's importer does not make its output '{read_further[0]}'; "
            "export the model without it"
        )
    return result if isinstance(result, relax.Tuple) else relax.Tuple([result] * count)


def _cast(value: Any, like: Any) -> Any:
    """``value`` with the element type of ``like``."""
    dtype = str(like.ty.dtype)
    if is_constant(value):
        return shape_arithmetic.constant(value.value.numpy().astype(dtype))
    return relax.op.astype(value, dtype)
