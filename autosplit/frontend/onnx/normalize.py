"""ONNX ops as TVM's converters can read them: spellings of other opsets, and what the converters ignore without a word.

A converter that ignores an attribute gives another result than the model; such a node is put into terms that the converter
knows, or refused. Semantics: the ONNX operator specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosplit.frontend.onnx import shape_arithmetic

Convert = Callable[[str, Any, dict[str, Any], int], Any]
Attributes = dict[str, Any]


def converted(
    convert: Convert, node: Any, inputs: Any, attrs: Attributes, opset: int, read: set[str]
) -> Any:
    """The Relax expression of the NodeProto ``node``, by way of ``convert``, the importer's own conversion.

    ``read`` names the tensors that somebody reads. Raises ValueError, without the node's name, for what cannot be put so.
    """
    if node.op_type == "Upsample" or (node.op_type == "Resize" and opset < 11):
        inputs, attrs = _upsample(inputs, attrs)
    if node.op_type in ("Upsample", "Resize"):
        return convert("Resize", *_resize(inputs, attrs), opset)
    if (
        node.op_type == "Equal"
        and inputs[0].same_as(inputs[1])
        and "float" in str(inputs[0].ty.dtype)
    ):
        return _is_number(convert, inputs, opset)
    spell = _SPELLINGS.get(node.op_type)
    if spell is not None:
        inputs, attrs = spell(inputs, dict(attrs), opset)
    result = convert(node.op_type, inputs, attrs, opset)
    if node.op_type == "OneHot":
        return _cast(result, inputs[2])
    if node.op_type in _FIRST_ONLY and len(node.output) > 1:
        return _first(result, [o for o in node.output[1:] if o in read], len(node.output))
    return result


def _slice(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    if opset >= 10:
        return inputs, attrs
    numbers = [attrs.get(name) for name in ("starts", "ends", "axes")]
    return _list(
        inputs,
        [
            inputs[0],
            *(
                None if n is None else shape_arithmetic.constant(np.array(n, np.int64))
                for n in numbers
            ),
        ],
    ), attrs


def _pow(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    """The exponent has any type; the result has the base's."""
    if str(inputs[0].ty.dtype)[:3] in ("int", "uin"):
        raise ValueError(
            f"TVM has powers of floats only, its base is {inputs[0].ty.dtype}; multiply, or cast to float"
        )
    return _list(inputs, [inputs[0], _cast(inputs[1], inputs[0])]), attrs


def _batch_normalization(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    if attrs.get("training_mode", 0):
        raise ValueError(
            "it normalises by the statistics of the batch (training_mode=1); export the model for inference"
        )
    return inputs, attrs


def _attention(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    if (
        "num_heads" not in attrs
    ):  # the op of the standard, not that of com.microsoft, which is the converter's
        raise ValueError(
            "TVM's importer has no Attention of the ONNX standard; export it as MatMul and Softmax"
        )
    return inputs, attrs


def _is_number(convert: Convert, inputs: Any, opset: int) -> Any:
    """What is no number is not equal to itself; TVM takes a tensor for equal to itself throughout."""
    from tvm import relax

    asked = relax.BlockBuilder.current().normalize(
        convert("IsNaN", _list(inputs, [inputs[0]]), {}, opset)
    )
    return convert("Not", _list(inputs, [asked]), {}, opset)


def _space_to_depth(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    if attrs.get("mode", b"DCR") != b"DCR":
        raise ValueError(
            "TVM's importer knows mode DCR alone; export it as Reshape, Transpose, Reshape"
        )
    return inputs, attrs


def _is_inf(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    if not (attrs.get("detect_negative", 1) and attrs.get("detect_positive", 1)):
        raise ValueError(
            "TVM's importer finds infinities of both signs; compare with a constant for one of them"
        )
    return inputs, attrs


def _conv_transpose(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    """Pads that lead to ``output_shape``, by the formula of the specification."""
    shape = attrs.pop("output_shape", None)
    if shape is None:
        return inputs, attrs
    data, kernel = (_sizes(i)[2:] for i in inputs[:2])
    shape, ones = shape[-len(data) :], (1,) * len(data)
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    extra = attrs.get("output_padding", (0,) * len(data))
    total = [
        s * (n - 1) + e + (k - 1) * d + 1 - o
        for n, k, s, d, e, o in zip(data, kernel, strides, dilations, extra, shape, strict=True)
    ]
    if min(total) < 0:
        raise ValueError(
            f"its output_shape {list(shape)} is larger than what the kernel reaches; use output_padding"
        )
    upper = attrs.pop("auto_pad", b"") == b"SAME_UPPER"
    begin = [t // 2 if upper else t - t // 2 for t in total]
    return inputs, attrs | {"pads": (*begin, *(t - b for t, b in zip(total, begin, strict=True)))}


def _roi_align(inputs: Any, attrs: Attributes, opset: int) -> tuple[Any, Attributes]:
    """The half pixel is one of the input, not of the regions, which may have another scale."""
    from tvm import relax

    if attrs.get("mode", b"avg") != b"avg":
        raise ValueError(
            "TVM takes the largest sample, onnxruntime the largest part of one; export it with mode=avg"
        )
    mode = attrs.get(
        "coordinate_transformation_mode", b"half_pixel" if opset >= 16 else b"output_half_pixel"
    )
    shift = 0.5 - 0.5 / attrs.get("spatial_scale", 1.0)
    if mode != b"half_pixel" or shift == 0:
        return inputs, attrs
    moved = relax.op.add(
        inputs[1], shape_arithmetic.constant(np.array(shift, str(inputs[1].ty.dtype)))
    )
    return _list(
        inputs, [inputs[0], relax.BlockBuilder.current().normalize(moved), inputs[2]]
    ), attrs


_SPELLINGS: dict[str, Callable[[Any, Attributes, int], tuple[Any, Attributes]]] = {
    "Attention": _attention,
    "BatchNormalization": _batch_normalization,
    "ConvTranspose": _conv_transpose,
    "IsInf": _is_inf,
    "Pow": _pow,
    "RoiAlign": _roi_align,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
}
_FIRST_ONLY = frozenset(
    {"LayerNormalization", "MaxPool"}
)  # converted without their further results


def _first(result: Any, wanted: Sequence[str], count: int) -> Any:
    """The first result in place of results nobody reads."""
    from tvm import relax

    if wanted:
        raise ValueError(
            f"TVM's importer does not make its output '{wanted[0]}'; export the model without it"
        )
    return result if isinstance(result, relax.Tuple) else relax.Tuple([result] * count)


def _upsample(inputs: Any, attrs: Attributes) -> tuple[Any, Attributes]:
    """The Resize of today for an Upsample, or a Resize of opset 10."""
    scales = (
        inputs[1]
        if len(inputs) > 1
        else shape_arithmetic.constant(np.array(attrs["scales"], np.float32))
    )
    asymmetric = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
    return _list(inputs, [inputs[0], None, scales]), {
        "mode": attrs.get("mode", b"nearest"),
        **asymmetric,
    }


def _resize(inputs: Any, attrs: Attributes) -> tuple[Any, Attributes]:
    """A Resize to sizes of all axes, which is all that the converter gets right."""
    before = _sizes(inputs[0])
    _, roi, scales, sizes = (*inputs, None, None, None)[:4]
    roi, scales, sizes = (None if _is_empty(i) else i for i in (roi, scales, sizes))
    if attrs.get("antialias", 0):
        raise ValueError(
            "TVM's importer resizes without antialias; export the model with antialias=0"
        )
    if attrs.get("coordinate_transformation_mode") == b"half_pixel_symmetric":
        raise ValueError("TVM has no half_pixel_symmetric; export the model with half_pixel")
    axes = [a % len(before) for a in attrs.get("axes", range(len(before)))]
    after = list(before)
    exact = attrs.get("coordinate_transformation_mode") == b"align_corners"
    for axis, scale, size in zip(
        axes, *_targets(scales, sizes, attrs, [before[a] for a in axes]), strict=True
    ):
        after[axis] = size
        if not exact and abs(before[axis] * scale - size) > 1e-3:
            raise ValueError(
                f"it scales {before[axis]} at axis {axis} by {scale:.4g}, which is no whole size; give sizes"
            )
    if after[:2] != before[:2]:
        raise ValueError(
            f"it resizes {before} to {after}; TVM's importer resizes the axes after the second only"
        )
    kept = {k: v for k, v in attrs.items() if k not in ("axes", "keep_aspect_ratio_policy")}
    return _list(
        inputs,
        [
            inputs[0],
            _roi(roi, axes, len(before), attrs),
            None,
            shape_arithmetic.constant(np.array(after, np.int64)),
        ],
    ), kept


def _targets(
    scales: Any, sizes: Any, attrs: Attributes, before: list[int]
) -> tuple[list[float], list[int]]:
    """The scale and the size of each axis that is resized."""
    if scales is not None:
        factors = _numbers(scales, "scales").astype(np.float32)
        return factors.tolist(), [int(n * f) for n, f in zip(before, factors, strict=True)]
    if sizes is None:
        raise ValueError("it has neither scales nor sizes")
    wanted = [int(s) for s in _numbers(sizes, "sizes")]
    ratios = [s / n for s, n in zip(wanted, before, strict=True)]
    policy = attrs.get("keep_aspect_ratio_policy", b"stretch")
    if policy == b"stretch":
        return ratios, wanted
    ratio = (min if policy == b"not_larger" else max)(ratios)
    return [ratio] * len(before), [int(n * ratio + 0.5) for n in before]


def _roi(roi: Any, axes: list[int], rank: int, attrs: Attributes) -> Any:
    """The region of all axes, where one counts at all."""
    if roi is None or attrs.get("coordinate_transformation_mode") != b"tf_crop_and_resize":
        return None
    given = _numbers(roi, "roi")
    whole = np.repeat([0.0, 1.0], rank).astype(np.float32)
    whole[[*axes, *(rank + a for a in axes)]] = given
    return shape_arithmetic.constant(whole)


def _is_empty(value: Any) -> bool:
    return value is None or 0 in _sizes(value)


def _sizes(value: Any) -> list[int]:
    return [int(size) for size in value.ty.shape]


def _numbers(value: Any, name: str) -> np.ndarray[Any, Any]:
    import tvm

    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError(f"its {name} are known only at run time; make them constants")
    array: np.ndarray[Any, Any] = value.value.numpy()
    return array


def _cast(value: Any, like: Any) -> Any:
    """``value`` with the element type of ``like``."""
    import tvm
    from tvm import relax

    kind = str(like.ty.dtype)
    if isinstance(value, tvm.ir.GenericConst):
        return shape_arithmetic.constant(value.value.numpy().astype(kind))
    return relax.op.astype(value, kind)


def _list(inputs: Any, items: list[Any]) -> Any:
    """Inputs in the importer's own kind of list, in which what is not there is None."""
    found = type(inputs)()
    found.extend(items)
    return found
