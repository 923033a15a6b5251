"""Fused ops and the ONNX nodes that compute them; which ops no cut may part for want of a tensor in the ONNX graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset, contract, members
from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.execution.wiring import part
from autosplit.hardware.runtimes.onnxruntime.submodels import Whole


@dataclass(frozen=True)
class Cover:
    """Groups of ops, each computed by ONNX nodes of its own out of just the tensors it reads, in a topological order.

    Then so is every union of groups. ``nodes[g]`` are the nodes of ``groups[g]``, by index.
    """

    groups: tuple[tuple[int, ...], ...]
    nodes: tuple[frozenset[int], ...]

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """The groups of more than one op."""
        return tuple(g for g in self.groups if len(g) > 1)


def cover(whole: Whole, graph: FusedGraph, outputs: Iterable[tuple[str, str]]) -> Cover:
    """The finest cover; ``outputs`` pairs each model output with the tensor that holds it.

    A tensor that is not in the ONNX graph (one between the kernels of a node) joins its op with all that read it. An op
    whose nodes read what the op does not is joined with the op that makes it. Raises ConfigError where even the
    whole model cannot be computed so.
    """
    outputs = tuple(outputs)
    keep_together = [
        bitset([t.producer, *t.consumers])
        for t in graph.tensors.values()
        if t.producer is not None and t.consumers and not whole.holds(t.name)
    ]
    while True:
        groups = [tuple(members(g)) for g in contract(graph.predecessors, keep_together).groups]
        found = [_nodes(whole, graph, ops, outputs) for ops in groups]
        further = [
            bitset((*ops, *more)) for ops, (_, more) in zip(groups, found, strict=True) if more
        ]
        if not further:
            return Cover(tuple(groups), tuple(nodes for nodes, _ in found))
        keep_together += further


def _nodes(
    whole: Whole, graph: FusedGraph, ops: Sequence[int], outputs: tuple[tuple[str, str], ...]
) -> tuple[frozenset[int], tuple[int, ...]]:
    """The ONNX nodes of some ops, and the ops outside that make what those nodes read and the ops do not."""
    ports = part(graph, ops, outputs).stages[0]
    own = {t for i in ops for t in graph.ops[i].outputs}
    walk = whole.walk([p.name for p in ports.outputs], graph.tensors.keys() - own)
    if walk.missing:
        raise ConfigError(
            f"onnxruntime cannot run stages of '{graph.name}': tensor '{walk.missing[0]}' is not in the ONNX graph; "
            'use runtime = "tvm"'
        )
    reads = {p.name for p in ports.inputs}
    return walk.nodes, tuple(_maker(graph, t) for t in walk.met if t not in reads)


def _maker(graph: FusedGraph, tensor: str) -> int:
    """The op that makes a tensor; for a model input, which none makes, the first that reads it."""
    found = graph.tensors[tensor]
    makers = (found.producer,) if found.producer is not None else found.consumers
    if not makers:
        raise ConfigError(
            f"onnxruntime cannot run stages of '{graph.name}': its nodes read '{tensor}', which no fused op does; "
            'use runtime = "tvm"'
        )
    return makers[0]
