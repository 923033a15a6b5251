"""Reading an ONNX file that nobody vouches for: it is ONNX, whole, stays in its folder, and has static shapes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, ModelError
from autosplit.extras import require
from autosplit.frontend.source import Signature

Shapes = Mapping[str, tuple[int, ...]]


def read(path: Path, shapes: Shapes | None = None) -> Any:
    """The ModelProto of ``path`` with its external data loaded and every input shape static.

    ``shapes`` gives the shape of inputs that are dynamic; a symbol bound there is bound everywhere. Raises ModelError for
    a file that is no ONNX model, ConfigError for shapes that do not fit, MachineError without the onnx package.
    """
    onnx = require("onnx", "onnx")
    model = _inlined(_parse(path, onnx), path, onnx)
    _load_external_data(model, path, onnx)
    _check_weights(model.graph, onnx)
    _spell_constants(model.graph, onnx)
    _bind_shapes(model, dict(shapes or {}))
    return model


def inputs(model: Any) -> tuple[Signature, ...]:
    """The inputs the caller must give: graph inputs that no initialiser fills. Shapes must be static already."""
    return tuple(
        Signature(i.name, tuple(d.dim_value for d in _dims(i)), _dtype(i))
        for i in _free_inputs(model)
    )


def _parse(path: Path, onnx: Any) -> Any:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"model '{path}' cannot be read: {error.strerror or error}") from error
    if not content:
        raise ModelError(f"model '{path}' is empty; give an ONNX file")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf raises its own DecodeError, older versions others
        raise ModelError(
            f"model '{path}' is not an ONNX file, or is truncated ({len(content)} bytes read)"
        ) from error
    if not model.ir_version or not model.HasField("graph") or not model.opset_import:
        raise ModelError(
            f"model '{path}' is not an ONNX file: it holds no graph with an opset version"
        )
    if not model.graph.node or not model.graph.output:
        lacks = "outputs" if model.graph.node else "nodes"
        raise ModelError(f"model '{path}' has a graph without {lacks}; there is nothing to split")
    return model


def _inlined(model: Any, path: Path, onnx: Any) -> Any:
    if not model.functions:
        return model
    try:
        inliner = require("onnx.inliner", "onnx")
        return inliner.inline_local_functions(model)
    except Exception as error:
        raise ModelError(f"model '{path}' has functions that cannot be inlined: {error}") from error


def _load_external_data(model: Any, path: Path, onnx: Any) -> None:
    folder = path.resolve().parent
    for tensor in _tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        _check_external(tensor, folder)
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:
            raise ModelError(f"weight '{tensor.name}' cannot be read: {error}") from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _check_external(tensor: Any, folder: Path) -> None:
    entry = {e.key: e.value for e in tensor.external_data}
    location = entry.get("location", "")
    file = _resolved(folder, location)
    if os.path.isabs(location) or (file and not file.is_relative_to(folder)):
        raise ModelError(
            f"weight '{tensor.name}' lies outside the model's folder, in '{location}'; move the data beside the model"
        )
    if not file or not file.is_file():
        raise ModelError(
            f"weight '{tensor.name}' needs the file {location!r} beside the model; it is not there"
        )
    offset, length = entry.get("offset", "0"), entry.get("length", "0")
    if not offset.isdecimal() or not length.isdecimal():
        raise ModelError(
            f"weight '{tensor.name}' has offset {offset!r} and length {length!r}; both must be numbers"
        )
    if int(offset) + int(length) > file.stat().st_size:
        raise ModelError(
            f"weight '{tensor.name}' ends past the end of '{location}'; the file is truncated"
        )


def _resolved(folder: Path, location: str) -> Path | None:
    try:
        return (folder / location).resolve() if location else None
    except (OSError, ValueError, RuntimeError):  # a null character, a loop of links
        return None


def _check_weights(graph: Any, onnx: Any) -> None:
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ModelError(
            f"weight '{name}' is sparse, which TVM's importer does not read; store it dense"
        )
    for tensor in _tensors(graph):
        if min(tensor.dims, default=0) < 0:
            raise ModelError(f"weight '{tensor.name}' is damaged: its shape is {list(tensor.dims)}")
        try:
            onnx.numpy_helper.to_array(tensor)
        except Exception as error:
            raise ModelError(
                f"weight '{tensor.name}' is damaged: {error or type(error).__name__}"
            ) from error


def _spell_constants(graph: Any, onnx: Any) -> None:
    """Give every Constant its value as a tensor; the importer knows no other of ONNX's spellings."""
    kinds = {
        "value_float": "float32",
        "value_floats": "float32",
        "value_int": "int64",
        "value_ints": "int64",
    }
    for node in graph.node:
        if (
            node.op_type == "Constant"
            and len(node.attribute) == 1
            and node.attribute[0].name in kinds
        ):
            given = node.attribute[0]
            array = np.array(onnx.helper.get_attribute_value(given), kinds[given.name])
            given.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array)))


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _tensors(inner)


def _free_inputs(model: Any) -> list[Any]:
    filled = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in filled]


def _dims(value: Any) -> Any:
    return value.type.tensor_type.shape.dim


def _dtype(value: Any) -> str:
    from onnx import helper

    return str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _bind_shapes(model: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    free = _free_inputs(model)
    names = [i.name for i in free]
    for name in shapes:
        if name not in names:
            raise ConfigError(
                f"--shape names '{name}', but the model's inputs are {', '.join(map(repr, names)) or 'none'}"
            )
    symbols: dict[str, int] = {}
    for value in free:
        _check_tensor(value)
        if value.name in shapes:
            _apply(value, shapes[value.name], symbols)
    for value in free:
        for dim in _dims(value):
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
        _require_static(value)


def _check_tensor(value: Any) -> None:
    from onnx import TensorProto

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"input '{value.name}' is a {kind or 'value without a type'}; only tensors can be split"
        )
    numeric = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}
    if value.type.tensor_type.elem_type not in numeric:
        raise ModelError(
            f"input '{value.name}' has no numeric element type; only numbers and booleans can be split"
        )


def _apply(value: Any, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    given = "x".join(map(str, shape))
    if not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.SetInParent()  # a scalar has a shape, too
        for _ in shape:
            _dims(value).add()
    dims = _dims(value)
    if len(shape) != len(dims):
        raise ConfigError(
            f"--shape {value.name}={given} has rank {len(shape)}, but the input has rank {len(dims)}: {_text(value)}"
        )
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if size < 1:
            raise ConfigError(
                f"--shape {value.name}={given} has size {size} at axis {axis}; sizes start at 1"
            )
        fixed = (
            dim.dim_value
            if dim.HasField("dim_value") and dim.dim_value > 0
            else symbols.get(dim.dim_param)
        )
        if fixed is not None and fixed != size:
            raise ConfigError(
                f"--shape {value.name}={given} differs at axis {axis}, which the model fixes to {fixed}"
            )
        if dim.dim_param:
            symbols[dim.dim_param] = size
        dim.dim_value = size


def _require_static(value: Any) -> None:
    static = value.type.tensor_type.HasField("shape") and all(
        d.HasField("dim_value") and d.dim_value > 0 for d in _dims(value)
    )
    if not static:
        sizes = (
            "x".join(str(d.dim_value) if d.dim_value > 0 else "1" for d in _dims(value))
            or "1x3x224x224"
        )
        raise ModelError(
            f"input '{value.name}' has a dynamic shape {_text(value)}; give it, e.g. --shape {value.name}={sizes}"
        )


def _text(value: Any) -> str:
    if not value.type.tensor_type.HasField("shape"):
        return "(of unknown rank)"
    return (
        "("
        + ", ".join(
            str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?" for d in _dims(value)
        )
        + ")"
    )
