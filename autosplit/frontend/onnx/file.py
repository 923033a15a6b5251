"""Reads an untrusted ONNX file: checks that it is whole and that its weights lie in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError, explained, line_of
from autosplit.extras import helper, numpy_helper, onnx, require
from autosplit.frontend.onnx.branches import take_known_branches
from autosplit.frontend.onnx.nodes import graphs_in
from autosplit.frontend.onnx.shapes import bind_shapes, enlarge
from autosplit.frontend.shapes import Shapes

_LONGEST_NAME = 10_000
_MOST_NODES = 1_000_000  # of a model after its functions are inlined


def read(path: Path, shapes: Shapes | None = None, batch: int = 1) -> Any:
    """The ModelProto of ``path`` with its external data loaded and every input shape static.

    ``shapes`` gives the shapes of dynamic inputs; a symbol bound there is bound everywhere. The
    model takes ``batch`` such items at once.

    Raises:
        ModelError: The file is no ONNX model, or refers to files outside its folder.
        ConfigError: ``shapes`` do not fit the inputs.
        MachineError: The package onnx is missing.
    """
    require("onnx", "onnx")
    model = _inlined(_parse(path), path)
    _load_external_data(model, path)
    _check_weights(model.graph)
    return prepared(model, shapes or {}, batch)


def external_files(path: Path) -> dict[str, Path]:
    """The external weight files of a model file, by the location that it gives for them.

    Raises what ``read`` raises.
    """
    # Only external data has this key, so most files need not be parsed again.
    if b"location" not in path.read_bytes():
        return {}
    require("onnx", "onnx")
    tensors = _external_tensors(_inlined(_parse(path), path))
    return dict(_external_file(tensor, path) for tensor in tensors)


def prepared(model: Any, shapes: Shapes, batch: int = 1) -> Any:
    """A ModelProto in the form that ``importer`` reads: constants as tensors, static shapes.

    Raises what ``bind_shapes`` and ``enlarge`` raise.
    """
    _store_constants_as_tensors(model.graph)
    bind_shapes(model, shapes)
    if batch > 1:
        enlarge(model, batch)
    take_known_branches(model)
    return model


def _parse(path: Path) -> Any:
    content = path.read_bytes()
    if not content:
        raise ModelError(f"model '{path}' is empty; give an ONNX file")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf raises its own DecodeError, older versions others
        problem = f"model '{path}' is not an ONNX file, or is truncated ({len(content)} bytes read)"
        raise ModelError(problem) from error
    if not model.ir_version or not model.HasField("graph") or not model.opset_import:
        problem = f"model '{path}' is not an ONNX file: it holds no graph with an opset version"
        raise ModelError(problem)
    if not model.graph.node or not model.graph.output:
        missing = "outputs" if model.graph.node else "nodes"
        raise ModelError(f"model '{path}' has a graph without {missing}; there is nothing to split")
    for name in chain(_names(model.graph), *map(_names, model.functions)):
        # Protobuf returns bytes for a name that is not UTF-8.
        if isinstance(name, bytes) or "\0" in name or len(name) > _LONGEST_NAME:
            raise ModelError(
                f"model '{path}' has the name {name[:40]!r}; rename it in UTF-8, without null "
                f"characters and with at most {_LONGEST_NAME} others"
            )
    _name_standard_domain(model)
    return model


def _name_standard_domain(model: Any) -> None:
    """Give the standard domain its usual name, the empty one, where it is called "ai.onnx"."""
    bodies = (model.graph, *model.functions)
    nodes = chain.from_iterable(each.node for body in bodies for each in graphs_in(body))
    imports = chain.from_iterable(each.opset_import for each in (model, *model.functions))
    for each in chain(nodes, imports):
        if each.domain == "ai.onnx":
            each.domain = ""


def _names(graph: Any) -> Iterator[Any]:
    """The names in a graph or a function, in the graphs inside it too."""
    for each in graphs_in(graph):
        yield each.name
        if hasattr(each, "initializer"):  # the inputs and outputs of a function are names
            yield from (v.name for v in (*each.input, *each.output, *each.initializer))
        for node in each.node:
            texts = node.name, node.op_type, node.domain, *(a.name for a in node.attribute)
            yield from (*texts, *node.input, *node.output)


def _inlined(model: Any, path: Path) -> Any:
    if not model.functions:
        return model
    try:
        count = _inlined_nodes(model)
    except CycleError as error:
        names = " -> ".join(name for _, name, _ in error.args[1])
        problem = f"model '{path}' has functions that cannot be inlined: one calls itself, {names}"
        raise ModelError(problem) from error
    if count > _MOST_NODES:
        raise ModelError(
            f"model '{path}' has more than {_MOST_NODES} nodes once its functions are inlined; "
            "export a smaller one"
        )
    with explained(ModelError, f"model '{path}' has functions that cannot be inlined", last=False):
        # TVM's importer does not support functions of a model.
        return require("onnx.inliner", "onnx").inline_local_functions(model)


def _inlined_nodes(model: Any) -> int:
    """How many nodes a model has once its functions are inlined.

    Raises CycleError, with the functions as (domain, name, overload), where one calls itself.
    """
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    calls = {key: set(_kinds(f)) & functions.keys() for key, f in functions.items()}
    sizes: dict[Any, int] = {}
    for key in TopologicalSorter(calls).static_order():
        sizes[key] = sum(sizes.get(kind, 1) for kind in _kinds(functions[key]))
    return sum(sizes.get(kind, 1) for kind in _kinds(model.graph))


def _kinds(graph: Any) -> Iterator[tuple[str, str, str]]:
    """The op of each node in a graph or a function, as its domain, name and overload."""
    for node in chain.from_iterable(each.node for each in graphs_in(graph)):
        yield node.domain, node.op_type, node.overload


def _load_external_data(model: Any, path: Path) -> None:
    for tensor in _external_tensors(model):
        _, file = _external_file(tensor, path)
        for entry in tensor.external_data:  # the package onnx does not follow links
            if entry.key == "location":
                entry.value = file.name
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(file.parent))
        except Exception as error:
            reason = line_of(error)[:200]
            raise ModelError(f"weight '{tensor.name}' cannot be read: {reason}") from error


def _external_tensors(model: Any) -> Iterator[Any]:
    return (t for t in _tensors(model.graph) if t.data_location == onnx.TensorProto.EXTERNAL)


def _external_file(tensor: Any, path: Path) -> tuple[str, Path]:
    """The location and file of a tensor of the model ``path``; ModelError if there is no file."""
    location = next((e.value for e in tensor.external_data if e.key == "location"), "")
    # In the cache of Hugging Face, a model is a link, and its data lies beside the link's target.
    folders = path.parent.resolve(), path.resolve().parent
    try:
        file = (path.parent / location).resolve()
        is_file = file.is_file()
    except (OSError, ValueError, RuntimeError, TypeError):  # a null character, a loop, no UTF-8
        file, is_file = folders[0], False
    if os.path.isabs(location) or not any(map(file.is_relative_to, folders)):
        raise ModelError(
            f"weight '{tensor.name}' lies outside the model's folder, in '{location}'; "
            "move the data beside the model"
        )
    if not is_file:
        raise ModelError(
            f"weight '{tensor.name}' needs the file {location[:200]!r} beside the model; "
            "it is not there"
        )
    return location, file


def _check_weights(graph: Any) -> None:
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        problem = f"weight '{name}' is sparse, which TVM's importer does not read; store it dense"
        raise ModelError(problem)
    for tensor in _tensors(graph):
        if min(tensor.dims, default=0) < 0:
            raise ModelError(f"weight '{tensor.name}' is damaged: its shape is {list(tensor.dims)}")
        with explained(ModelError, f"weight '{tensor.name}' is damaged", last=False):
            numpy_helper.to_array(tensor)


def _store_constants_as_tensors(graph: Any) -> None:
    """Give every Constant its value as a tensor, the only form that TVM's importer reads."""
    # Inner graphs too: a branch that is taken becomes part of the graph.
    for node in chain.from_iterable(each.node for each in graphs_in(graph)):
        if node.op_type != "Constant" or len(node.attribute) != 1:
            continue
        attribute = node.attribute[0]
        kind = attribute.name.removeprefix("value_").removesuffix("s")
        if kind in ("float", "int"):
            dtype = "float32" if kind == "float" else "int64"
            tensor = numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), dtype))
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph and of the graphs inside it."""
    for each in graphs_in(graph):
        yield from each.initializer
        for attribute in chain.from_iterable(node.attribute for node in each.node):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
