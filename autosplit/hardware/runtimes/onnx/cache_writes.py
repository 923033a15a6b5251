"""Direct writes of rows into a state, such as a key-value cache, so that it is not copied.

PyTorch exports a write along an axis as a transposition that brings the axis to the front,
ScatterND, and the inverse transposition: three copies of the whole state. ScatterElements writes
along any axis, and a runtime may give its result the memory of the state: then nothing is copied.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.extras import helper, numpy_helper
from autosplit.frontend.onnx.nodes import tensors_read
from autosplit.frontend.onnx.static_shapes import Shape

IN_PLACE = "autosplit.in_place"
"""The key of model metadata that lists pairs INPUT=OUTPUT which may share memory, one a line."""
_LARGE = 1 << 16  # elements; copying fewer takes less time than binding their memory


def with_direct_writes(model: Any, shapes_of: Callable[[str], Sequence[Shape]]) -> Any:
    """Replace such writes in ``model`` by ScatterElements, and list those in place as metadata.

    ``shapes_of`` gives the shape of a tensor for items of each variant; empty where unknown.
    """
    producers = {output: node for node in model.graph.node for output in node.output}
    readers = Counter(tensor for node in model.graph.node for tensor in tensors_read(node))
    outputs = {output.name for output in model.graph.output}
    sizes = {
        tensor.name: math.prod(d.dim_value for d in tensor.type.tensor_type.shape.dim)
        for tensor in model.graph.input
    }
    direct: dict[str, list[Any]] = {}  # the nodes that replace a node, by the node's output
    pairs: list[str] = []
    for node in model.graph.node:
        scatter, before = _written(node, producers)
        if scatter is None:
            continue
        if {shape[1:] for shape in shapes_of(scatter.input[1])} != {(1,)}:
            continue  # its indices are not a single list of row numbers
        between = (before.output[0], scatter.output[0])
        if not outputs.isdisjoint(between) or any(readers[tensor] > 1 for tensor in between):
            continue
        state, result = before.input[0], node.output[0]
        direct |= {tensor: [] for tensor in between}
        direct[result] = _direct(state, scatter, node)
        if readers[state] == 1 and sizes.get(state, 0) >= _LARGE and result in outputs:
            pairs.append(f"{state}={result}")
    nodes = [part for node in model.graph.node for part in direct.get(node.output[0], [node])]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    if pairs:
        helper.set_model_props(model, {IN_PLACE: "\n".join(pairs)})
    return model


def in_place(metadata: Mapping[str, str]) -> dict[str, str]:
    """Read ``IN_PLACE`` of a model's metadata: by input, the output that may use its memory."""
    return dict(line.split("=", 1) for line in metadata.get(IN_PLACE, "").splitlines())


def _written(node: Any, producers: Mapping[str, Any]) -> tuple[Any, Any]:
    """The ScatterND before the Transpose ``node``, and the Transpose before it; or None, None."""
    scatter = producers.get(node.input[0]) if node.op_type == "Transpose" else None
    if scatter is None or scatter.op_type != "ScatterND" or scatter.attribute:
        return None, None
    before = producers.get(scatter.input[0])
    if before is None or before.op_type != "Transpose" or scatter.input[0] in scatter.input[1:]:
        return None, None
    permutation, back = _permutation(before), _permutation(node)
    axis = permutation[0] if permutation else 0
    rest = [a for a in range(len(permutation)) if a != axis]
    if permutation != [axis, *rest] or [permutation[b] for b in back] != sorted(permutation):
        return None, None
    return scatter, before


def _permutation(transpose: Any) -> list[int]:
    return next((list(a.ints) for a in transpose.attribute if a.name == "perm"), [])


def _direct(state: str, scatter: Any, after: Any) -> list[Any]:
    """The nodes that write the updates of ``scatter`` directly into ``state``, for ``after``."""
    result, back = after.output[0], _permutation(after)
    axis = back.index(0)
    shape = np.array([-1 if a == axis else 1 for a in range(len(back))])
    names = [f"{result}/{part}" for part in ("shape", "rows", "places", "sizes", "indices")]
    constant, rows, places, sizes, indices = names
    value = numpy_helper.from_array(shape, constant)
    return [
        helper.make_node("Constant", [], [constant], value=value),
        helper.make_node("Transpose", [scatter.input[2]], [rows], perm=back),
        helper.make_node("Reshape", [scatter.input[1], constant], [places]),
        helper.make_node("Shape", [rows], [sizes]),
        helper.make_node("Expand", [places, sizes], [indices]),
        helper.make_node("ScatterElements", [state, indices, rows], [result], axis=axis),
    ]
