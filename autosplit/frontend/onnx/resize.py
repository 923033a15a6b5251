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
    _, roi, scales, sizes = (*inputs, None, None, None)[:4]
    roi, scales, sizes = (None if _is_empty(i) else i for i in (roi, scales, sizes))
    mode = attrs.get("coordinate_transformation_mode")
    if attrs.get("antialias", 0):
        raise ValueError(
            "TVM's importer resizes without antialias; export the model with antialias=0"
        )
    if mode == b"half_pixel_symmetric":
        raise ValueError("TVM has no half_pixel_symmetric; export the model with half_pixel")
    axes = [a % len(before) for a in attrs.get("axes", range(len(before)))]
    after = list(before)
    factors, targets = _targets(scales, sizes, attrs, [before[a] for a in axes])
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
    region = _region(roi, axes, len(before)) if mode == b"tf_crop_and_resize" else None
    sizes = shape_arithmetic.constant(np.array(after, np.int64))
    dropped = ("axes", "keep_aspect_ratio_policy")
    remaining = {name: value for name, value in attrs.items() if name not in dropped}
    return shape_arithmetic.input_list(inputs, [inputs[0], region, None, sizes]), remaining


def _targets(
    scales: Any, sizes: Any, attrs: Attributes, before: list[int]
) -> tuple[list[float], list[int]]:
    """The factor and the size of each axis that is resized."""
    if scales is not None:
        factors = _numbers(scales, "scales").astype(np.float32)
        return factors.tolist(), [int(n * f) for n, f in zip(before, factors, strict=True)]
    if sizes is None:
        raise ValueError("it has neither scales nor sizes")
    targets = [int(s) for s in _numbers(sizes, "sizes")]
    ratios = [s / n for s, n in zip(targets, before, strict=True)]
    policy = attrs.get("keep_aspect_ratio_policy", b"stretch")
    if policy == b"stretch":
        return ratios, targets
    ratio = min(ratios) if policy == b"not_larger" else max(ratios)
    return [ratio] * len(before), [int(n * ratio + 0.5) for n in before]


def _region(roi: Any, axes: list[int], rank: int) -> Any:
    """The region of all axes: their starts, then their ends, as parts of their sizes."""
    if roi is None:
        return None
    region = np.repeat([0.0, 1.0], rank).astype(np.float32)
    region[[*axes, *(rank + axis for axis in axes)]] = _numbers(roi, "roi")
    return shape_arithmetic.constant(region)


def _is_empty(value: Any) -> bool:
    return value is None or 0 in shape_of(value)


def _numbers(value: Any, name: str) -> np.ndarray[Any, Any]:
    if not is_constant(value):
        raise ValueError(f"its {name} are known only at run time; make them constants")
    array: np.ndarray[Any, Any] = value.value.numpy()
    return array
