"""Builds ONNX models whose weights are drawn later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosplit.extras import helper
from autosplit.zoo.weights import Shape

_OPSET, _IR = 17, 8
FLOAT, INT64 = 1, 7  # onnx.TensorProto.FLOAT and INT64
Net = tuple[Any, dict[str, Shape]]  # a model without its weights, and the shape of each of them


class Builder:
    """Collects nodes between ``inputs`` and ``outputs``.

    Each method that adds a layer returns the name of its output, which starts with the layer's.
    """

    def __init__(self, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> None:
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self.nodes: list[Any] = []
        self.weights: dict[str, Shape] = {}
        self.constants: list[Any] = []

    def op(
        self, kind: str, name: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node; its only output has the node's name unless ``outputs`` says otherwise."""
        outputs = outputs or [name]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def weight(self, name: str, *shape: int) -> str:
        """Declare a float weight, to be drawn later."""
        self.weights[name] = shape
        return name

    def constant(self, name: str, kind: int, values: Sequence[float]) -> str:
        """Add a fixed vector, or a scalar where ``values`` holds one float."""
        dims = [] if kind == FLOAT else [len(values)]
        self.constants.append(helper.make_tensor(name, kind, dims, values))
        return name

    def model(self, name: str, last: str = "") -> Net:
        """Build the model; ``last``, if given, is a new name for the output of the last node."""

        def values(shapes: Mapping[str, Shape]) -> list[Any]:
            return [helper.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]

        if last:
            self.nodes[-1].output[0] = last
        ends = values(self.inputs), values(self.outputs)
        graph = helper.make_graph(self.nodes, name, *ends, initializer=self.constants)
        versions = {"ir_version": _IR, "opset_imports": [helper.make_opsetid("", _OPSET)]}
        model = helper.make_model(graph, producer_name="autosplit", **versions)
        return model, self.weights

    def conv(
        self, name: str, x: str, channels: tuple[int, int], size: int = 3, relu: bool = False
    ) -> str:
        """A convolution with bias that keeps height and width.

        ``channels`` are those of its input and output.
        """
        weight = self.weight(f"{name}.weight", channels[1], channels[0], size, size)
        bias = self.weight(f"{name}.bias", channels[1])
        x = self.op("Conv", name, x, weight, bias, kernel_shape=[size, size], pads=[size // 2] * 4)
        return self.op("Relu", f"{name}.relu", x) if relu else x

    def linear(self, name: str, x: str, width: tuple[int, int], bias: bool = True) -> str:
        """A matrix product over the last axis; ``width`` is that of its input and output."""
        x = self.op("MatMul", f"{name}.matmul", x, self.weight(f"{name}.weight", *width))
        return self.op("Add", name, x, self.weight(f"{name}.bias", width[1])) if bias else x

    def norm(self, name: str, x: str, width: int) -> str:
        """A layer normalisation over the last axis."""
        scale, bias = self.weight(f"{name}.scale", width), self.weight(f"{name}.bias", width)
        return self.op("LayerNormalization", name, x, scale, bias, axis=-1)

    def past(self, name: str, *shape: int) -> str:
        """Declare the input of a state; the output ``present_NAME`` will be its next value."""
        self.inputs[f"past_{name}"] = self.outputs[f"present_{name}"] = shape
        return f"past_{name}"

    def remember(self, name: str, x: str, shape: Shape, axis: int, new: int) -> str:
        """Concatenate a state and ``x`` along an axis; the end of the result is the next state.

        ``shape`` is that of the state, ``new`` the size of ``x`` along the axis.
        """
        joined = self.op("Concat", f"{name}.joined", self.past(name, *shape), x, axis=axis)
        bounds = [
            self.constant(f"{name}.start", INT64, [new]),
            # Larger than any size: ONNX clamps it to the end of the axis.
            self.constant(f"{name}.end", INT64, [2**31]),
            self.constant(f"{name}.axis", INT64, [axis]),
        ]
        self.op("Slice", f"{name}.last", joined, *bounds, outputs=[f"present_{name}"])
        return joined

    def attention(self, name: str, query: str, key: str, value: str, width: int) -> str:
        """Attention with the constant ``scale``, and a linear layer."""
        key = self.op("Transpose", f"{name}.key.turned", key, perm=[0, 2, 1])
        scores = self.op("MatMul", f"{name}.scores", query, key)
        scaled = self.op("Mul", f"{name}.scaled", scores, "scale")
        weights = self.op("Softmax", f"{name}.weights", scaled, axis=-1)
        mixed = self.op("MatMul", f"{name}.mixed", weights, value)
        return self.linear(f"{name}.out", mixed, (width, width))
