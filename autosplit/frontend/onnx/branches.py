"""Replaces each ``If`` whose condition is known without running the model by its branch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autosplit.extras import helper, numpy_helper
from autosplit.frontend.onnx.nodes import constants_of, inner_graphs
from autosplit.frontend.onnx.single_node import SMALL, known_results
from autosplit.frontend.onnx.static_shapes import inferred_shapes
from autosplit.frontend.source import unused

_MOST_PASSES = 100  # an If that more others decide, one after the other, stays


def take_known_branches(model: Any) -> None:
    """Replace every If of the graph whose condition follows from weights and shapes."""
    known: dict[str, Any] = {}  # results of nodes
    # What a branch computes may decide further Ifs, inside it and after it.
    for _ in range(_MOST_PASSES):
        has_if = any(node.op_type == "If" for node in model.graph.node)
        nodes = _resolved(model, known) if has_if else None
        if nodes is None:
            return
        del model.graph.node[:]
        model.graph.node.extend(nodes)


def _resolved(model: Any, known: dict[str, Any]) -> list[Any] | None:
    """The nodes of the graph with branches in place of Ifs; None where nothing is replaced.

    ``known`` has the results of nodes that read only constants, and gets further ones.
    """
    graph = model.graph
    shapes = inferred_shapes(model, {})
    weights = constants_of(graph.node, graph.initializer).items()
    small = {name: numpy_helper.to_array(t) for name, t in weights if math.prod(t.dims) <= SMALL}
    values = known | small
    names = {value.name for value in (*graph.input, *graph.initializer)}
    names.update(name for node in graph.node for name in node.output)
    nodes: list[Any] = []
    is_changed = False
    for node in graph.node:
        branch = _taken(node, values)
        if branch is not None:
            nodes += _nodes_of(node, branch, names)
            is_changed = True
            continue
        nodes.append(node)
        shape = shapes.get(node.input[0]) if node.input else None
        if known.keys().isdisjoint(node.output):
            results = known_results(model, node, values, shape)
            known |= results
            values |= results
    return nodes if is_changed else None


def _taken(node: Any, values: Mapping[str, Any]) -> Any:
    """The branch that an If with a known condition takes; None for other nodes."""
    if node.op_type != "If" or not node.output or not node.input or node.input[0] not in values:
        return None
    name = "then_branch" if values[node.input[0]].all() else "else_branch"
    return next((a.g for a in node.attribute if a.name == name and a.HasField("g")), None)


def _nodes_of(node: Any, branch: Any, names: set[str]) -> list[Any]:
    """The nodes of a branch of an If, with results named as those of the If.

    ``names`` are the tensors of the graph. Tensors of the branch get new names where they clash,
    and their names are added.
    """
    inner = [t for child in branch.node for t in child.output if t]
    # A result of the branch gets the name of the If's, unless the branch only passes it on.
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
