"""Nets for phones as users bring them: a MobileNetV3 and an EfficientNet.

Their blocks widen, convolve each channel by itself, weigh the channels and narrow again. Batch
norms are folded into the convolutions, as exporters leave them. ``NETS`` names them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.nets import net

_GAIN = np.float32(1.6)


class _Block(NamedTuple):
    """``kernel`` and ``stride`` of the convolution of each channel; ``narrow`` for no weighing."""

    kernel: int
    wide: int
    channels: int
    stride: int = 1
    narrow: int = 0


# Howard et al., Searching for MobileNetV3, 2019, table 1, without every second repetition.
_MOBILENET = (
    _Block(3, 16, 16), _Block(3, 64, 24, 2), _Block(3, 72, 24), _Block(5, 72, 40, 2, 24),
    _Block(5, 120, 40, 1, 32), _Block(3, 240, 80, 2), _Block(3, 200, 80),
    _Block(3, 480, 112, 1, 120), _Block(5, 672, 160, 2, 168), _Block(5, 960, 160, 1, 240),
)  # fmt: skip
# Tan and Le, EfficientNet, 2019, table 1, the same way.
_EFFICIENTNET = (
    _Block(3, 32, 16, 1, 8), _Block(3, 96, 24, 2, 4), _Block(3, 144, 24, 1, 6),
    _Block(5, 144, 40, 2, 6), _Block(5, 240, 40, 1, 10), _Block(3, 240, 80, 2, 10),
    _Block(3, 480, 80, 1, 20), _Block(5, 480, 112, 1, 20), _Block(5, 672, 192, 2, 28),
    _Block(3, 1152, 320, 1, 48),
)  # fmt: skip


def mobilenet_v3(size: int = 224) -> Any:
    """Hard swish, and a hard sigmoid that weighs the channels."""
    return _net(_MOBILENET, size, 16, "HardSwish({x})", "HardSigmoid<alpha=0.1666667>({x})")


def efficientnet(size: int = 224) -> Any:
    """Swish as a product with a sigmoid, and a sigmoid that weighs the channels."""
    return _net(_EFFICIENTNET, size, 32, "Mul({x}, Sigmoid({x}))", "Sigmoid({x})")


NETS: dict[str, Callable[[], Any]] = {"mobilenet_v3": mobilenet_v3, "efficientnet": efficientnet}


def _net(blocks: tuple[_Block, ...], size: int, stem: int, swish: str, gate: str) -> Any:
    weights: dict[str, Any] = {
        "w_stem": (stem, 3, 3, 3),
        "w_head": (1000, blocks[-1].channels),
        "b_head": (1000,),
        "flat": np.array([1, blocks[-1].channels]),
    }
    body = f"""c_stem = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w_stem)
        x0 = {swish.format(x="c_stem")}"""
    channels = stem
    for number, block in enumerate(blocks):
        body += _block(number, block, channels, swish, gate)
        weights |= {
            f"w_wide{number}": (block.wide, channels, 1, 1),
            f"w_deep{number}": (block.wide, 1, block.kernel, block.kernel),
            f"w_out{number}": (block.channels, block.wide, 1, 1),
        }
        if block.narrow:
            weights[f"w_down{number}"] = (block.narrow, block.wide, 1, 1)
            weights[f"w_up{number}"] = (block.wide, block.narrow, 1, 1)
        channels = block.channels
    body += f"""
        y = Gemm<transB=1>(Reshape(GlobalAveragePool(x{len(blocks)}), flat), w_head, b_head)
    """
    model = net(f"g (float[1,3,{size},{size}] x) => (float[1,1000] y) {{ {body} }}", weights)
    return _amplified(model)


def _amplified(model: Any) -> Any:
    """The model with larger weights in its convolutions.

    Swish and the weights of channels shrink a signal, so that after twenty layers nothing of the
    input would be left in the output, and no comparison would see a wrong one.
    """
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        if tensor.name.startswith("w_") and tensor.name != "w_head":
            array = numpy_helper.to_array(tensor) * _GAIN
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def _block(number: int, block: _Block, channels: int, swish: str, gate: str) -> str:
    """From ``x`` of its number to ``x`` of the next, with a shortcut where the shapes are equal."""
    n, pad = number, block.kernel // 2
    text = f"""
        a{n} = Conv(x{n}, w_wide{n})
        b{n} = {swish.format(x=f"a{n}")}
        c{n} = Conv<strides=[{block.stride},{block.stride}], pads=[{pad},{pad},{pad},{pad}],
            group={block.wide}>(b{n}, w_deep{n})
        d{n} = {swish.format(x=f"c{n}")}
    """
    result = f"d{n}"
    if block.narrow:
        text += f"""
            u{n} = Conv(Relu(Conv(GlobalAveragePool(d{n}), w_down{n})), w_up{n})
            e{n} = Mul(d{n}, {gate.format(x=f"u{n}")})
        """
        result = f"e{n}"
    result = f"Conv({result}, w_out{n})"
    if block.stride == 1 and block.channels == channels:
        result = f"Add({result}, x{n})"
    return f"{text} x{n + 1} = {result}"
