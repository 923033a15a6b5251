"""What a NodeProto reads, and the graphs inside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip


def inner_graphs(node: Any) -> Iterator[Any]:
    """The graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs_in(graph: Any) -> Iterator[Any]:
    """A graph, or a function, and the graphs inside it at any depth."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from graphs_in(inner)


def constants_of(nodes: Iterable[Any], weights: Iterable[Any] = ()) -> dict[str, Any]:
    """The weights and the tensors of Constant nodes, by name."""
    constants = {tensor.name: tensor for tensor in weights}
    for node in nodes:
        for attribute in node.attribute if node.op_type == "Constant" and node.output else ():
            if attribute.HasField("t"):
                constants[node.output[0]] = attribute.t
    return constants


def tensors_read(node: Any) -> list[str]:
    """The tensors that a node reads, with those that graphs inside it take from outside."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in inner_graphs(node):
        inner = {value.name for value in (*graph.input, *graph.initializer)}
        for child in graph.node:
            names.update(dict.fromkeys(t for t in tensors_read(child) if t not in inner))
            inner.update(child.output)
        names.update(dict.fromkeys(o.name for o in graph.output if o.name not in inner))
    return list(names)


def scopes_of(node: Any) -> list[str]:
    """What torch's exporter notes for a node: the modules that it lies in, then its own name.

    The note is a list of quoted names, the model's first and the node's last.
    """
    texts = [p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
    return re.findall("'([^']*)'", texts[0]) if texts and isinstance(texts[0], str) else []


def draws_at_random(node: Any) -> bool:
    """Whether a node, or one in a graph inside it, draws random numbers."""
    inner = (child for graph in inner_graphs(node) for child in graph.node)
    return node.op_type in _RANDOM or any(map(draws_at_random, inner))
