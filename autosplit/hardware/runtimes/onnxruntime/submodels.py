"""Parts of an ONNX model as models of their own: the nodes between the tensors a part reads and those it makes.

A part is described by tensors of the fused graph. Where those exist in the ONNX graph, walking from the made ones back to
the read ones gives the nodes; shapes met on the way are constants, since all shapes are static.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.files import refused, replace
from autosplit.hardware.execution.wiring import Port, StagePorts

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel

EXTERNAL = (
    1 << 30
)  # bytes of weights from which on they lie in a file beside the model; a protobuf holds at most 2 GB
_SHAPES = ("Shape", "Size")


class Absent(Exception):
    """A part has no ONNX submodel; the text says why."""


@dataclass(frozen=True)
class Walk:
    """What lies between some tensors: nodes by index, weights read, given tensors met, and tensors that nothing makes."""

    nodes: frozenset[int]
    weights: tuple[str, ...]
    met: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Whole:
    """An ONNX model with static input shapes, looked up by tensor name. ``shapes`` are those of the fused graph's tensors."""

    model: Any
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def part(self, ports: StagePorts, name: str) -> Any:
        """The submodel that computes a part's outputs from its inputs. Raises Absent where the boundary is not there."""
        from onnx import helper

        self._require([*ports.inputs, *ports.outputs])
        found = self.walk([p.name for p in ports.outputs], {p.name for p in ports.inputs})
        if found.missing:
            raise Absent(f"it also depends on '{found.missing[0]}', which it does not read")
        nodes, weights = found.nodes, found.weights
        graph = helper.make_graph(
            [self._constant(i) or self.model.graph.node[i] for i in sorted(nodes)],
            name,
            [_value(p) for p in ports.inputs],
            [_value(p) for p in ports.outputs],
        )
        graph.initializer.extend(self._weights[w] for w in weights if w in self._weights)
        graph.sparse_initializer.extend(self._sparse[w] for w in weights if w in self._sparse)
        return helper.make_model(
            graph,
            opset_imports=self.model.opset_import,
            ir_version=self.model.ir_version,
            producer_name="autosplit",
        )

    def _require(self, ports: Sequence[Port]) -> None:
        for port in ports:
            if not self.holds(port.name):
                raise Absent(f"tensor '{port.name}' is not in the ONNX graph")

    def holds(self, tensor: str) -> bool:
        """Whether the ONNX graph has a tensor of that name."""
        return tensor in self.makers or tensor in self._inputs or tensor in self._weights

    def walk(self, wanted: Sequence[str], given: Set[str]) -> Walk:
        """The nodes that make ``wanted`` out of ``given``, met on the way back."""
        nodes: set[int] = set()
        weights, met, missing = dict[str, None](), dict[str, None](), dict[str, None]()
        seen: set[str] = set()
        stack = list(wanted)
        while stack:
            tensor = stack.pop()
            if tensor in seen or not tensor:
                continue
            seen.add(tensor)
            if tensor in given:
                met[tensor] = None
            elif tensor in self._weights or tensor in self._sparse:
                weights[tensor] = None
            elif tensor in self.makers:
                nodes.add(self.makers[tensor])
                if self._constant(self.makers[tensor]) is None:
                    stack.extend(self.model.graph.node[self.makers[tensor]].input)
            else:
                missing[tensor] = None
        return Walk(frozenset(nodes), tuple(weights), tuple(met), tuple(missing))

    def _constant(self, node: int) -> Any:
        """What a node that only asks for a shape comes to, as a Constant node; None for every other node."""
        proto = self.model.graph.node[node]
        return _answered(proto, self._shape(proto.input[0])) if _asks(proto) else None

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        if tensor in self._weights:
            return tuple(self._weights[tensor].dims)
        return self.shapes.get(tensor) or self._inferred.get(tensor)

    @cached_property
    def makers(self) -> dict[str, int]:
        """The node that makes each tensor, by index."""
        return {t: i for i, node in enumerate(self.model.graph.node) for t in node.output if t}

    @cached_property
    def _weights(self) -> dict[str, Any]:
        return {w.name: w for w in self.model.graph.initializer}

    @cached_property
    def _sparse(self) -> dict[str, Any]:
        return {w.values.name: w for w in self.model.graph.sparse_initializer}

    @cached_property
    def _inputs(self) -> set[str]:
        return {i.name for i in self.model.graph.input}

    @cached_property
    def _inferred(self) -> dict[str, tuple[int, ...]]:
        """Static shapes that ONNX infers, and infers again with the answers to nodes that ask for those found.

        Large weights are left out, a protobuf of them could be too large.
        """
        light = _without_weights(self.model)
        found: dict[str, tuple[int, ...]] = {}
        while (further := _infer(light)).keys() - found.keys():
            found = further
            for node in filter(_asks, light.graph.node):
                if answer := _answered(
                    node, self.shapes.get(node.input[0]) or found.get(node.input[0])
                ):
                    node.CopyFrom(answer)
        return found


def _asks(node: Any) -> bool:
    return node.op_type in _SHAPES and node.domain in ("", "ai.onnx")


def _answered(node: Any, shape: tuple[int, ...] | None) -> Any:
    """A node that asks for a shape as the Constant it comes to; None where the shape is not known."""
    import numpy as np
    from onnx import helper, numpy_helper

    if shape is None:
        return None
    bounds = {a.name: a.i for a in node.attribute}
    value = np.array(shape[slice(bounds.get("start"), bounds.get("end"))], np.int64)
    value = value if node.op_type == "Shape" else np.array(int(np.prod(shape)), np.int64)
    return helper.make_node("Constant", [], node.output, value=numpy_helper.from_array(value))


def _infer(model: Any) -> dict[str, tuple[int, ...]]:
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # inference is a help, the caller finds the dependency instead
        return {}
    found = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            found[value.name] = tuple(d.dim_value for d in dims)
    return found


def whole(model: CompiledModel) -> Whole | None:
    """The ONNX model that ``model`` was read from, None where it was read from something else."""
    from autosplit.frontend.onnx import file as onnx_file
    from autosplit.hardware.measurement.reference import OnnxRuntime

    if not isinstance(model.judge, OnnxRuntime):
        return None
    shapes = {name: tensor.shape for name, tensor in model.graph.tensors.items()}
    return Whole(onnx_file.read(model.judge.path, model.shapes), shapes)


def write(model: Any, file: Path) -> Path | None:
    """Write an ONNX model; large weights go beside it, into the file that is returned.

    Raises MachineError where the disk refuses.
    """
    import onnx

    data = file.with_name(file.name + ".data") if weight_bytes(model) >= EXTERNAL else None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".onnx-") as folder:
            beside = Path(folder) / file.name
            if data:
                onnx.save_model(
                    model,
                    str(beside),
                    save_as_external_data=True,
                    location=data.name,
                    size_threshold=1024,
                )
                replace(Path(folder) / data.name, data)
            else:
                onnx.save_model(model, str(beside))
            replace(beside, file)
    except OSError as error:
        raise refused(file, error) from error
    return data


def weight_bytes(model: Any) -> int:
    """The bytes of a model's initialisers."""
    return sum(len(w.raw_data) or w.ByteSize() for w in model.graph.initializer)


def _value(port: Port) -> Any:
    import numpy as np
    from onnx import TensorProto, helper

    try:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
    except TypeError:  # numpy has no bfloat16 and no float8
        kind = getattr(TensorProto, port.dtype.upper())
    return helper.make_tensor_value_info(port.name, kind, port.shape)


def _without_weights(model: Any) -> Any:
    """The model with weights of some size as inputs of their shape."""
    import onnx
    from onnx import helper

    light = onnx.ModelProto()
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    light.graph.input.extend(model.graph.input)
    known = {i.name for i in model.graph.input}
    for weight in model.graph.initializer:
        if weight.data_type == onnx.TensorProto.INT64 or len(weight.dims) == 0:
            light.graph.initializer.append(weight)
        elif weight.name not in known:
            light.graph.input.append(
                helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
            )
    return light
