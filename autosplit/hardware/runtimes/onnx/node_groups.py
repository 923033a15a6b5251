"""Fused ops and the ONNX nodes that compute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosplit.cuts import bitset, contract, members
from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.execution.wiring import part
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel


@dataclass(frozen=True)
class NodeGroups:
    """Groups of ops in a topological order: any union of groups has an ONNX submodel.

    ``nodes[g]`` are the ONNX nodes, by index, that compute the ops of ``ops[g]``.
    """

    ops: tuple[tuple[int, ...], ...]
    nodes: tuple[frozenset[int], ...]

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """The groups of more than one op."""
        return tuple(group for group in self.ops if len(group) > 1)


def group_ops(
    original: OnnxModel,
    graph: FusedGraph,
    outputs: Iterable[tuple[str, str]],
    runtime: str,
    further_groups: Iterable[Sequence[int]] = (),
) -> NodeGroups:
    """The smallest groups; ``outputs`` pairs each model output with the tensor that holds it.

    The ops of each of ``further_groups`` stay together too.

    Raises ConfigError, naming ``runtime``, where even the whole model is no group.
    """
    outputs = tuple(outputs)
    # A tensor that ONNX does not have (between two kernels of one node) joins its op with all
    # that read it.
    keep_together = [
        bitset([tensor.producer, *tensor.consumers])
        for tensor in graph.tensors.values()
        if tensor.producer is not None and tensor.consumers and not original.has_tensor(tensor.name)
    ]
    keep_together += map(bitset, further_groups)
    while True:
        groups = [tuple(members(g)) for g in contract(graph.predecessors, keep_together).groups]
        nodes = []
        complete = True
        for ops in groups:
            group_nodes, further_ops = _nodes(original, graph, ops, outputs, runtime)
            nodes.append(group_nodes)
            # An op whose nodes read what the op does not is joined with the op that makes it.
            if further_ops:
                keep_together.append(bitset([*ops, *further_ops]))
                complete = False
        if complete:
            return NodeGroups(tuple(groups), tuple(nodes))


def _nodes(
    original: OnnxModel,
    graph: FusedGraph,
    ops: Sequence[int],
    outputs: tuple[tuple[str, str], ...],
    runtime: str,
) -> tuple[frozenset[int], list[int]]:
    """The ONNX nodes of some ops, and the ops outside that make what only those nodes read."""
    ports = part(graph, ops, outputs).stages[0]
    made_inside = {tensor for i in ops for tensor in graph.ops[i].outputs}
    subgraph = original.subgraph(
        [port.name for port in ports.outputs], graph.tensors.keys() - made_inside
    )
    refusal = f"{runtime} cannot run stages of '{graph.name}'"
    if subgraph.undefined:
        raise ConfigError(
            f"{refusal}: tensor '{subgraph.undefined[0]}' is not in the ONNX graph; "
            'use runtime = "tvm"'
        )
    inputs = {port.name for port in ports.inputs}
    further_ops = []
    for name in subgraph.inputs:
        if name in inputs:
            continue
        tensor = graph.tensors[name]
        # No op makes an input of the model; the first op that reads it stands for it.
        ops_of_tensor = tensor.consumers if tensor.producer is None else (tensor.producer,)
        if not ops_of_tensor:
            raise ConfigError(
                f"{refusal}: its nodes read '{name}', which no fused op does; use runtime = \"tvm\""
            )
        further_ops.append(ops_of_tensor[0])
    return subgraph.nodes, further_ops
