"""Small nets whose wiring a split easily gets wrong.

They have tensors that skip stages, late inputs and early outputs; one has states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.zoo.weights import Shape

_OPSET, _IR = 17, 8
_FLOAT, _INT64 = 1, 7  # onnx.TensorProto.FLOAT and INT64


class _Builder:
    """Collects nodes. A layer returns the name of its output; its names start with the layer's."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, Shape] = {}
        self.constants: list[Any] = []

    def op(
        self, kind: str, name: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node; its only output has the node's name unless ``outputs`` says otherwise."""
        from onnx import helper

        self.nodes.append(
            helper.make_node(kind, inputs, outputs or [name], name=name, **attributes)
        )
        return (outputs or [name])[0]

    def weight(self, name: str, *shape: int) -> str:
        """Declare a float weight, to be drawn later."""
        self.weights[name] = shape
        return name

    def constant(self, name: str, kind: int, values: Sequence[float]) -> str:
        """Add a fixed vector, or a scalar where ``values`` holds one float."""
        from onnx import helper

        dims = [] if kind == _FLOAT else [len(values)]
        self.constants.append(helper.make_tensor(name, kind, dims, values))
        return name

    def model(
        self, name: str, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]
    ) -> tuple[Any, dict[str, Shape]]:
        """The model without its weights, and the shape of each weight."""
        from onnx import helper

        def values(shapes: Mapping[str, Shape]) -> list[Any]:
            return [helper.make_tensor_value_info(n, _FLOAT, s) for n, s in shapes.items()]

        graph = helper.make_graph(
            self.nodes, name, values(inputs), values(outputs), initializer=self.constants
        )
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(
            graph, ir_version=_IR, opset_imports=opset, producer_name="autosplit"
        )
        return model, self.weights

    def conv(
        self, name: str, x: str, channels: tuple[int, int], size: int = 3, relu: bool = False
    ) -> str:
        """A convolution with bias that keeps height and width.

        ``channels`` are those of its input and output.
        """
        weight = self.weight(f"{name}.weight", channels[1], channels[0], size, size)
        bias = self.weight(f"{name}.bias", channels[1])
        x = self.op("Conv", name, x, weight, bias, kernel_shape=[size, size], pads=[size // 2] * 4)
        return self.op("Relu", f"{name}.relu", x) if relu else x

    def linear(self, name: str, x: str, width: tuple[int, int], bias: bool = True) -> str:
        """A matrix product over the last axis; ``width`` is that of its input and output."""
        x = self.op("MatMul", f"{name}.matmul", x, self.weight(f"{name}.weight", *width))
        return self.op("Add", name, x, self.weight(f"{name}.bias", width[1])) if bias else x

    def norm(self, name: str, x: str, width: int) -> str:
        """A layer normalisation over the last axis."""
        scale, bias = self.weight(f"{name}.scale", width), self.weight(f"{name}.bias", width)
        return self.op("LayerNormalization", name, x, scale, bias, axis=-1)


def transformer(
    layers: int = 4, width: int = 128, length: int = 64, heads: int = 4
) -> tuple[Any, dict[str, Shape]]:
    """An encoder over ``tokens`` (1, length, width); ``mask`` (1, length) is 1 where one counts.

    The attention of every layer reads the bias that comes from the mask: wherever the net is cut,
    it skips the stages in between.
    """
    net = _Builder()
    net.constant("zero", _FLOAT, [0.0])
    net.constant("one", _FLOAT, [1.0])
    net.constant("mask.weight", _FLOAT, [-30.0])
    net.constant("mask.axes", _INT64, [1, 2])
    hidden = net.op("Clip", "mask.clipped", "mask", "zero", "one")
    hidden = net.op(
        "Mul", "mask.weighted", net.op("Sub", "mask.inverted", "one", hidden), "mask.weight"
    )
    bias = net.op("Unsqueeze", "mask.bias", hidden, "mask.axes")
    net.constant("heads.scale", _FLOAT, [1 / math.sqrt(width // heads)])
    net.constant("heads.split", _INT64, [1, length, heads, width // heads])
    net.constant("heads.join", _INT64, [1, length, width])
    for name, value in (("gelu.scale", math.sqrt(0.5)), ("gelu.half", 0.5)):
        net.constant(name, _FLOAT, [value])
    x = "tokens"
    for layer in range(layers):
        x = _encoder(net, f"layer{layer}", x, bias, width)
    net.nodes[-1].output[0] = "encoded"
    shape = (1, length, width)
    return net.model("transformer", {"tokens": shape, "mask": (1, length)}, {"encoded": shape})


def _encoder(net: _Builder, name: str, x: str, bias: str, width: int) -> str:
    """One layer: attention, then two linear layers, each added to its input and normalised."""
    attended = _attention(net, f"{name}.attention", x, bias, width)
    x = net.norm(f"{name}.norm1", net.op("Add", f"{name}.residual1", x, attended), width)
    hidden = net.linear(f"{name}.expand", x, (width, 2 * width))
    gate = net.op(
        "Erf", f"{name}.gelu.erf", net.op("Mul", f"{name}.gelu.scaled", hidden, "gelu.scale")
    )
    gate = net.op(
        "Mul", f"{name}.gelu.gate", net.op("Add", f"{name}.gelu.shifted", gate, "one"), "gelu.half"
    )
    hidden = net.linear(
        f"{name}.reduce", net.op("Mul", f"{name}.gelu", hidden, gate), (2 * width, width)
    )
    return net.norm(f"{name}.norm2", net.op("Add", f"{name}.residual2", x, hidden), width)


def _attention(net: _Builder, name: str, x: str, bias: str, width: int) -> str:
    """Attention in several heads; the key has no bias, which would cancel in the softmax."""
    heads = {}
    for part, axes in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        projected = net.linear(f"{name}.{part}", x, (width, width), bias=part != "key")
        split = net.op("Reshape", f"{name}.{part}.split", projected, "heads.split")
        heads[part] = net.op("Transpose", f"{name}.{part}.heads", split, perm=axes)
    scores = net.op("MatMul", f"{name}.scores", heads["query"], heads["key"])
    scores = net.op(
        "Add", f"{name}.masked", net.op("Mul", f"{name}.scaled", scores, "heads.scale"), bias
    )
    mixed = net.op(
        "MatMul",
        f"{name}.mixed",
        net.op("Softmax", f"{name}.weights", scores, axis=-1),
        heads["value"],
    )
    mixed = net.op("Transpose", f"{name}.joined", mixed, perm=[0, 2, 1, 3])
    return net.linear(
        f"{name}.output", net.op("Reshape", f"{name}.flat", mixed, "heads.join"), (width, width)
    )


def branches(channels: int = 16, size: int = 28) -> tuple[Any, dict[str, Shape]]:
    """Convolutions from ``image`` and, late, ``hint`` to the outputs ``early`` and ``late``.

    In between are nested residuals, and a Split whose halves meet again in a concatenation with an
    older tensor.
    """
    net = _Builder()
    half, wide = channels // 2, (channels, channels)
    stem = net.conv("stem", "image", (3, channels), relu=True)
    x = _nested_residual(net, "first", stem, channels)
    net.op("GlobalAveragePool", "early", net.conv("early.conv", x, (channels, half), size=1))
    net.constant("halves.sizes", _INT64, [half, half])
    net.op("Split", "halves", x, "halves.sizes", outputs=["halves.left", "halves.right"], axis=1)
    left = net.conv("left", "halves.left", (half, half), relu=True)
    right = net.conv("right", "halves.right", (half, half), size=1)
    x = net.op("Concat", "merged", left, right, stem, axis=1)
    x = net.conv("reduce", x, (2 * channels, channels), size=1, relu=True)
    x = net.op("Add", "hinted", x, net.conv("hint.conv", "hint", wide, size=1))
    x = _nested_residual(net, "second", x, channels)
    net.op(
        "GlobalAveragePool", "late", net.conv("late.conv", x, (channels, 2 * channels), relu=True)
    )
    inputs = {"image": (1, 3, size, size), "hint": (1, channels, size, size)}
    return net.model(
        "branches", inputs, {"early": (1, half, 1, 1), "late": (1, 2 * channels, 1, 1)}
    )


def _nested_residual(net: _Builder, name: str, x: str, channels: int) -> str:
    same = (channels, channels)
    outer = net.conv(f"{name}.enter", x, same, relu=True)
    inner = net.conv(f"{name}.inner2", net.conv(f"{name}.inner1", outer, same, relu=True), same)
    inner = net.op("Relu", f"{name}.inner", net.op("Add", f"{name}.inner.sum", outer, inner))
    left = net.conv(f"{name}.leave", inner, same)
    return net.op("Relu", name, net.op("Add", f"{name}.sum", x, left))


def amplifier(
    layers: int = 12, channels: int = 32, frames: int = 64
) -> tuple[Any, dict[str, Shape]]:
    """Causal convolutions over ``sound`` (1, channels, frames), a frame of a stream.

    They are dilated as in WaveNet (van den Oord et al., 2016). Each layer reads the end of the last
    frame, ``past_0`` and so on, and leaves the end of its own as ``present_0`` and so on.
    """
    net = _Builder()
    net.constant("axis", _INT64, [2])
    net.constant("end", _INT64, [2**31])
    inputs: dict[str, Shape] = {"sound": (1, channels, frames)}
    outputs: dict[str, Shape] = {"amplified": (1, channels, frames)}
    x = "sound"
    for layer in range(layers):
        dilation = 2 ** (layer % 6)
        past = 2 * dilation  # what a kernel of three sees before its own frame
        shape = (1, channels, past)
        inputs[f"past_{layer}"] = outputs[f"present_{layer}"] = shape
        x = _causal_layer(net, layer, x, (channels, frames, dilation))
    net.nodes[-1].output[0] = "amplified"
    return net.model("amplifier", inputs, outputs)


def _causal_layer(net: _Builder, layer: int, x: str, sizes: tuple[int, int, int]) -> str:
    """A gated convolution over the last frame's end and this frame, added to its input."""
    channels, frames, dilation = sizes
    name = f"layer{layer}"
    joined = net.op("Concat", f"{name}.joined", f"past_{layer}", x, axis=2)
    net.constant(f"{name}.start", _INT64, [frames])
    slice_inputs = (joined, f"{name}.start", "end", "axis")
    net.op("Slice", f"{name}.kept", *slice_inputs, outputs=[f"present_{layer}"])
    gates = []
    for kind in ("Tanh", "Sigmoid"):
        part = f"{name}.{kind.lower()}"
        weight = net.weight(f"{part}.weight", channels, channels, 3)
        bias = net.weight(f"{part}.bias", channels)
        hidden = net.op("Conv", f"{part}.conv", joined, weight, bias, dilations=[dilation])
        gates.append(net.op(kind, part, hidden))
    return net.op("Add", f"{name}.sum", x, net.op("Mul", f"{name}.gated", *gates))
