"""Names for the values of an exported ONNX graph: those of the nodes of the program.

The exporter decomposes the program first, so that the ONNX graph has values of nodes that the
program does not have. Each of them tells which node of the program it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autosplit.frontend.source import SourceNode, unused
from autosplit.frontend.torch.checks import is_wrapper, target_name, user

CALL = "call_function"


def calls(program: Any) -> dict[str, Any]:
    """The nodes that compute, by name."""
    return {node.name: node for node in program.graph.nodes if node.op == CALL}


def origins(decomposed: Any, program: Any) -> dict[str, str]:
    """For each node of a decomposed program, the node of the program that it came from."""
    graph_id = id(program.graph)
    return {name: _origin(node, graph_id) for name, node in calls(decomposed).items()}


def _origin(node: Any, graph_id: int) -> str:
    """The name in the graph of that id, which is one of those that the node went through."""
    sources = list(node.meta.get("from_node", ()))
    while sources:
        source = sources.pop()
        if source.graph_id == graph_id:
            return str(source.name)
        sources.extend(source.from_node)
    return str(node.name)


def name_as(flat: Any, program: Any) -> None:
    """Name the nodes of ``flat``, which is ``program`` without wrapping calls, as the program's.

    The last one made for a node of the program has its name. Those of a wrapping call, and others,
    keep names of their own, numbered where the program has the same.
    """
    plain = {name for name, node in calls(program).items() if not _is_of_wrapper(node)}
    origin_of = origins(flat, program)
    last = {origin: name for name, origin in origin_of.items() if origin in plain}
    used = plain | {n.name for n in (*program.graph.nodes, *flat.graph.nodes) if n.op != CALL}
    names = {
        name: origin if last.get(origin) == name else unused(name, used)
        for name, origin in origin_of.items()
    }
    for name, node in calls(flat).items():
        node.name = names[name]
        flat.graph._graph_namespace._rename_object(node, node.name)
    for spec in flat.graph_signature.output_specs:
        spec.arg.name = names.get(spec.arg.name, spec.arg.name)


def _is_of_wrapper(node: Any) -> bool:
    """Whether a node is a wrapping call, or takes an item out of its result."""
    return is_wrapper(node) or (_is_item(node) and is_wrapper(node.args[0]))


@dataclass(frozen=True)
class NamedGraph:
    """The names of an ONNX graph after those of a program.

    ``nodes`` are those of the program, with all values that were made for them. ``alias`` maps
    nodes that only pass a value on to its name. ``results`` maps values to torch's tensors without
    data.
    """

    nodes: tuple[SourceNode, ...]
    alias: dict[str, str]
    results: dict[str, Any]


def rename(graph: Any, program: Any, decomposed: Any) -> NamedGraph:
    """Name the values of an ONNX graph uniquely after the nodes of the program.

    The last value of a node has the name of the node, those before are called after it and
    themselves. Inputs and weights have the names of their placeholders.
    """
    new_calls, origin_of, nodes = calls(decomposed), origins(decomposed, program), calls(program)
    # The exporter renames a value that a later node only passes on.
    aliased = [(value.name, value) for value in graph.inputs if value.name in new_calls]
    # Each value with the node of the program that it is made for, and its decomposed node.
    values = []
    for node, maker in zip(graph, _makers(graph, new_calls), strict=True):
        node.metadata_props.clear()  # it holds paths of source files, and would be exported
        for value in node.outputs:
            call = new_calls.get(value.name)
            is_item = call is not None and _is_item(call)
            if call is not None and call.name != maker and not is_item:
                aliased.append((call.name, value))
            name = value.name if is_item else maker
            values.append((value, origin_of.get(name, name), call))
    used = _name_entries(graph, program)
    last = {origin: value for value, origin, call in values if call is not None}
    # The names of nodes are taken first.
    values.sort(key=lambda entry: last.get(entry[1]) is not entry[0])
    outputs: dict[str, list[str]] = {}
    results = {}
    for value, origin, call in values:
        is_last = last.get(origin) is value
        name = value.name = unused(origin if is_last else f"{origin}.{value.name}", used)
        owner = nodes.get(origin)
        # An item of a tuple belongs to the node that makes the tuple.
        maker = owner.args[0].name if owner is not None and _is_item(owner) else origin
        outputs.setdefault(maker, []).append(name)
        if call is not None:
            results[name] = call.meta.get("val")
    alias = {origin_of[name]: value.name for name, value in aliased if origin_of[name] not in last}
    return NamedGraph(
        tuple(_source_node(n, outputs) for n in nodes.values() if not _is_item(n)), alias, results
    )


def _makers(graph: Any, new_calls: Mapping[str, Any]) -> list[str]:
    """The decomposed node that each ONNX node was made for, by name.

    Only the result tells of a node that came with a function of ONNX, which was inlined.
    """
    makers = []
    maker = ""
    for node in reversed(graph):
        results = [value.name for value in node.outputs if value.name in new_calls]
        if "node" in node.meta:
            maker = node.meta["node"].name
        elif results:
            maker = results[0]
        makers.append(maker)
    return makers[::-1]


def _name_entries(graph: Any, program: Any) -> set[str]:
    """Name inputs and weights after their placeholders; returns these names."""
    for value, spec in zip(graph.inputs, user(program.graph_signature.input_specs), strict=True):
        value.name = spec.arg.name
    for value in list(graph.initializers.values()):
        value.name = value.metadata_props.get("pkg.torch.onnx.original_node_name", value.name)
    return {value.name for value in (*graph.inputs, *graph.initializers.values())}


def _source_node(node: Any, outputs: Mapping[str, list[str]]) -> SourceNode:
    inputs = tuple(i.name for i in node.all_input_nodes)
    tensors = tuple(dict.fromkeys((node.name, *outputs.get(node.name, ()))))
    modules = [str(module) for module, _ in node.meta.get("nn_module_stack", {}).values()]
    return SourceNode(node.name, str(node.target), inputs, tensors, tuple(filter(None, modules)))


def _is_item(node: Any) -> bool:
    return target_name(node.target) == "getitem"
