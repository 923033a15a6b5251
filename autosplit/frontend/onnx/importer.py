"""Converts ONNX to Relax and keeps the name of each source tensor on the variable that holds it.

TVM's importer sets no spans, but it enters every converted value in a name table. The table used
here emits each value under a name of ours, which stays on the binding (see ``source.mark``).
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from autosplit.errors import AutosplitError, ModelError, explained, line_of
from autosplit.extras import onnx, relax
from autosplit.frontend.onnx import normalize, opaque
from autosplit.frontend.onnx.limits import Limits
from autosplit.frontend.onnx.nodes import draws_at_random, scopes_of, tensors_read
from autosplit.frontend.onnx.shapes import element_type, inputs
from autosplit.frontend.onnx.single_node import SMALL, Array, constant, known_results, result_shapes
from autosplit.frontend.onnx.static_shapes import asks_for_shape
from autosplit.frontend.relax.expressions import fixed_sizes, is_constant, shape_of
from autosplit.frontend.source import SourceModel, SourceNode, mark, unused

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_DOMAINS = {"", "ai.onnx", "com.microsoft"}


def convert(model: Any, name: str, nodes: tuple[SourceNode, ...] | None = None) -> SourceModel:
    """Import a ModelProto with static input shapes; ``nodes`` are its nodes as messages name them.

    A node that TVM's importer cannot convert becomes an opaque op. Raises ModelError for a node
    that onnxruntime refuses too, and for a graph that is not valid.
    """
    nodes = nodes or source_nodes(model.graph)
    _check_order(model.graph, nodes)
    importer, module = _import(model, nodes)
    table = importer.table
    results = (t for node in nodes for t in node.outputs if t in table)
    _check_types(model.graph, {t: table[t] for t in results})
    return SourceModel(
        name=name,
        module=module,
        nodes=nodes,
        tensors=tuple(table.tensors),
        alias=dict(table.alias),
        constants=frozenset(table.constants),
        inputs=inputs(model),
        outputs=tuple(o.name for o in model.graph.output),
        opaque=importer.opaque,
    )


def source_nodes(graph: Any) -> tuple[SourceNode, ...]:
    """The nodes of a GraphProto under unique names; unnamed ones are named after an output."""
    outputs = [[o for o in node.output if o] for node in graph.node]
    first_outputs = [names[0] if names else f"node{i}" for i, names in enumerate(outputs)]
    names = [node.name or o for node, o in zip(graph.node, first_outputs, strict=True)]
    count = Counter(names)
    used = {name for name in names if count[name] == 1}
    for i, name in enumerate(names):
        if count[name] > 1:
            names[i] = unused(f"{name}:{first_outputs[i]}", used, ":")
    nodes = []
    for node, name, results in zip(graph.node, names, outputs, strict=True):
        modules = tuple(filter(None, scopes_of(node)[:-1]))
        read = tuple(tensors_read(node))
        nodes.append(SourceNode(name, node.op_type, read, tuple(results), modules))
    return tuple(nodes)


def _check_order(graph: Any, nodes: tuple[SourceNode, ...]) -> None:
    """Raise ModelError unless every tensor is made once, and before it is read."""
    weights = [w.name for w in graph.initializer]
    filled = set(weights)
    # Files of the first IR versions list their weights among the inputs too.
    entries = [*weights, *(i.name for i in graph.input if i.name not in filled)]
    known = set(entries)
    if len(known) < len(entries):
        repeated, _ = Counter(entries).most_common(1)[0]
        raise ModelError(f"tensor '{repeated}' appears twice among inputs and weights; rename one")
    for node in nodes:
        for tensor in node.inputs:
            if tensor not in known:
                raise ModelError(
                    f"node '{node.name}' reads '{tensor}', which no earlier node makes; "
                    "export the model again"
                )
        for tensor in node.outputs:
            if tensor in known:
                raise ModelError(
                    f"node '{node.name}' makes '{tensor}', which exists already; rename one"
                )
            known.add(tensor)
    for output in graph.output:
        if output.name not in known:
            raise ModelError(
                f"no node makes output '{output.name}'; remove it from the graph's outputs"
            )


def _check_types(graph: Any, values: Mapping[str, Any]) -> None:
    """Raise ModelError if a result's type differs from the declared one, as onnxruntime does."""
    for info in (*graph.value_info, *graph.output):
        value, kind = values.get(info.name), info.type.WhichOneof("value")
        if value is None or kind is None or not isinstance(value.ty, relax.TensorType):
            continue
        dtype = str(value.ty.dtype)
        declared = element_type(info) if kind == "tensor_type" else kind
        if declared != dtype:
            raise ModelError(
                f"tensor '{info.name}' is declared as {declared}, but its node makes {dtype}; "
                "correct the declaration"
            )


def _import(model: Any, nodes: tuple[SourceNode, ...]) -> tuple[Any, Any]:
    """Run TVM's importer; return it and the module."""
    opsets = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    importer, graph = _importer(model, nodes), model.graph
    # The nodes are left out, because the importer's subclass converts them one by one.
    without_nodes = SimpleNamespace(
        node=(), initializer=graph.initializer, input=graph.input, output=graph.output
    )
    # The importer prints to standard output, where only results belong.
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importer.from_onnx(without_nodes, opsets[0] if opsets else 1)
    except Exception as error:
        with contextlib.suppress(Exception):
            # An open block makes the builder print a warning when it is destroyed.
            importer.bb._end_block()
        if isinstance(error, AutosplitError):
            raise
        node = nodes[min(importer.position, len(nodes) - 1)]
        raise ModelError(
            f"node '{node.name}' ({node.kind}) cannot be imported: {_reason(error)}"
        ) from error
    return importer, module


def _reason(error: Exception) -> str:
    """The first line of an error, without the dump of the operator before TVM's sentence."""
    return re.sub(r"In ir\.Op\(.*\), (?=the )", "", line_of(error))


def _importer(model: Any, nodes: tuple[SourceNode, ...]) -> Any:
    """TVM's importer with our name table, in which nodes that it cannot convert become opaque."""
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

    class Importer(_NodeByNode, ONNXGraphImporter):  # type: ignore[misc]
        """TVM's importer, a class that exists only once TVM is imported."""

    return Importer(model, nodes, frozenset({*_get_convert_map(), "Constant"}) - _CONTROL_FLOW)


class _NodeByNode:
    """Overrides methods of TVM's importer; ``kinds`` are the ops that TVM can convert."""

    bb: Any  # TVM's block builder

    def __init__(self, model: Any, nodes: tuple[SourceNode, ...], kinds: frozenset[str]) -> None:
        # The importer takes a size of 0 for an unknown one.
        shapes = {signature.name: list(signature.shape) for signature in inputs(model)}
        super().__init__(shapes, {}, sanitize=True)  # type: ignore[call-arg]
        self.position = 0  # of the node that is converted
        self.opaque: dict[str, str] = {}
        self._nodes = self.table = NameTable()
        self._model, self._source_nodes, self._kinds = model, nodes, kinds
        self._read = {tensor for node in nodes for tensor in node.inputs}
        self._read |= {output.name for output in model.graph.output}
        self._varying = set(shapes)  # the tensors whose values depend on the inputs
        self._limits = Limits(model)

    def _parse_array(self, tensor: Any) -> Any:
        """The value of a weight. Raises ModelError for a type that TVM does not have."""
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        with explained(ModelError, f"weight '{tensor.name}' is {kind}, which cannot be imported"):
            return super()._parse_array(tensor)  # type: ignore[misc]

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Do nothing: unsupported ops become opaque."""

    def _construct_nodes(self, graph: Any) -> None:
        self.table.builder = self.bb
        for position, proto in enumerate(self._model.graph.node):
            self.position = position
            node = self._source_nodes[position]
            if draws_at_random(proto):
                raise ModelError(
                    f"node '{node.name}' ({node.kind}) draws random numbers, so no split can be "
                    "compared with the model; make them an input of the model"
                )
            # All shapes are known, so a node that asks for a shape is constant.
            of_constants = asks_for_shape(proto) or self._varying.isdisjoint(node.inputs)
            if not of_constants:
                self._varying.update(node.outputs)
            values = self._values()
            arrays = _small_arrays(values) if of_constants else {}
            shapes = result_shapes(self._model, proto, values, arrays) if of_constants else None
            self._limits.check_node(proto, values, shapes)
            if of_constants and self._compute(proto, values, arrays):
                continue
            # In a block of its own, since a conversion that fails leaves bindings behind.
            self.bb._begin_dataflow_block()
            try:
                reason = self._construct_node(proto)
            except AutosplitError:
                raise
            except Exception as error:  # TVM raises errors of many kinds
                reason = _reason(error)
            finally:
                bindings = self.bb._end_block().bindings
            reason = reason or self._open_size(proto, bindings)
            if reason:
                self._construct_opaque(proto, reason)
                continue
            results = (binding.var for binding in bindings)
            self._limits.check_results(proto, values, results, of_constants=of_constants)
            for binding in bindings:
                self.bb.emit_normalized(binding)

    def _compute(self, proto: Any, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> bool:
        """Store the results of a node of constants; return False if they are not known or small."""
        first = values.get(proto.input[0]) if proto.input else None
        sizes = None if first is None else fixed_sizes(first.ty)
        shape = None if sizes is None else tuple(sizes)
        results = known_results(self._model, proto, arrays, shape)
        for name, array in results.items():
            self.table[name] = constant(array)
        return bool(results)

    def _construct_node(self, proto: Any) -> str:
        """Convert a node; returns why TVM cannot, empty where it can."""
        if proto.op_type not in self._kinds or proto.domain not in _DOMAINS:
            return f"TVM's importer has no {f'{proto.domain}.{proto.op_type}'.lstrip('.')}"
        super()._construct_nodes(SimpleNamespace(node=[proto]))  # type: ignore[misc]
        return ""

    def _open_size(self, proto: Any, bindings: Any) -> str:
        """Why TVM cannot compute a node whose sizes depend on input values; empty if it can."""
        steering = proto.input[1:] or proto.input
        if self._varying.isdisjoint(steering) and not self._varying.isdisjoint(proto.input):
            return ""
        read = [self.table[name] for name in proto.input if name]
        results = [self.table[name] for name in proto.output if name]
        results += [binding.var for binding in bindings]
        if all(map(_is_static, read)) and not all(map(_is_static, results)):
            return "TVM does not know the size of its result"
        return ""

    def _values(self) -> dict[str, Any]:
        """The expressions of the tensors that the node reads, by name."""
        return {name: self.table[name] for name in self._source_nodes[self.position].inputs}

    def _construct_opaque(self, proto: Any, reason: str) -> None:
        node = self._source_nodes[self.position]
        values = self._values()
        try:
            results = opaque.results(
                self._model, proto, values, node.unknown_size, self.bb, self._limits
            )
        except ValueError as error:
            raise ModelError(
                f"node '{node.name}' ({node.kind}) cannot be imported: {reason}; {error}"
            ) from error
        self._limits.check_results(proto, values, results.values(), of_constants=False)
        self.opaque[node.name] = reason
        for name, value in results.items():
            self.table[name] = value

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        node, proto = self._source_nodes[self.position], self._model.graph.node[self.position]
        if op_name == "Dropout" and _trains(inputs, attrs):
            raise ModelError(
                f"node '{node.name}' (Dropout) cannot be imported: it drops values at random, "
                "as in training; export the model for inference"
            )
        convert = super()._convert_operator  # type: ignore[misc]
        return normalize.converted(convert, proto, inputs, attrs, opset, self._read)


def _small_arrays(values: Mapping[str, Any]) -> dict[str, Array]:
    """The small constants among expressions."""
    return {
        name: value.value.numpy()
        for name, value in values.items()
        if is_constant(value) and math.prod(shape_of(value)) <= SMALL
    }


def _is_static(value: Any) -> bool:
    """Whether all sizes of a tensor are known; other values have no sizes."""
    return not isinstance(value.ty, relax.TensorType) or fixed_sizes(value.ty) is not None


def _trains(inputs: Any, attrs: Any) -> bool:
    """Whether a dropout drops values: an attribute in old opsets, the third input in new ones."""
    mode = inputs[2] if len(inputs) > 2 else None
    if mode is None:
        return bool(attrs.get("is_test", 1) == 0)
    is_false = is_constant(mode) and not mode.value.numpy().any()
    return attrs.get("is_test", 1) == 0 or not is_false


class NameTable(dict[str, Any]):
    """Maps source tensors to Relax expressions; emits each value under the mark of its tensor.

    ``tensors`` are the marked tensors in order; see SourceModel for ``alias`` and ``constants``.
    Nothing is emitted before ``builder`` is set: until then the table takes inputs and weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.builder: Any = None
        self.tensors: list[str] = []
        self.alias: dict[str, str] = {}
        self.constants: set[str] = set()
        self._tensor_of: dict[str, str] = {}  # by the name of the Relax variable

    def __setitem__(self, tensor: str, value: Any) -> None:
        super().__setitem__(tensor, self._marked(tensor, value) if self.builder else value)
        if not self.builder and isinstance(value, relax.Var):
            self._tensor_of[value.name] = tensor

    def _marked(self, tensor: str, value: Any) -> Any:
        # Drop what a failed conversion has recorded of the tensor.
        self.alias.pop(tensor, None)
        self.constants.discard(tensor)
        if isinstance(value, relax.Var) and value.name in self._tensor_of:
            self.alias[tensor] = self._tensor_of[value.name]
            return value
        # TVM joins constant shapes number by number, which is slow for long ones.
        sizes = fixed_sizes(value) if isinstance(value, relax.ShapeExpr) else None
        if sizes is not None:
            value = constant(np.array(sizes, np.int64))
        if isinstance(value, relax.Tuple):
            return value  # a sequence, whose items have no names
        if not isinstance(value, relax.Call | relax.TupleGetItem | relax.Var):
            self.constants.add(tensor)
            return value
        value = self.builder.emit(value, name_hint=mark(len(self.tensors)))
        self.tensors.append(tensor)
        self._tensor_of[value.name] = tensor
        return value
