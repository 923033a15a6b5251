"""Small nets with states, for streams: each layer reads the state that its last step left.

The input ``past_NAME`` of a state gets the value of the output ``present_NAME``.
"""

from __future__ import annotations

import math

from autosplit.zoo.onnx_builder import FLOAT, Builder, Net


def amplifier(layers: int = 12, channels: int = 64, frames: int = 256) -> Net:
    """Causal convolutions over ``sound`` (1, channels, frames), a frame of a stream.

    They are dilated and gated as in WaveNet (van den Oord et al., 2016).
    """
    shape = (1, channels, frames)
    net = Builder({"sound": shape}, {"amplified": shape})
    x = "sound"
    for layer in range(layers):
        dilation = 2 ** (layer % 6)
        name = f"layer{layer}"
        # A kernel of three sees two dilated steps before its own frame.
        joined = net.remember(str(layer), x, (1, channels, 2 * dilation), 2, frames)
        gates = []
        for kind in ("Tanh", "Sigmoid"):
            part = f"{name}.{kind.lower()}"
            weight = net.weight(f"{part}.weight", channels, channels, 3)
            bias = net.weight(f"{part}.bias", channels)
            hidden = net.op("Conv", f"{part}.conv", joined, weight, bias, dilations=[dilation])
            gates.append(net.op(kind, part, hidden))
        x = net.op("Add", f"{name}.sum", x, net.op("Mul", f"{name}.gated", *gates))
    return net.model("amplifier", "amplified")


def enhancer(layers: int = 4, width: int = 384, bands: int = 257) -> Net:
    """A mask for ``spectrum`` (1, bands) by gated recurrent units, as in speech enhancement."""
    net = Builder({"spectrum": (1, bands)}, {"enhanced": (1, bands)})
    net.constant("one", FLOAT, [1.0])
    x = net.op("Relu", "enter.relu", net.linear("enter", "spectrum", (bands, width)))
    for layer in range(layers):
        x = _gated_unit(net, f"unit{layer}", x, width)
    mask = net.op("Sigmoid", "mask", net.linear("leave", x, (width, bands)))
    net.op("Mul", "masked", "spectrum", mask)
    return net.model("enhancer", "enhanced")


def _gated_unit(net: Builder, name: str, x: str, width: int) -> str:
    """A gated recurrent unit (Cho et al., 2014); its output is its state."""
    before = net.past(name, 1, width)
    from_input, from_state = [
        net.op(
            "Split",
            f"{name}.{side}.gates",
            net.linear(f"{name}.{side}", tensor, (width, 3 * width)),
            outputs=[f"{name}.{side}.{gate}" for gate in ("update", "reset", "new")],
            axis=1,
        ).removesuffix(".update")
        for side, tensor in (("input", x), ("state", before))
    ]
    gates = {}
    for gate in ("update", "reset"):
        total = net.op("Add", f"{name}.{gate}.sum", f"{from_input}.{gate}", f"{from_state}.{gate}")
        gates[gate] = net.op("Sigmoid", f"{name}.{gate}", total)
    reset = net.op("Mul", f"{name}.forgotten", gates["reset"], f"{from_state}.new")
    new_sum = net.op("Add", f"{name}.new.sum", f"{from_input}.new", reset)
    new = net.op("Tanh", f"{name}.new", new_sum)
    # The state is a mean of the old and the new one, weighed by this gate.
    share = net.op("Sub", f"{name}.share", "one", gates["update"])
    new_part = net.op("Mul", f"{name}.new.part", share, new)
    old_part = net.op("Mul", f"{name}.old.part", gates["update"], before)
    return net.op("Add", f"{name}.output", new_part, old_part, outputs=[f"present_{name}"])


def encoder(layers: int = 4, width: int = 192, chunk: int = 16, memory: int = 64) -> Net:
    """Attention and convolution over ``frames`` (1, chunk, width) and the frames before them.

    A streaming encoder in the manner of Conformer (Gulati et al., 2020): each layer sees ``memory``
    frames of the past.
    """
    shape = (1, chunk, width)
    net = Builder({"frames": shape}, {"encoded": shape})
    net.constant("scale", FLOAT, [1 / math.sqrt(width)])
    x = "frames"
    for layer in range(layers):
        name = f"layer{layer}"
        normed = net.norm(f"{name}.norm1", x, width)
        joined = net.remember(str(layer), normed, (1, memory, width), 1, chunk)
        query = net.linear(f"{name}.query", normed, (width, width))
        key = net.linear(f"{name}.key", joined, (width, width), bias=False)
        value = net.linear(f"{name}.value", joined, (width, width))
        attended = net.attention(name, query, key, value, width)
        x = net.op("Add", f"{name}.residual1", x, attended)
        x = net.op("Add", f"{name}.residual2", x, _convolved(net, name, x, (chunk, width)))
        x = _fed_forward(net, name, x, net.norm(f"{name}.norm3", x, width), width)
    return net.model("encoder", "encoded")


def _fed_forward(net: Builder, name: str, x: str, normed: str, width: int) -> str:
    """Two linear layers, added to the input ``x`` of a layer."""
    hidden = net.linear(f"{name}.expand", normed, (width, 4 * width))
    hidden = net.op("Relu", f"{name}.relu", hidden)
    return net.op("Add", name, x, net.linear(f"{name}.reduce", hidden, (4 * width, width)))


def _convolved(net: Builder, name: str, x: str, sizes: tuple[int, int]) -> str:
    """A depthwise convolution along time, over this chunk and the last four frames before it."""
    chunk, width = sizes
    normed = net.norm(f"{name}.norm2", x, width)
    turned = net.op("Transpose", f"{name}.turned", normed, perm=[0, 2, 1])
    joined = net.remember(f"{name}.conv", turned, (1, width, 4), 2, chunk)
    weight = net.weight(f"{name}.depthwise.weight", width, 1, 5)
    hidden = net.op("Conv", f"{name}.depthwise", joined, weight, group=width)
    return net.op("Transpose", f"{name}.back", hidden, perm=[0, 2, 1])


def decoder(layers: int = 6, width: int = 256, length: int = 64) -> Net:
    """A decoder of one ``token`` (1, 1, width) at a time that caches the last keys and values."""
    shape = (1, 1, width)
    net = Builder({"token": shape}, {"decoded": shape})
    net.constant("scale", FLOAT, [1 / math.sqrt(width)])
    x = "token"
    for layer in range(layers):
        name = f"layer{layer}"
        normed = net.norm(f"{name}.norm1", x, width)
        cached = []
        for part in ("key", "value"):
            new = net.linear(f"{name}.{part}", normed, (width, width))
            cached.append(net.remember(f"{name}.{part}", new, (1, length, width), 1, 1))
        query = net.linear(f"{name}.query", normed, (width, width))
        attended = net.attention(name, query, cached[0], cached[1], width)
        x = net.op("Add", f"{name}.residual", x, attended)
        x = _fed_forward(net, name, x, net.norm(f"{name}.norm2", x, width), width)
    return net.model("decoder", "decoded")
