"""The ONNX nodes that compute each fused op, and op times from the times of executed nodes.

A runtime fuses, renames and adds nodes, but reports which tensors of the original model each of its
nodes makes. So a node computes the original nodes between the tensors that other nodes make and its
own ones, and its time goes to the ops of these original nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autosplit.cuts import bitset, contract, members
from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import part
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel

# Low quantile of samples: clocks run on while another process has the core, mostly in long ops.
LEAST_DISTURBED = 0.1

# Groups of ops in a topological order, each with the ONNX nodes, by index, that compute it. Any
# union of groups has an ONNX submodel.
NodeGroups = Mapping[tuple[int, ...], frozenset[int]]
Samples = Mapping[str, Sequence[float]]  # the milliseconds of each node, by round
# The tensors of the original model that each executed node makes, by the node's name, in order.
ExecutedNodes = Mapping[str, Sequence[str]]


def group_ops(
    original: OnnxModel,
    graph: FusedGraph,
    outputs: Iterable[tuple[str, str]],
    runtime: str,
    further_groups: Iterable[Sequence[int]] = (),
) -> NodeGroups:
    """Divide the ops into the smallest groups that have ONNX submodels.

    ``outputs`` pairs each model output with the tensor that holds it. The ops of each of
    ``further_groups`` stay together too. Raises ConfigError, naming ``runtime``, where not even
    the whole model has a submodel.
    """
    outputs = tuple(outputs)
    # A tensor that the ONNX graph lacks (between two kernels of one node) joins the op that makes
    # it and all ops that read it.
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
            # If the nodes read a tensor that the ops do not read, the op that makes it is joined.
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
    """The ONNX nodes that compute ``ops``, and other ops that make further inputs of the nodes."""
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


class TimeShares:
    """The ops that each executed node computes, and their shares of its time."""

    def __init__(
        self, original: OnnxModel, graph: FusedGraph, groups: NodeGroups, nodes: ExecutedNodes
    ) -> None:
        # The arithmetic of an opaque op is not known, but it uses each weight at least once.
        self._work = [op.flops or (op.weight_bytes / 2 if op.opaque else 0.0) for op in graph.ops]
        ops_of = {node: ops for ops, members in groups.items() for node in members}
        between = {tensor for tensors in nodes.values() for tensor in tensors}
        sure = {op for t in between for op in ops_of.get(original.producers[t], ())}
        self._ops: dict[str, Sequence[int]] = {}
        ops: Sequence[int] = ()
        for name, tensors in reversed(list(nodes.items())):
            makers = {original.producers[tensor] for tensor in tensors}
            computed = original.subgraph(tensors, between.difference(tensors)).nodes
            computed_ops = {op for node in makers for op in ops_of.get(node, ())}
            # Ops whose results other executed nodes make are not computed here again.
            computed_ops |= {op for node in computed for op in ops_of.get(node, ())} - sure
            # The time of a node that computes no op, such as a layout change, goes to the next.
            ops = sorted(computed_ops) or ops
            self._ops[name] = ops

    def profile(self, cores: Cores, samples_ms: Samples) -> Profile:
        """Op times from samples of each node: a low quantile, and the spread of all samples."""
        count = min(map(len, samples_ms.values()), default=1)
        times = np.zeros((count, len(self._work)))
        for name, samples in samples_ms.items():
            for op, share in self.of(name).items():
                times[:, op] += share * np.array(samples[:count])
        op_ms = np.quantile(times, LEAST_DISTURBED, axis=0, method="lower").tolist()
        return replace(Profile.of_samples(str(cores), times.T.tolist()), op_ms=tuple(op_ms))

    def of(self, name: str) -> dict[int, float]:
        """The share of each op in the time of the node ``name``; the shares add up to 1.

        Several ops share the time in proportion to their arithmetic. The time of a node whose ops
        are unknown is shared by all ops.
        """
        ops = self._ops.get(name) or range(len(self._work))
        total = sum(self._work[op] for op in ops)
        return {op: self._work[op] / total if total else 1 / len(ops) for op in ops}
