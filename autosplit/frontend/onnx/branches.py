"""An ``If`` whose condition is known without running the model: its branch takes its place."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from autosplit.extras import helper, numpy_helper
from autosplit.frontend.onnx.nodes import inner_graphs
from autosplit.frontend.onnx.single_node import SMALL, computed
from autosplit.frontend.onnx.static_shapes import Shape, inferred_shapes, shape_value
from autosplit.frontend.source import unused


def take_known_branches(model: Any) -> None:
    """Replace every If of the graph whose condition follows from weights and shapes."""
    # A resolved If may give the shape that the next condition asks for.
    while any(node.op_type == "If" for node in model.graph.node):
        nodes = _resolved(model)
        if nodes is None:
            return
        del model.graph.node[:]
        model.graph.node.extend(nodes)


def _resolved(model: Any) -> list[Any] | None:
    """The nodes of the graph with branches in place of Ifs; None where nothing is replaced."""
    graph = model.graph
    shapes = inferred_shapes(model, {})
    values = {w.name: numpy_helper.to_array(w) for w in graph.initializer if _is_small(w)}
    names = {value.name for value in (*graph.input, *graph.initializer)}
    names.update(name for node in graph.node for name in node.output)
    queue, nodes = deque(graph.node), []
    is_changed = False
    while queue:
        node = queue.popleft()
        branch = _taken(node, values)
        if branch is not None:
            queue.extendleft(reversed(_nodes_of(node, branch, names)))
            is_changed = True
            continue
        nodes.append(node)
        values.update(_values(model, node, values, shapes))
    return nodes if is_changed else None


def _values(
    model: Any, node: Any, values: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> dict[str, Any]:
    """The results of a node by name where they are known and small."""
    if not node.output:
        return {}
    if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
        tensor = node.attribute[0].t
        return {node.output[0]: numpy_helper.to_array(tensor)} if _is_small(tensor) else {}
    if node.input and node.input[0] in shapes:
        value = shape_value(node, shapes[node.input[0]])
        if value is not None:
            return {node.output[0]: value}
    read = {name: values[name] for name in node.input if name in values}
    if len(read) < len({name for name in node.input if name}):
        return {}
    return computed(model, node, read) or {}


def _taken(node: Any, values: Mapping[str, Any]) -> Any:
    """The branch that an If of a known condition takes; None for other nodes."""
    if node.op_type != "If" or not node.output or not node.input or node.input[0] not in values:
        return None
    name = "then_branch" if values[node.input[0]].all() else "else_branch"
    return next((a.g for a in node.attribute if a.name == name and a.HasField("g")), None)


def _nodes_of(node: Any, branch: Any, names: set[str]) -> list[Any]:
    """The nodes of a branch of an If, whose results are those of the If.

    ``names`` are the tensors of the graph; those inside the branch are renamed where they clash,
    and added.
    """
    inner = [t for child in branch.node for t in child.output if t]
    # A result has the name of the If's, unless it only passes another tensor on.
    results = {t.name: o for o, t in zip(node.output, branch.output, strict=False) if o}
    renamed = {tensor: results[tensor] for tensor in inner if tensor in results}
    for tensor in (*inner, *(w.name for w in branch.initializer)):
        if tensor not in renamed:
            renamed[tensor] = unused(tensor, names)
    nodes = []
    for weight in branch.initializer:
        nodes.append(helper.make_node("Constant", [], [renamed[weight.name]], value=weight))
    for child in branch.node:
        copy = type(child)()
        copy.CopyFrom(child)
        _rename(copy, renamed)
        nodes.append(copy)
    for output, tensor in zip(node.output, branch.output, strict=False):
        source = renamed.get(tensor.name, tensor.name)
        if output and source != output:
            nodes.append(helper.make_node("Identity", [source], [output]))
    return nodes


def _rename(node: Any, names: Mapping[str, str]) -> None:
    """Rename tensors that a node reads and makes, in graphs inside it too."""
    for tensors in (node.input, node.output):
        for i, name in enumerate(tensors):
            tensors[i] = names.get(name, name)
    for graph in inner_graphs(node):
        for child in graph.node:
            _rename(child, names)
        for output in graph.output:
            output.name = names.get(output.name, output.name)


def _is_small(tensor: Any) -> bool:
    return bool(math.prod(tensor.dims) <= SMALL)
