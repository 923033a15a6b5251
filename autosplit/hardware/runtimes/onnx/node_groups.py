"""Fused ops and the ONNX nodes that compute them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autosplit.cuts import bitset, contract, members
from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.execution.wiring import part
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel

# Groups of ops in a topological order, each with the ONNX nodes, by index, that compute it. Any
# union of groups has an ONNX submodel.
NodeGroups = Mapping[tuple[int, ...], frozenset[int]]


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
        groups: dict[tuple[int, ...], frozenset[int]] = {}
        count = len(keep_together)
        for group in contract(graph.predecessors, keep_together).groups:
            ops = tuple(members(group))
            groups[ops], further_ops = _nodes(original, graph, ops, outputs, runtime)
            # An op whose nodes read what the op does not is joined with the op that makes it.
            if further_ops:
                keep_together.append(bitset([*ops, *further_ops]))
        if len(keep_together) == count:
            return groups


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
