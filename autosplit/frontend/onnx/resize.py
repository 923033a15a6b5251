"""Resize and Upsample as a Resize to the sizes of all axes, which the converter gets right."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosplit.frontend.onnx import shape_arithmetic
from autosplit.frontend.relax.expressions import is_constant, shape_of

Attributes = dict[str, Any]


def modern_upsample(inputs: Any, attrs: Attributes) -> tuple[Any, Attributes]:
    """The Resize of opset 11 for an Upsample, or for a Resize of opset 10."""
    if len(inputs) > 1:
        scales = inputs[1]
    else:
        scales = shape_arithmetic.constant(np.array(attrs["scales"], np.float32))
    return shape_arithmetic.input_list(inputs, [inputs[0], None, scales]), {
        "mode": attrs.get("mode", b"nearest"),
        "coordinate_transformation_mode": b"asymmetric",
        "nearest_mode": b"floor",
    }


def to_sizes(inputs: Any, attrs: Attributes) -> tuple[Any, Attributes]:
    """A Resize with sizes of all axes. Raises ValueError if TVM would resize otherwise."""
    before = list(shape_of(inputs[0]))
    _, _, scales, sizes = (*inputs, None, None, None)[:4]
    scales, sizes = (None if _is_empty(i) else i for i in (scales, sizes))
    mode = attrs.get("coordinate_transformation_mode")
    if attrs.get("antialias", 0):
        raise ValueError(
            "TVM's importer resizes without antialias; export the model with antialias=0"
        )
    if mode in (b"half_pixel_symmetric", b"tf_crop_and_resize"):
        raise ValueError(f"TVM has no {mode.decode()}; export the model with half_pixel")
    if attrs.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("TVM's importer keeps no aspect ratio; give the sizes of the result")
    axes = [a % len(before) for a in attrs.get("axes", range(len(before)))]
    after = list(before)
    factors, targets = _targets(scales, sizes, [before[a] for a in axes])
    for axis, factor, size in zip(axes, factors, targets, strict=True):
        after[axis] = size
        # TVM scales by the ratio of the sizes; only align_corners is defined by it.
        if mode != b"align_corners" and abs(before[axis] * factor - size) > 1e-3:
            raise ValueError(
                f"it scales {before[axis]} at axis {axis} by {factor:.4g}, which is not a whole "
                "size; give sizes"
            )
    if after[:2] != before[:2]:
        raise ValueError(
            f"it resizes {before} to {after}; TVM's importer resizes the axes after the second only"
        )
    sizes = shape_arithmetic.constant(np.array(after, np.int64))
    dropped = ("axes", "keep_aspect_ratio_policy")
    remaining = {name: value for name, value in attrs.items() if name not in dropped}
    return shape_arithmetic.input_list(inputs, [inputs[0], None, None, sizes]), remaining


def _targets(scales: Any, sizes: Any, before: list[int]) -> tuple[list[float], list[int]]:
    """The factor and the size of each axis that is resized."""
    if scales is not None:
        factors = _numbers(scales, "scales").astype(np.float32)
        return factors.tolist(), [int(n * f) for n, f in zip(before, factors, strict=True)]
    if sizes is None:
        raise ValueError("it has neither scales nor sizes")
    targets = [int(s) for s in _numbers(sizes, "sizes")]
    return [size / n for size, n in zip(targets, before, strict=True)], targets


def _is_empty(value: Any) -> bool:
    return value is None or 0 in shape_of(value)


def _numbers(value: Any, name: str) -> np.ndarray[Any, Any]:
    if not is_constant(value):
        raise ValueError(f"its {name} are known only at run time; make them constants")
    array: np.ndarray[Any, Any] = value.value.numpy()
    return array
