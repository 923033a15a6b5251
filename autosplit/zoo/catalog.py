"""Real nets with usable weights, made offline and the same for the same seed.

Nine nets come inside the installed onnx package as files without weights: each weight there is one value repeated, so
the output is one constant whatever the wiring. They keep their structure and get random weights.
Two more are built here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, MachineError
from autosplit.extras import require
from autosplit.files import atomic_write, refused
from autosplit.zoo import built_nets
from autosplit.zoo import weights as zoo_weights

Shape = tuple[int, ...]

_BUILT: dict[str, Callable[[], tuple[Any, dict[str, Shape]]]] = {
    "branches": built_nets.branches,
    "transformer": built_nets.transformer,
}
_LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
NAMES = tuple(sorted((*_BUILT, *_LIGHT)))
_REMEDY = "free the disk or choose another file"
_OLDEST_IR = 4  # the first version in which an initialiser need not be a graph input


@dataclass(frozen=True)
class Net:
    """What a net of the zoo looks like; ``inputs`` and ``outputs`` hold (name, shape), ``weight_bytes`` is float32."""

    name: str
    inputs: tuple[tuple[str, Shape], ...]
    outputs: tuple[tuple[str, Shape], ...]
    nodes: int
    weight_bytes: int


def describe(name: str) -> Net:
    """Describe a net without making its weights; raises as ``make`` does."""
    model, weights = _skeleton(name)
    size = 4 * sum(math.prod(shape) for shape in weights.values())
    return Net(
        name, _values(model.graph.input), _values(model.graph.output), len(model.graph.node), size
    )


def make(name: str, seed: int = 0) -> Any:
    """Make the ``onnx.ModelProto`` of a net; the same name and seed give the same bytes.

    Raises ConfigError for an unknown name or a negative seed, MachineError where the onnx package is missing.
    """
    if seed < 0:
        raise ConfigError(f"seed {seed}: must be 0 or more")
    model, weights = _skeleton(name)
    zoo_weights.fill(model.graph, weights, seed)
    return model


def write(name: str, path: str | os.PathLike[str], seed: int = 0) -> Path:
    """Make a net and write it to ``path``, which appears complete or not at all; returns the path.

    Raises as ``make`` does, and MachineError where the file cannot be written.
    """
    target = Path(path)
    try:
        place = _place(target)
    except OSError as error:
        raise refused(target, error, _REMEDY) from error
    with atomic_write(place, _REMEDY) as temporary:
        temporary.write_bytes(make(name, seed).SerializeToString(deterministic=True))
    return target


def cached(name: str, seed: int = 0) -> Path:
    """The ONNX file of a net, made into the cache folder once; raises as ``write`` does."""
    from autosplit.hardware import cache

    file = cache.folder() / "zoo" / f"seed{seed}" / f"{name}.onnx"
    return cache.keep(file, lambda temporary: write(name, temporary, seed))


def _place(target: Path) -> Path:
    """Where the file really goes: behind links, in a folder that exists, never over a folder or a device."""
    place = Path(os.path.realpath(target))
    if not place.parent.is_dir():
        raise NotADirectoryError(f"no folder {place.parent}")
    if place.exists() and not place.is_file():
        raise FileExistsError("not a regular file")
    return place


def _skeleton(name: str) -> tuple[Any, dict[str, Shape]]:
    """The model without its float weights, and the shape of each."""
    if name not in NAMES:
        raise ConfigError(f"net {name!r}: not in the zoo; known: {', '.join(NAMES)}")
    onnx = _onnx()
    if name in _BUILT:
        return _BUILT[name]()
    path = (
        Path(str(onnx.__file__)).parent
        / "backend"
        / "test"
        / "data"
        / "light"
        / f"light_{name}.onnx"
    )
    if not path.is_file():
        raise MachineError(
            f"net {name!r}: {path.name} is not in onnx {onnx.__version__}: pip install --force-reinstall 'onnx>=1.18'"
        )
    return _without_weights(onnx, onnx.load(path))


def _without_weights(onnx: Any, model: Any) -> tuple[Any, dict[str, Shape]]:
    """Take the float weights out of a model, with the nodes and graph inputs that only stood for them."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = [
        node
        for node in graph.node
        if node.op_type == "ConstantOfShape" and node.input[0] in constants
    ]
    weights = {
        n.output[0]: tuple(onnx.numpy_helper.to_array(constants[n.input[0]]).tolist())
        for n in makers
    }
    nodes = [node for node in graph.node if node not in makers]
    read = {name for node in nodes for name in node.input}
    kept = [
        t for t in graph.initializer if t.name in read and t.data_type != onnx.TensorProto.FLOAT
    ]
    weights |= {
        t.name: tuple(t.dims)
        for t in graph.initializer
        if t.name in read and t.data_type == onnx.TensorProto.FLOAT
    }
    inputs = [value for value in graph.input if value.name not in constants]
    for field, values in (("node", nodes), ("initializer", kept), ("input", inputs)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    model.ir_version = max(model.ir_version, _OLDEST_IR)
    return model, weights


def _values(infos: Any) -> tuple[tuple[str, Shape], ...]:
    return tuple((i.name, tuple(d.dim_value for d in i.type.tensor_type.shape.dim)) for i in infos)


def _onnx() -> Any:
    require("onnx.numpy_helper", "onnx")
    return require("onnx", "onnx")
