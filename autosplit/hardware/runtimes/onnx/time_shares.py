"""Op times from the times of the nodes that a runtime executes.

A runtime fuses, renames and adds nodes, but tells which tensors of the original each of them makes.
The original nodes between those and the tensors of other nodes are what it computes, and its time
goes to the ops that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.onnx.node_groups import NodeGroups
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel

Samples = Mapping[str, Sequence[float]]  # the milliseconds of each node, by round
# By the name of each executed node, in order: the tensors of the original that it makes.
ExecutedNodes = Mapping[str, Sequence[str]]


class TimeShares:
    """The ops that each executed node computes, and their shares of its time."""

    def __init__(
        self, original: OnnxModel, graph: FusedGraph, groups: NodeGroups, nodes: ExecutedNodes
    ) -> None:
        # The arithmetic of an opaque op is not known, but it uses each weight at least once.
        self._work = [op.flops or (op.weight_bytes / 2 if op.opaque else 0.0) for op in graph.ops]
        ops_of = {node: ops for ops, members in groups.items() for node in members}
        between = {tensor for tensors in nodes.values() for tensor in tensors}
        self._ops: dict[str, Sequence[int]] = {}
        ops: Sequence[int] = ()
        for name, tensors in nodes.items():
            computed = original.subgraph(tensors, between.difference(tensors)).nodes
            # One that computes none, such as one that changes a layout, counts to the one before.
            ops = sorted({op for node in computed for op in ops_of.get(node, ())}) or ops
            self._ops[name] = ops

    def profile(self, cores: Cores, samples_ms: Samples) -> Profile:
        """Op times from samples of each node."""
        count = min(map(len, samples_ms.values()), default=1)
        times = np.zeros((count, len(self._work)))
        for name, samples in samples_ms.items():
            for op, share in self.of(name).items():
                times[:, op] += share * np.array(samples[:count])
        return Profile.of_samples(str(cores), times.T.tolist())

    def of(self, name: str) -> dict[int, float]:
        """The share of each op in the time of the node ``name``; they add up to 1.

        The time of several ops is shared by their arithmetic; that of a node of unknown ops among
        all ops.
        """
        ops = self._ops.get(name) or range(len(self._work))
        total = sum(self._work[op] for op in ops)
        return {op: self._work[op] / total if total else 1 / len(ops) for op in ops}
