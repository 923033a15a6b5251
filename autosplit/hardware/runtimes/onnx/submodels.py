"""Submodels of an ONNX model: the nodes between the tensors that a stage reads and makes.

A stage is described by tensors of the fused graph. Where the ONNX graph has them too, a search from
the stage's outputs back to its inputs finds its nodes.

One ONNX model may compute items of several shapes (variants), so that weights are loaded once. A
node that asks for the shape of a tensor, which may be in another stage, is replaced by a lookup in
a table by the number of the variant, which is found by the shape of one input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.extras import helper, numpy_helper, onnx
from autosplit.frontend.onnx.nodes import tensors_read
from autosplit.frontend.onnx.static_shapes import (
    Shape,
    asks_for_shape,
    inferred_shapes,
    shape_constant,
    shape_value,
)
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.runtimes.interface import StageSource

_VARIANT = "autosplit/variant"  # the tensor with the number of the variant


class NoSubmodel(Exception):
    """A stage has no ONNX submodel; the text is the reason."""


@dataclass(frozen=True)
class Subgraph:
    """The nodes between some tensors, by index, and the weights and inputs that they read.

    ``undefined`` are tensors that they read but no node makes.
    """

    nodes: frozenset[int]
    weights: tuple[str, ...]
    inputs: tuple[str, ...]
    undefined: tuple[str, ...]


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model with static input shapes, looked up by the names of tensors.

    ``shapes`` has the shapes of the fused graph's tensors, ``other_shapes`` the tensor shapes of
    each other variant, whose items the same nodes compute.
    """

    proto: Any
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    other_shapes: tuple[Mapping[str, Shape], ...] = ()

    def submodel(self, spec: StageSpec, name: str) -> Any:
        """The ONNX model of a stage. Raises NoSubmodel where ONNX has no tensor at its border."""
        for port in (*spec.inputs, *spec.outputs):
            if not self.has_tensor(port.name):
                raise NoSubmodel(f"tensor '{port.name}' is not in the ONNX graph")
        inputs = {port.name for port in spec.inputs}
        subgraph = self.subgraph([port.name for port in spec.outputs], inputs)
        if subgraph.undefined:
            raise NoSubmodel(
                f"it also depends on '{subgraph.undefined[0]}', which is not one of its inputs"
            )
        # All shapes are known, so a node that asks for one becomes a constant: the submodel
        # then needs no tensor only for its shape.
        answers = {i: self._shape_answer(i) for i in subgraph.nodes}
        nodes: list[Any] = []
        if any(len(set(shapes)) > 1 for shapes in answers.values()):
            nodes += self._variant_number(spec)
        for i in sorted(subgraph.nodes):
            node = self.proto.graph.node[i]
            nodes += _answer_nodes(node, answers[i]) if answers[i] else [node]
        graph = helper.make_graph(
            nodes,
            name,
            [self._value_info(p) for p in spec.inputs],
            [self._value_info(p) for p in spec.outputs],
        )
        graph.initializer.extend(self._weights[weight] for weight in subgraph.weights)
        return helper.make_model(
            graph,
            opset_imports=self.proto.opset_import,
            ir_version=max(self.proto.ir_version, 4),  # before, weights had to be inputs
            producer_name="autosplit",
        )

    def has_tensor(self, name: str) -> bool:
        """Whether the ONNX graph has a tensor of that name."""
        return name in self.producers or name in self._inputs or name in self._weights

    def subgraph(self, outputs: Sequence[str], inputs: Set[str]) -> Subgraph:
        """The nodes that compute ``outputs`` from ``inputs``."""
        nodes: set[int] = set()
        # Dictionaries keep the order in which tensors are met, so that submodels are reproducible.
        weights: dict[str, None] = {}
        inputs_read: dict[str, None] = {}
        undefined: dict[str, None] = {}
        visited: set[str] = set()
        stack = list(outputs)
        while stack:
            tensor = stack.pop()
            if tensor in visited:
                continue
            visited.add(tensor)
            if tensor in inputs:
                inputs_read[tensor] = None
            elif tensor in self._weights:
                weights[tensor] = None
            elif tensor in self.producers:
                node = self.producers[tensor]
                nodes.add(node)
                if not self._shape_answer(node):
                    stack.extend(tensors_read(self.proto.graph.node[node]))
            else:
                undefined[tensor] = None
        return Subgraph(frozenset(nodes), tuple(weights), tuple(inputs_read), tuple(undefined))

    @cached_property
    def producers(self) -> dict[str, int]:
        """The node that makes each tensor, by index."""
        return {t: i for i, node in enumerate(self.proto.graph.node) for t in node.output if t}

    def shapes_of(self, tensor: str) -> tuple[Shape, ...]:
        """The shape of a tensor for items of each variant; empty where one is not known."""
        if tensor in self._weights:
            return (tuple(self._weights[tensor].dims),) * (1 + len(self.other_shapes))
        shape = self.shapes.get(tensor) or self._inferred_shapes.get(tensor)
        shapes = [shape, *(shapes.get(tensor) for shapes in self.other_shapes)]
        known = [shape for shape in shapes if shape is not None]
        return tuple(known) if len(known) == len(shapes) else ()

    def _shape_answer(self, node: int) -> tuple[Shape, ...]:
        """The shape in each variant that a node asks for; empty for other nodes."""
        proto = self.proto.graph.node[node]
        return self.shapes_of(proto.input[0]) if asks_for_shape(proto) else ()

    def _variant_number(self, spec: StageSpec) -> list[Any]:
        """The nodes that compute the number of an item's variant from the shape of an input."""
        for port in spec.inputs:
            for axis, sizes in enumerate(zip(*self.shapes_of(port.name), strict=True)):
                if len(set(sizes)) == len(sizes):
                    return _variant_nodes(port.name, axis, sizes)
        raise NoSubmodel("its inputs have the same shapes in several variants")

    def _value_info(self, port: Port) -> Any:
        """The ONNX description of a port, with a symbol for a size that differs by variant."""
        try:
            element_type = helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
        except TypeError:  # numpy has no bfloat16 and no float8
            element_type = getattr(onnx.TensorProto, port.dtype.upper())
        sizes: list[int | str] = list(port.shape)
        if self.other_shapes:
            shapes = self.shapes_of(port.name)
            if not shapes:
                raise NoSubmodel(f"the shape of tensor '{port.name}' in a variant is not known")
            for axis, in_variants in enumerate(zip(*shapes, strict=True)):
                if len(set(in_variants)) > 1:
                    sizes[axis] = f"{port.name}/{axis}"
        return helper.make_tensor_value_info(port.name, element_type, sizes)

    @cached_property
    def _weights(self) -> dict[str, Any]:
        return {w.name: w for w in self.proto.graph.initializer}

    @cached_property
    def _inputs(self) -> set[str]:
        return {i.name for i in self.proto.graph.input}

    @cached_property
    def _inferred_shapes(self) -> dict[str, tuple[int, ...]]:
        return inferred_shapes(self.proto, self.shapes)


def read_original(source: StageSource) -> OnnxModel | None:
    """The ONNX model that a model was read from or exported as; None where there is none.

    Raises ModelError where other nodes compute the items of another variant, and for a file that
    is not the one that was loaded.
    """
    from autosplit.frontend import importing
    from autosplit.frontend.onnx import file as onnx_file

    if source.onnx_file is None and source.onnx_model is None:
        return None
    shapes = {name: tensor.shape for name, tensor in source.graph.tensors.items()}
    if source.onnx_file is None:
        return OnnxModel(source.onnx_model, shapes)
    importing.require_unchanged(source.onnx_file, source.sha256)
    proto = onnx_file.read(source.onnx_file, source.shapes, source.batch)
    others = []
    for name, variant in source.variants.items():
        other = read_original(variant)
        if other is None or list(other.proto.graph.node) != list(proto.graph.node):
            raise ModelError(
                f"variant '{name}' of '{source.graph.name}' is computed by other nodes; export the "
                "model without branches that depend on a shape"
            )
        others.append(inferred_shapes(other.proto, other.shapes) | dict(other.shapes))
    return OnnxModel(proto, shapes, tuple(others))


def _variant_nodes(name: str, axis: int, sizes: Sequence[int]) -> list[Any]:
    """The nodes that compute the variant's number from the size of ``axis``, one of ``sizes``."""
    shape, size, equal, flags = (
        f"{_VARIANT}/{part}" for part in ("shape", "size", "equal", "flags")
    )
    return [
        _constant(f"{_VARIANT}/axis", [axis]),
        _constant(f"{_VARIANT}/sizes", sizes),
        helper.make_node("Shape", [name], [shape]),
        helper.make_node("Gather", [shape, f"{_VARIANT}/axis"], [size]),
        helper.make_node("Equal", [size, f"{_VARIANT}/sizes"], [equal]),
        helper.make_node("Cast", [equal], [flags], to=1),  # float32
        helper.make_node("ArgMax", [flags], [_VARIANT], axis=0, keepdims=0),
    ]


def _answer_nodes(node: Any, shapes: Sequence[Shape]) -> list[Any]:
    """The nodes that replace a Shape or Size node, given its input's shape in each variant."""
    if len(set(shapes)) == 1:
        return [shape_constant(node, shapes[0])]
    (output,) = node.output
    table = f"{output}/variants"
    values = np.stack([shape_value(node, shape) for shape in shapes])
    return [
        _constant(table, values),
        helper.make_node("Gather", [table, _VARIANT], [output], axis=0),
    ]


def _constant(name: str, values: Any) -> Any:
    value = numpy_helper.from_array(np.asarray(values, np.int64))
    return helper.make_node("Constant", [], [name], value=value)
