"""Real nets with usable weights, made offline and the same for the same seed.

Nine nets come with the installed onnx package as files without real weights: each weight is one
value repeated, so the output is the same constant even if ops are wired wrongly. These nets keep
their structure and get random weights. Six more are built here, four of them with states.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, MachineError
from autosplit.extras import require
from autosplit.files import atomic_write
from autosplit.zoo import built_nets, onnx_builder, stream_nets
from autosplit.zoo import weights as zoo_weights
from autosplit.zoo.weights import Shape

_BUILT: dict[str, Callable[[], onnx_builder.Net]] = {
    "branches": built_nets.branches,
    "transformer": built_nets.transformer,
    "amplifier": stream_nets.amplifier,
    "decoder": stream_nets.decoder,
    "encoder": stream_nets.encoder,
    "enhancer": stream_nets.enhancer,
}
_LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
STREAMS = ("amplifier", "decoder", "encoder", "enhancer")  # nets with states
NAMES = tuple(sorted({*_BUILT, *_LIGHT} - {*STREAMS}))
EVERY = (*NAMES, *STREAMS)
_OLDEST_IR = 4  # the first version in which an initialiser need not be a graph input


@dataclass(frozen=True)
class Net:
    """A net of the zoo; ``inputs`` and ``outputs`` have names, shapes and types."""

    name: str
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    nodes: int
    weight_bytes: int


def describe(name: str) -> Net:
    """Describe a net without making its weights; raises as ``make`` does."""
    model, weights = _skeleton(name)
    size = 4 * sum(math.prod(shape) for shape in weights.values())
    graph = model.graph
    inputs, outputs = tuple(map(_value, graph.input)), tuple(map(_value, graph.output))
    return Net(name, inputs, outputs, len(graph.node), size)


def make(name: str, seed: int = 0) -> Any:
    """Make the ``onnx.ModelProto`` of a net; the same name and seed give the same bytes.

    Raises ConfigError for an unknown name or a negative seed, MachineError without onnx.
    """
    if seed < 0:
        raise ConfigError(f"seed {seed}: must be 0 or more")
    model, weights = _skeleton(name)
    zoo_weights.fill(model.graph, weights, seed)
    return model


def write(name: str, path: str | os.PathLike[str], seed: int = 0, replaces: bool = True) -> Path:
    """Make a net and write it to ``path``, which appears complete or not at all; returns the path.

    Raises as ``make`` does, and MachineError where the file cannot be written. Unless it
    ``replaces`` what is there, a file with another content is a ConfigError.
    """
    target = Path(path)
    content = make(name, seed).SerializeToString(deterministic=True)
    may_replace = replaces or not target.is_file()
    with contextlib.suppress(OSError):  # one that cannot be read is another file
        may_replace = may_replace or target.read_bytes() == content
    if not may_replace:
        raise ConfigError(f"'{target}' is another file; give -o FILE to write there or elsewhere")
    with atomic_write(target) as temporary:
        temporary.write_bytes(content)
    return target


def cached(name: str, seed: int = 0) -> Path:
    """The ONNX file of a net, made into the cache folder once; raises as ``write`` does."""
    from autosplit.hardware import cache

    file = cache.folder() / "zoo" / f"seed{seed}" / f"{name}.onnx"
    return cache.keep(file, lambda temporary: write(name, temporary, seed))


def _skeleton(name: str) -> onnx_builder.Net:
    """The model without its float weights, and the shape of each."""
    if name not in EVERY:
        raise ConfigError(f"net {name!r}: not in the zoo; known: {', '.join(EVERY)}")
    require("onnx.numpy_helper", "onnx")
    onnx = require("onnx", "onnx")
    if name in _BUILT:
        return _BUILT[name]()
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
    if not path.is_file():
        raise MachineError(
            f"net {name!r}: {path.name} is not in onnx {onnx.__version__}: "
            "pip install --force-reinstall 'onnx>=1.18'"
        )
    return _without_weights(onnx, onnx.load(path))


def _without_weights(onnx: Any, model: Any) -> onnx_builder.Net:
    """Take the float weights out of a model, with the nodes and inputs that only stand for them."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    weights: dict[str, Shape] = {}
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in constants:
            shape = onnx.numpy_helper.to_array(constants[node.input[0]])
            weights[node.output[0]] = tuple(shape.tolist())
        else:
            nodes.append(node)
    read_names = {name for node in nodes for name in node.input}
    initializers = []
    for tensor in graph.initializer:
        if tensor.name in read_names and tensor.data_type == onnx.TensorProto.FLOAT:
            weights[tensor.name] = tuple(tensor.dims)
        elif tensor.name in read_names:
            initializers.append(tensor)
    inputs = [value for value in graph.input if value.name not in constants]
    for field, values in (("node", nodes), ("initializer", initializers), ("input", inputs)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    model.ir_version = max(model.ir_version, _OLDEST_IR)
    return model, weights


def _value(info: Any) -> dict[str, Any]:
    shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
    return {"name": info.name, "shape": shape, "dtype": "float32"}
