"""Fused ops, the ONNX nodes that compute them, and op times from those of executed nodes.

A runtime fuses, renames and adds nodes, but tells which tensors of the original each of them makes.
The original nodes between those and the tensors of other nodes are what it computes, and its time
goes to the ops that they belong to.
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

# The clock runs on while another process has the core, which affects long ops most.
LEAST_DISTURBED = 0.1

# Groups of ops in a topological order, each with the ONNX nodes, by index, that compute it. Any
# union of groups has an ONNX submodel.
NodeGroups = Mapping[tuple[int, ...], frozenset[int]]
Samples = Mapping[str, Sequence[float]]  # the milliseconds of each node, by round
# By the name of each executed node, in order: the tensors of the original that it makes.
ExecutedNodes = Mapping[str, Sequence[str]]


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
            # What another node makes is not computed here again.
            computed_ops |= {op for node in computed for op in ops_of.get(node, ())} - sure
            # One that computes none, such as one that changes a layout, counts to the next.
            ops = sorted(computed_ops) or ops
            self._ops[name] = ops

    def profile(self, cores: Cores, samples_ms: Samples) -> Profile:
        """Op times from samples of each node: of the least disturbed, and the spread of all."""
        count = min(map(len, samples_ms.values()), default=1)
        times = np.zeros((count, len(self._work)))
        for name, samples in samples_ms.items():
            for op, share in self.of(name).items():
                times[:, op] += share * np.array(samples[:count])
        op_ms = np.quantile(times, LEAST_DISTURBED, axis=0, method="lower").tolist()
        return replace(Profile.of_samples(str(cores), times.T.tolist()), op_ms=tuple(op_ms))

    def of(self, name: str) -> dict[int, float]:
        """The share of each op in the time of the node ``name``; they add up to 1.

        The time of several ops is shared by their arithmetic; that of a node of unknown ops among
        all ops.
        """
        ops = self._ops.get(name) or range(len(self._work))
        total = sum(self._work[op] for op in ops)
        return {op: self._work[op] / total if total else 1 / len(ops) for op in ops}
