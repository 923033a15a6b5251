"""Rewrites ONNX ops that TVM's converters would misread: old opsets, attributes they ignore.

A converter that ignores an attribute gives another result than the model. Such a node is rewritten
in terms that the converter knows, or refused. Semantics: the ONNX operator specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosplit.extras import relax
from autosplit.frontend.onnx.single_node import constant
from autosplit.frontend.relax.expressions import is_constant, shape_of

Attributes = dict[str, Any]
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
        raise ValueError("TVM's importer has no Upsample")
    if kind == "Resize":
        inputs = _with_sizes(inputs, attrs)
    if kind == "Equal" and inputs[0].same_as(inputs[1]) and "float" in str(inputs[0].ty.dtype):
        # TVM simplifies x == x to true.
        return _not("IsNaN", convert, _input_list(inputs, inputs[:1]), opset)
    if kind == "Equal" and str(inputs[0].ty.dtype) == "bool":
        # TVM compares booleans as floats, and cannot build that.
        return _not("Xor", convert, inputs, opset)
    if kind in ("Max", "Mean", "Min", "Sum") and not all(map(is_constant, inputs)):
        return _pairwise(kind, inputs)
    further = [o for o in node.output[1:] if o in read]
    reason = _refused(kind, attrs, inputs)
    if kind in _FIRST_RESULT_ONLY and further:
        reason = f"TVM's importer does not make its output '{further[0]}'"
    if reason:
        raise ValueError(reason)
    if kind in _REWRITES:
        inputs, attrs = _REWRITES[kind](inputs, dict(attrs), opset)
    if kind == "Compress" and is_constant(inputs[1]):
        places = constant(np.flatnonzero(inputs[1].value.numpy()))
        data = inputs[0] if "axis" in attrs else relax.op.flatten(inputs[0])
        return relax.op.take(data, places, attrs.get("axis", 0))
    if kind == "TopK" and opset == 10:
        opset = 11  # its number is an input, which the importer knows since then
    if kind == "DynamicQuantizeLinear":
        return _dynamically_quantized(inputs[0])
    if kind == "ThresholdedRelu":
        return _thresholded(inputs[0], attrs.get("alpha", 1.0))
    if kind == "ReduceLogSumExp" and not attrs.get("noop_with_empty_axes", 0):
        return _log_sum_exp(convert, inputs, attrs, opset)
    if kind == "LayerNormalization" and str(inputs[0].ty.dtype) == "bfloat16":
        result = _in_float32(convert, inputs, attrs, opset)
    else:
        result = convert(kind, inputs, attrs, opset)
    if kind in _FIRST_RESULT_ONLY and len(node.output) > 1 and not isinstance(result, relax.Tuple):
        return relax.Tuple([result] * len(node.output))  # nothing reads the others
    return result


def _refused(kind: str, attrs: Attributes, inputs: Any) -> str:
    """Why TVM would compute another result than the model; empty where it would not."""
    axis = attrs.get("axis", -1)  # of norms
    if kind == "BatchNormalization" and attrs.get("training_mode", 0):
        return "it normalises by batch statistics (training_mode=1); export the model for inference"
    # The converter is that of com.microsoft, where the attribute is mandatory.
    if kind == "Attention" and "num_heads" not in attrs:
        return "TVM's importer has no Attention of the ONNX standard"
    if kind.startswith(("Reduce", "Arg", "Global")) and 0 in shape_of(inputs[0]):
        return "TVM does not reduce a tensor without elements"
    if kind.startswith("Reduce") and str(inputs[0].ty.dtype) == "bool":
        return "TVM does not reduce booleans"
    if kind == "ReduceMean" and "int" in str(inputs[0].ty.dtype):
        return "TVM's mean of integers has another type"
    if kind == "Sign" and str(inputs[0].ty.dtype).startswith("uint"):
        return "TVM compares with -1, which is no unsigned integer"
    if kind == "ScatterElements" and not _reaches_all(inputs, attrs.get("axis", 0)):
        return "TVM scatters along whole axes"
    if kind == "NonMaxSuppression":
        return "TVM makes its result as large as all boxes would need"
    if kind == "RMSNormalization" and axis in (0, -len(inputs[0].ty.shape)):
        return "TVM does not normalise over all axes"
    if kind == "LayerNormalization" and str(inputs[0].ty.dtype) == "float64":
        return "TVM does not normalise layers in float64"
    if kind == "LayerNormalization" and shape_of(inputs[1]) != shape_of(inputs[0])[axis:]:
        return "TVM normalises over the axes of its scale alone"
    if kind == "SpaceToDepth" and attrs.get("mode", b"DCR") != b"DCR":
        return "TVM's importer knows mode DCR alone"
    if kind == "IsInf" and not all(attrs.get(f"detect_{sign}", 1) for sign in _SIGNS):
        return "TVM's importer finds infinities of both signs"
    if kind == "Cast" and attrs["to"] == _FLOAT8 and not is_constant(inputs[0]):
        return "TVM's conversion to float8 neither saturates nor keeps NaN"
    if kind == "BitShift":
        return "TVM leaves amounts that the type has no bits for to the processor"
    if kind == "Mod" and not attrs.get("fmod", 0) and "float" in str(inputs[0].ty.dtype):
        return "TVM multiplies a rounded quotient, which large ones make wrong; fmod=1 is exact"
    if kind in ("Div", "Mod") and "int" in str(inputs[0].ty.dtype) and not _divides(inputs[1]):
        return "TVM ends the process where an integer is divided by 0"
    if kind == "RoiAlign":
        return "TVM samples regions at other places"
    if kind == "ConvTranspose" and "output_shape" in attrs:
        return "TVM's importer ignores output_shape"
    if kind == "OneHot":
        return "TVM's importer ignores the type of its values"
    if kind == "Pow" and str(inputs[0].ty.dtype).startswith(("int", "uint")):
        return f"TVM has powers of floats only, its base is {inputs[0].ty.dtype}"
    pads = inputs[1:2] if kind == "Pad" and attrs.get("mode") == b"wrap" else ()
    if any(is_constant(p) and (p.value.numpy() < 0).any() for p in pads):
        return "TVM wraps a tensor whole"
    return ""


def _reaches_all(inputs: Any, axis: int) -> bool:
    """Whether indices are as many as the data along all axes that a kernel counts as one."""
    sizes = list(zip(shape_of(inputs[0]), shape_of(inputs[1]), strict=True))
    first = axis % len(sizes)
    return all(size == number for size, number in (sizes[1:first] + sizes[first + 2 :]))


def _divides(divisor: Any) -> bool:
    """Whether a processor can divide all integers by it: the least one by -1 overflows."""
    return is_constant(divisor) and not np.isin(divisor.value.numpy(), (0, -1)).any()


def _with_sizes(inputs: Any, attrs: Attributes) -> Any:
    """The inputs of a Resize to the sizes of all axes, which the converter gets right.

    Raises ValueError if TVM would resize otherwise.
    """
    before = list(shape_of(inputs[0]))
    _, _, scales, sizes = (*inputs, None, None, None)[:4]
    scales, sizes = (None if i is None or 0 in shape_of(i) else i for i in (scales, sizes))
    numbers = sizes if scales is None else scales
    mode = attrs.get("coordinate_transformation_mode")
    if attrs.get("antialias", 0):
        raise ValueError("TVM's importer resizes without antialias")
    if mode in (b"half_pixel_symmetric", b"tf_crop_and_resize"):
        raise ValueError(f"TVM has no {mode.decode()}")
    if "axes" in attrs or attrs.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("TVM's importer resizes all axes, and keeps no aspect ratio")
    if numbers is None or not is_constant(numbers):
        raise ValueError("its scales or sizes are known only at run time; make them constants")
    values = numbers.value.numpy()
    after = [int(n * f) for n, f in zip(before, values, strict=True)]
    if scales is None:
        after = values.tolist()
    elif mode != b"align_corners":
        # TVM scales by the ratio of the sizes; only align_corners is defined by it.
        for axis, (n, factor, size) in enumerate(zip(before, values, after, strict=True)):
            if abs(n * factor - size) > 1e-3:
                raise ValueError(
                    f"it scales {n} at axis {axis} by {factor:.4g}, which is not a whole size"
                )
    if mode == b"align_corners" and 1 in after[2:]:
        raise ValueError("TVM divides by 0 where it aligns the corners of one pixel")
    if after[:2] != before[:2]:
        raise ValueError(
            f"it resizes {before} to {after}; TVM's importer resizes the axes after the second only"
        )
    sizes = constant(np.array(after, np.int64))
    return _input_list(inputs, [inputs[0], None, None, sizes])


def _input_list(inputs: Any, items: Sequence[Any]) -> Any:
    """Inputs in the importer's own kind of list, in which an absent one is None."""
    result = type(inputs)()
    result.extend(items)
    return result


def _slice(inputs: Any, attrs: Attributes, opset: int) -> Rewritten:
    """Starts, ends and axes became inputs in opset 10."""
    if opset >= 10:
        return inputs, attrs
    items = [inputs[0]]
    for name in ("starts", "ends", "axes"):
        numbers = attrs.get(name)
        known = numbers is not None
        items.append(constant(np.array(numbers, np.int64)) if known else None)
    return _input_list(inputs, items), attrs


def _pow(inputs: Any, attrs: Attributes, opset: int) -> Rewritten:
    """The exponent has any type; the result has the base's."""
    return _input_list(inputs, [inputs[0], _cast(inputs[1], inputs[0])]), attrs


def _pool(inputs: Any, attrs: Attributes, opset: int) -> Rewritten:
    """The padding in numbers: the converter gets it wrong where a stride divides no size."""
    if attrs.get("auto_pad") not in (b"SAME_UPPER", b"SAME_LOWER"):
        return inputs, attrs
    sizes, kernel = np.array(shape_of(inputs[0])[2:]), np.array(attrs["kernel_shape"])
    steps = (attrs.get(name, [1] * kernel.size) for name in ("strides", "dilations"))
    strides, dilations = map(np.array, steps)
    last = (-(-sizes // strides) - 1) * strides + (kernel - 1) * dilations
    total = np.maximum(0, last + 1 - sizes)
    before = total // 2 if attrs.pop("auto_pad") == b"SAME_UPPER" else total - total // 2
    return inputs, attrs | {"pads": [*before.tolist(), *(total - before).tolist()]}


def _not(kind: str, convert: Convert, inputs: Any, opset: int) -> Any:
    """The negation of what an op computes."""
    result = relax.BlockBuilder.current().normalize(convert(kind, inputs, {}, opset))
    return convert("Not", _input_list(inputs, [result]), {}, opset)


def _in_float32(convert: Convert, inputs: Any, attrs: Attributes, opset: int) -> Any:
    """LayerNormalization of bfloat16, which the specification computes in float32."""
    builder = relax.BlockBuilder.current()
    present = [i for i in inputs if i is not None]  # the bias, which may be absent, is the last
    floats = [builder.normalize(relax.op.astype(i, "float32")) for i in present]
    floats += [None] * (len(inputs) - len(present))
    floats = _input_list(inputs, floats)
    result, *others = convert("LayerNormalization", floats, attrs, opset)
    return relax.Tuple([relax.op.astype(builder.normalize(result), "bfloat16"), *others])


def _dynamically_quantized(x: Any) -> Any:
    """The scale is 1 where all numbers are 0, where the converter divides by 0."""
    normalized, op = relax.BlockBuilder.current().normalize, relax.op
    zero = relax.const(0, "float32")
    least = normalized(op.minimum(op.min(x), zero))
    span = normalized(op.subtract(op.maximum(op.max(x), zero), least))
    part = op.divide(span, relax.const(255, "float32"))
    scale = normalized(op.where(op.equal(span, zero), relax.const(1, "float32"), part))
    start = op.round(op.clip(op.divide(op.negative(least), scale), 0, 255))
    start = normalized(op.astype(start, "uint8"))
    return relax.Tuple([op.quantize(x, scale, start, 0, "uint8"), scale, start])


def _thresholded(x: Any, alpha: float) -> Any:
    """A selection: the converter's product of 0 and an infinity is no number."""
    threshold, zero = (relax.const(value, str(x.ty.dtype)) for value in (alpha, 0))
    return relax.op.where(relax.op.greater(x, threshold), x, zero)


def _log_sum_exp(convert: Convert, inputs: Any, attrs: Attributes, opset: int) -> Any:
    """With a finite base: the difference of two infinities is no number."""
    normalized = relax.BlockBuilder.current().normalize

    def reduced(kind: str, x: Any, **changed: int) -> Any:
        operands = _input_list(inputs, [x, *inputs[1:]])
        return normalized(convert(kind, operands, attrs | changed, opset))

    (x, *_), zero = inputs, relax.const(0, str(inputs[0].ty.dtype))
    largest = reduced("ReduceMax", x, keepdims=1)
    base = normalized(relax.op.where(relax.op.isfinite(largest), largest, zero))
    exponentials = normalized(relax.op.exp(relax.op.subtract(x, base)))
    logarithms = reduced("ReduceLogSum", exponentials)
    return relax.op.add(logarithms, relax.op.reshape(base, shape_of(logarithms)))


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


_REWRITES: dict[str, Callable[[Any, Attributes, int], Rewritten]] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    "Pow": _pow,
    "Slice": _slice,
}


def _cast(value: Any, like: Any) -> Any:
    """``value`` with the element type of ``like``."""
    dtype = str(like.ty.dtype)
    if is_constant(value):
        return constant(value.value.numpy().astype(dtype))
    return relax.op.astype(value, dtype)
