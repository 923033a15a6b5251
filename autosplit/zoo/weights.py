"""Seeded random weights for an ONNX graph that has only the shapes of its weights.

Every layer is scaled by the expected root mean square of its input, which is followed through the
graph from inputs with mean 0 and deviation 1. That is the rule of He et al., "Delving Deep into
Rectifiers", 2015, for graphs with branches and poolings: activations neither explode nor vanish
whatever the depth, and each weight tensor shows in the outputs.

The bits come from a generator seeded by (seed, tensor name) and become floats by exact steps,
so the weights do not depend on the order of the tensors, the version of numpy or the machine.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]

_LINEAR = ("Conv", "Gemm", "MatMul")
_NORM = ("BatchNormalization", "LayerNormalization")
# The standard deviation that the output of a linear layer should have: 1 as a rule; more before a
# softmax, so that its outputs differ clearly but none dominates; much more before a local response
# normalisation (its alpha is about 1e-4), so that leaving it out would change the outputs visibly.
_AIM, _AIM_SOFTMAX, _AIM_LRN = 1.0, 2.0, 50.0
# Half the width of uniform distributions, as a share of the deviation of what the weight is added
# to or scales. Biases and means are the same for every input: large ones would drown the input.
_OFFSET, _SCALE = 0.3, 0.5


class Moments(NamedTuple):
    """Expected mean and standard deviation of the values of a tensor."""

    mean: float
    deviation: float

    @property
    def rms(self) -> float:
        """Root mean square."""
        return math.hypot(self.mean, self.deviation)


def fill(graph: Any, shapes: Mapping[str, Shape], seed: int) -> None:
    """Add a float32 initialiser for each weight to a graph in topological order."""
    for name, (low, high) in ranges(graph, shapes).items():
        tensor = graph.initializer.add(name=name, dims=shapes[name], data_type=1)
        tensor.raw_data = uniform(math.prod(shapes[name]), low, high, seed, name)


def uniform(count: int, low: float, high: float, seed: int, name: str) -> bytes:
    """Little-endian float32 values, uniform in [low, high) and the same on every machine."""
    seeds = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    bits = np.random.PCG64(seeds).random_raw((count + 1) // 2)
    words = bits.astype("<u8", copy=False).view("<u4")[:count]
    words >>= np.uint32(8)  # 24 bits: what a float32 holds exactly
    values = words.astype("<f4")
    values *= np.float32((high - low) / 2**24)
    values += np.float32(low)
    return values.tobytes()


def ranges(graph: Any, shapes: Mapping[str, Shape]) -> dict[str, tuple[float, float]]:
    """For each weight the bounds of its uniform distribution."""
    result = dict.fromkeys(shapes, (-_OFFSET, _OFFSET))
    moments = {value.name: Moments(0.0, 1.0) for value in graph.input}
    alias = {name: name for name in shapes}  # a weight, or a view of it -> the weight
    readers = _readers(graph)
    for node in graph.node:
        if node.op_type in ("Unsqueeze", "Reshape") and node.input[0] in alias:
            alias[node.output[0]] = alias[node.input[0]]
            continue
        data = [moments[name] for name in node.input if name in moments]
        weights = {place: alias[name] for place, name in enumerate(node.input) if name in alias}
        aim = _aim(node, readers)
        for place, name in weights.items():
            low, high = _range(node, place, shapes[name], data[0], aim)
            # Rounded, for the last bits of exp and pow differ by machine.
            result[name] = (float(f"{low:.6g}"), float(f"{high:.6g}"))
        moments |= dict.fromkeys(node.output, _outcome(node, data, len(weights), aim))
    return result


def _range(node: Any, place: int, shape: Shape, data: Moments, aim: float) -> tuple[float, float]:
    """The bounds of the weight that is read as input ``place`` of the node."""
    kind = node.op_type
    if kind in _LINEAR and place == 1:
        spread = aim * math.sqrt(3 / _fan_in(node, shape)) / data.rms
        return -spread, spread
    if kind == "BatchNormalization" and place == 4:
        # The variance, of which the square root is taken.
        return (1 - _SCALE) * data.rms**2, (1 + _SCALE) * data.rms**2
    if kind in (*_NORM, "Mul") and place == 1:
        return 1 - _SCALE, 1 + _SCALE
    unit = data.rms if kind == "BatchNormalization" and place == 3 else aim
    return -_OFFSET * unit, _OFFSET * unit


def _outcome(node: Any, data: Sequence[Moments], weights: int, aim: float) -> Moments:
    """Moments of the outputs of a node that reads ``data`` and a number of ``weights``."""
    kind, offset, scale = node.op_type, _OFFSET**2 / 3, 1 + _SCALE**2 / 3
    if not data:
        return Moments(0.0, 1.0)
    if kind in _LINEAR and weights:
        return Moments(0.0, aim * math.sqrt(1 + (weights - 1) * offset))
    if kind in _NORM:
        inverse = 1.0  # the expectation of 1 / variance, which is random for a batch alone
        if kind == "BatchNormalization":
            inverse = math.log((1 + _SCALE) / (1 - _SCALE)) / (2 * _SCALE)
        return Moments(0.0, math.sqrt(inverse * (1 + offset) * scale + offset))
    mean = sum(x.mean for x in data)
    deviation = math.sqrt(sum(x.deviation**2 for x in data))
    if kind in ("Sum", "Add"):
        return Moments(mean, math.sqrt(deviation**2 + weights * offset))
    average = Moments(mean / len(data), deviation / math.sqrt(len(data)))
    return _elementwise(node, average, math.sqrt(scale**weights))


def _elementwise(node: Any, data: Moments, stretch: float) -> Moments:
    """Moments behind a node that reads one tensor, or several alike; other kinds keep them."""
    kind = node.op_type
    mean, deviation = data
    if kind == "Relu":
        return _rectified(data)
    if kind == "MaxPool":
        return Moments(mean + 0.8 * deviation, 0.9 * deviation)
    if kind in ("AveragePool", "GlobalAveragePool"):
        return Moments(mean, 0.7 * deviation)
    if kind == "LRN":
        attributes = {a.name: a.f for a in node.attribute}
        scale = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) * data.rms**2
        stretch = float(scale) ** -attributes.get("beta", 0.75)
    return Moments(mean * stretch, deviation * stretch)


def _rectified(data: Moments) -> Moments:
    """Moments of max(0, x) for a normal x, in closed form."""
    mean, deviation = data
    density = math.exp(-((mean / deviation) ** 2) / 2) / math.sqrt(2 * math.pi)
    share = (1 + math.erf(mean / deviation / math.sqrt(2))) / 2
    first = mean * share + deviation * density
    second = (mean**2 + deviation**2) * share + mean * deviation * density
    return Moments(first, math.sqrt(second - first**2))


def _aim(node: Any, readers: Mapping[str, list[Any]]) -> float:
    """The deviation that the output of a linear layer should have, by the op that reads it."""
    if node.op_type not in _LINEAR:
        return _AIM
    direct = readers.get(node.output[0], [])
    while len(direct) == 1 and direct[0].op_type in ("Relu", "Reshape", "GlobalAveragePool"):
        direct = readers.get(direct[0].output[0], [])
    aims = {"LRN": _AIM_LRN, "Softmax": _AIM_SOFTMAX}
    return aims.get(direct[0].op_type, _AIM) if len(direct) == 1 else _AIM


def _fan_in(node: Any, shape: Shape) -> int:
    """How many products are summed into one output value."""
    if node.op_type == "Conv":
        return math.prod(shape[1:])  # the shape is that of one group already
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    # Counted from the end: some weights have ones before and are reshaped.
    return shape[-1] if transposed else shape[-2]


def _readers(graph: Any) -> dict[str, list[Any]]:
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers
