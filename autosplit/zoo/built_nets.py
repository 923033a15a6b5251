"""Two small nets whose wiring a split easily gets wrong.

They have tensors that skip stages, late inputs and early outputs.
"""

from __future__ import annotations

import math

from autosplit.zoo.onnx_builder import FLOAT, INT64, Builder, Net


def transformer(layers: int = 4, width: int = 128, length: int = 64, heads: int = 4) -> Net:
    """An encoder over ``tokens`` (1, length, width); ``mask`` (1, length) is 1 for valid tokens.

    The attention of every layer reads a bias that is computed from the mask: wherever the net is
    cut, this bias skips stages.
    """
    shape = (1, length, width)
    net = Builder({"tokens": shape, "mask": (1, length)}, {"encoded": shape})
    net.constant("zero", FLOAT, [0.0])
    net.constant("one", FLOAT, [1.0])
    # Small enough that a masked token has next to no weight after the softmax.
    net.constant("mask.weight", FLOAT, [-30.0])
    net.constant("mask.axes", INT64, [1, 2])
    clipped = net.op("Clip", "mask.clipped", "mask", "zero", "one")
    inverted = net.op("Sub", "mask.inverted", "one", clipped)
    weighted = net.op("Mul", "mask.weighted", inverted, "mask.weight")
    bias = net.op("Unsqueeze", "mask.bias", weighted, "mask.axes")
    net.constant("heads.scale", FLOAT, [1 / math.sqrt(width // heads)])
    net.constant("heads.split", INT64, [1, length, heads, width // heads])
    net.constant("heads.join", INT64, [1, length, width])
    for name, value in (("gelu.scale", math.sqrt(0.5)), ("gelu.half", 0.5)):
        net.constant(name, FLOAT, [value])
    x = "tokens"
    for layer in range(layers):
        x = _encoder(net, f"layer{layer}", x, bias, width)
    return net.model("transformer", "encoded")


def _encoder(net: Builder, name: str, x: str, bias: str, width: int) -> str:
    """One layer: attention, then two linear layers, each added to its input and normalised."""
    attended = _attention(net, f"{name}.attention", x, bias, width)
    x = net.norm(f"{name}.norm1", net.op("Add", f"{name}.residual1", x, attended), width)
    hidden = net.linear(f"{name}.expand", x, (width, 2 * width))
    scaled = net.op("Mul", f"{name}.gelu.scaled", hidden, "gelu.scale")
    curved = net.op("Erf", f"{name}.gelu.erf", scaled)
    shifted = net.op("Add", f"{name}.gelu.shifted", curved, "one")
    gate = net.op("Mul", f"{name}.gelu.gate", shifted, "gelu.half")
    gated = net.op("Mul", f"{name}.gelu", hidden, gate)
    hidden = net.linear(f"{name}.reduce", gated, (2 * width, width))
    return net.norm(f"{name}.norm2", net.op("Add", f"{name}.residual2", x, hidden), width)


def _attention(net: Builder, name: str, x: str, bias: str, width: int) -> str:
    """Attention in several heads; the key has no bias, which would cancel in the softmax."""
    heads = {}
    for part, axes in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        projected = net.linear(f"{name}.{part}", x, (width, width), bias=part != "key")
        split = net.op("Reshape", f"{name}.{part}.split", projected, "heads.split")
        heads[part] = net.op("Transpose", f"{name}.{part}.heads", split, perm=axes)
    scores = net.op("MatMul", f"{name}.scores", heads["query"], heads["key"])
    scaled = net.op("Mul", f"{name}.scaled", scores, "heads.scale")
    masked = net.op("Add", f"{name}.masked", scaled, bias)
    weights = net.op("Softmax", f"{name}.weights", masked, axis=-1)
    mixed = net.op("MatMul", f"{name}.mixed", weights, heads["value"])
    joined = net.op("Transpose", f"{name}.joined", mixed, perm=[0, 2, 1, 3])
    flat = net.op("Reshape", f"{name}.flat", joined, "heads.join")
    return net.linear(f"{name}.output", flat, (width, width))


def branches(channels: int = 16, size: int = 28) -> Net:
    """Convolutions from ``image`` and, late, ``hint`` to the outputs ``early`` and ``late``.

    In between are nested residuals, and a Split whose halves meet again in a concatenation with an
    older tensor.
    """
    half, wide = channels // 2, (channels, channels)
    inputs = {"image": (1, 3, size, size), "hint": (1, channels, size, size)}
    net = Builder(inputs, {"early": (1, half, 1, 1), "late": (1, 2 * channels, 1, 1)})
    stem = net.conv("stem", "image", (3, channels), relu=True)
    x = _nested_residual(net, "first", stem, channels)
    net.op("GlobalAveragePool", "early", net.conv("early.conv", x, (channels, half), size=1))
    net.constant("halves.sizes", INT64, [half, half])
    net.op("Split", "halves", x, "halves.sizes", outputs=["halves.left", "halves.right"], axis=1)
    left = net.conv("left", "halves.left", (half, half), relu=True)
    right = net.conv("right", "halves.right", (half, half), size=1)
    # The stem's result skips everything in between.
    x = net.op("Concat", "merged", left, right, stem, axis=1)
    x = net.conv("reduce", x, (2 * channels, channels), size=1, relu=True)
    x = net.op("Add", "hinted", x, net.conv("hint.conv", "hint", wide, size=1))
    x = _nested_residual(net, "second", x, channels)
    x = net.conv("late.conv", x, (channels, 2 * channels), relu=True)
    net.op("GlobalAveragePool", "late", x)
    return net.model("branches")


def _nested_residual(net: Builder, name: str, x: str, channels: int) -> str:
    same = (channels, channels)
    outer = net.conv(f"{name}.enter", x, same, relu=True)
    inner = net.conv(f"{name}.inner2", net.conv(f"{name}.inner1", outer, same, relu=True), same)
    inner = net.op("Relu", f"{name}.inner", net.op("Add", f"{name}.inner.sum", outer, inner))
    left = net.conv(f"{name}.leave", inner, same)
    return net.op("Relu", name, net.op("Add", f"{name}.sum", x, left))
