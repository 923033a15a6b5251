"""Resize as a Resize to the sizes of all axes, which the converter gets right."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosplit.frontend.onnx import shape_arithmetic
from autosplit.frontend.relax.expressions import is_constant, shape_of

Attributes = dict[str, Any]


def to_sizes(inputs: Any, attrs: Attributes) -> Any:
    """The inputs of a Resize with sizes. Raises ValueError if TVM would resize otherwise."""
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
    if after[:2] != before[:2]:
        raise ValueError(
            f"it resizes {before} to {after}; TVM's importer resizes the axes after the second only"
        )
    sizes = shape_arithmetic.constant(np.array(after, np.int64))
    return shape_arithmetic.input_list(inputs, [inputs[0], None, None, sizes])
