"""Small nets that splitters got wrong, written in ONNX's text form, and the judge that compares a
split with onnxruntime.

A node has no name in the text, so it is named by its first output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement.parity import compare

Shape = tuple[int, ...]


def net(text: str, weights: Mapping[str, Any] | None = None, opset: int = 17) -> Any:
    """A ModelProto from ``g (float[1,4] x) => (float[1,4] y) { … }``, whose calls may nest.

    A weight is an array, or a shape to fill with random numbers.
    """
    from onnx import numpy_helper, parser

    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {_flat(text)}')
    generator = np.random.default_rng(0)
    for name, array in (weights or {}).items():
        array = array if isinstance(array, np.ndarray) else _filled(name, array, generator)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _flat(text: str) -> str:
    """Move each call that is an argument into a line of its own, before the line that reads it."""
    number = 0
    while inner := re.search(r"(?<=[(,])\s*(\w+(<[^<>]*>)?\([^()]*\))", text):
        *_, outer = re.finditer(r"[\w, ]+ = ", text[: inner.start()])
        line, rest = text[outer.start() : inner.start()], text[inner.end() :]
        text = f"{text[: outer.start()]} part{number} = {inner[1]} {line} part{number}{rest}"
        number += 1
    return text


def _filled(name: str, shape: Shape, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values that keep activations near 1 and differ everywhere; a variance is positive."""
    values = generator.standard_normal(shape).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    if name.startswith("var"):
        return np.abs(values) + np.float32(0.5)
    return values / np.float32(np.sqrt(fan_in))


def batch_norm(number: int, channels: int = 4) -> dict[str, Shape]:
    """The four weights of batch norm ``number``: scale, bias, mean, var."""
    return {f"{name}{number}": (channels,) for name in ("scale", "bias", "mean", "var")}


def products() -> Any:
    """Three ops: two products and a softmax between them."""
    text = "g (float[2,4] x) => (float[2,4] y) { a = MatMul(x, w) b = Softmax(a) y = MatMul(b, v) }"
    return net(text, {"w": (4, 4), "v": (4, 4)})


def preactivation() -> Any:
    """A pre-activation ResNet block: a batch norm and the later sum ``add1`` read ``add0``."""
    return net(
        """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
            c0 = Conv<pads=[1,1,1,1]>(x, w0)
            add0 = Add(c0, x)
            b0 = BatchNormalization(add0, scale0, bias0, mean0, var0)
            r0 = Relu(b0)
            c1 = Conv<pads=[1,1,1,1]>(r0, w1)
            b1 = BatchNormalization(c1, scale1, bias1, mean1, var1)
            r1 = Relu(b1)
            c2 = Conv<pads=[1,1,1,1]>(r1, w2)
            add1 = Add(c2, add0)
            y = Relu(add1)
        }""",
        dict.fromkeys(("w0", "w1", "w2"), (4, 4, 3, 3)) | batch_norm(0) | batch_norm(1),
    )


def residual(blocks: int = 3) -> Any:
    """Residual blocks in a row: nodes ``conv{i}a``, ``relu{i}a``, ``conv{i}b``, ``sum{i}``, ...."""
    lines: list[str] = []
    weights: dict[str, tuple[int, ...]] = {}
    before = "x"
    for i in range(blocks):
        after = "y" if i == blocks - 1 else f"out{i}"
        lines.append(f"conv{i}a = Conv<pads=[1,1,1,1]>({before}, w{i}a)  relu{i}a = Relu(conv{i}a)")
        lines.append(
            f"conv{i}b = Conv<pads=[1,1,1,1]>(relu{i}a, w{i}b)  sum{i} = Add(conv{i}b, {before})"
        )
        lines.append(f"{after} = Relu(sum{i})")
        weights |= {f"w{i}{k}": (4, 4, 3, 3) for k in "ab"}
        before = after
    return net(f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {' '.join(lines)} }}", weights)


def parallel() -> Any:
    """Three branches of one, two and three convolutions joined by a concat."""
    return net(
        """g (float[1,4,6,6] x) => (float[1,12,6,6] y) {
            stem = Relu(x)
            a0 = Conv(stem, wa0)
            b0 = Conv(stem, wb0)  b1 = Conv(b0, wb1)
            d0 = Conv(stem, wd0)  d1 = Conv(d0, wd1)  d2 = Conv(d1, wd2)
            y = Concat<axis=1>(a0, b1, d2)
        }""",
        dict.fromkeys(("wa0", "wb0", "wb1", "wd0", "wd1", "wd2"), (4, 4, 1, 1)),
    )


def amplifier(folder: Path, runtime: str = "auto", layers: int = 3) -> Any:
    """A model with a state in each layer; layer N ends at ``layerN.sum``. The file is written."""
    import onnx

    from autosplit import load_model
    from autosplit.zoo import stream_nets, weights

    model, shapes = stream_nets.amplifier(layers, 4, 8)
    weights.fill(model.graph, shapes, seed=0)
    onnx.save(model, folder / "amplifier.onnx")
    states = {f"past_{i}": f"present_{i}" for i in range(layers)}
    return load_model(folder / "amplifier.onnx", runtime=runtime, states=states)


def tuples() -> Any:
    """A Split in three parts, read out of order and twice, through batch norms, and joined."""
    return net(
        """g (float[1,12,5,5] x) => (float[1,12,5,5] y, float[1,4,5,5] z) {
            p, q, r = Split<axis=1>(x)
            n = BatchNormalization(r, scale0, bias0, mean0, var0)
            m = Conv(q, w0)
            k = BatchNormalization(m, scale1, bias1, mean1, var1)
            j = Concat<axis=1>(n, p, k)
            t, u = Split<axis=1>(j, parts)
            v = Conv(t, w1)
            y = Concat<axis=1>(u, v)
            z = Add(q, v)
        }""",
        {
            "w0": (4, 4, 1, 1),
            "w1": (4, 4, 1, 1),
            "parts": np.array([4, 8]),
            **batch_norm(0),
            **batch_norm(1),
        },
    )


def boundaries() -> Any:
    """Two inputs, five outputs, a shared weight: ``x`` is read early and late, ``late`` only late;
    ``early`` is an early output.

    ``both`` is an output that later nodes also read; ``skip`` is read again after three products.
    """
    return net(
        """g (float[4,4] x, float[4,4] late) =>
        (float[4,4] early, float[4,4] both, float[4,4] y, float[4,4] z, float[4,4] x2) {
            skip = MatMul(x, w)
            early = Relu(skip)
            both = MatMul(skip, w)
            mid = MatMul(both, v)
            far = MatMul(mid, w)
            sum = Add(far, skip)
            end = MatMul(sum, x)
            y = MatMul(end, late)
            z = Add(y, mid)
            x2 = MatMul(x, v)
        }""",
        {"w": (4, 4), "v": (4, 4)},
    )


def judge(model: Any, split: Any, items: int = 3) -> None:
    """Assert that the outputs of a split or pipeline on random items are those of the reference."""
    inputs = model.items(items)
    with split if isinstance(split, Pipeline) else split.pipeline() as pipeline:
        accuracy = compare(pipeline.run(inputs), model.expected(inputs), model.allowed_error)
    assert accuracy.equal, accuracy


def live(split: Any) -> tuple[str, ...]:
    """The tensors that cross the first cut of a split."""
    from autosplit import cuts

    graph = split.model.graph
    return cuts.live(graph, cuts.cuts_of(graph, split.stages)[0])


def inside_a_node() -> Any:
    """A softmax over three axes becomes kernels with tensors between that ONNX has no name for."""
    return net(
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = Softmax<axis=1>(x)
            y = MatMul(a, w)
        }""",
        {"w": (5, 5)},
        opset=11,
    )


def onnxruntime_outputs(model: Path | bytes, items: Sequence[Any]) -> list[dict[str, Any]]:
    """The outputs of an ONNX model for ``items``."""
    from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_step

    return list(map(onnxruntime_step(model), items))


def every_tensor(model: Any, item: Any) -> dict[str, np.ndarray[Any, Any]]:
    """What onnxruntime computes for each tensor of the fused graph that the ONNX graph has."""
    from autosplit.hardware.runtimes.onnx import submodels

    original = submodels.read_original(model.stage_source)
    assert original is not None, "the model was not read from ONNX"
    proto = original.proto
    produced = {t for n in proto.graph.node for t in n.output}
    del proto.graph.output[:]
    for name in model.graph.tensors:
        if name in produced:
            proto.graph.output.add().name = name
    return onnxruntime_outputs(proto.SerializeToString(), [item])[0]
