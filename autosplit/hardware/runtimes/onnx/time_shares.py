"""Op times from the times of the nodes that a runtime executes.

A runtime fuses, renames and adds nodes. Its optimised graph shows which tensors of the
original lie around each of its nodes. The original nodes between those are what it computes,
and its time goes to the ops that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.onnx.node_groups import NodeGroups
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel

# The clock runs on while another process has the core, which affects long ops most.
LEAST_DISTURBED = 0.1

Samples = Mapping[str, Sequence[float]]  # the milliseconds of each node, by round


@dataclass(frozen=True)
class ExecutedNode:
    """A node of the optimised graph, with the names of the tensors that it reads and makes there.

    ``original_outputs`` are the tensors of the original that it makes; without any the node
    computes no op of its own.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    original_outputs: tuple[str, ...]


class TimeShares:
    """The ops that each executed node computes, and their shares of its time.

    ``nodes`` are in topological order.
    """

    def __init__(
        self,
        original: OnnxModel,
        graph: FusedGraph,
        groups: NodeGroups,
        nodes: Iterable[ExecutedNode],
    ) -> None:
        self._original = original
        # The arithmetic of an opaque op is not known, but it uses each weight at least once.
        self._work = [op.flops or (op.weight_bytes / 2 if op.opaque else 0.0) for op in graph.ops]
        groups_of_nodes = zip(groups.ops, groups.nodes, strict=True)
        ops_of = {node: ops for ops, members in groups_of_nodes for node in members}
        self._ops: dict[str, list[int]] = {}
        # By tensor of the optimised graph: the originals that it is, or was computed from.
        origins: dict[str, frozenset[str]] = {}
        for node in nodes:
            read = frozenset[str]().union(*(origins.get(t, {t}) for t in node.inputs))
            for tensor in node.outputs:
                origins[tensor] = frozenset(node.original_outputs) or read or frozenset([tensor])
            computed = self._nodes(node.original_outputs, read)
            self._ops[node.name] = sorted({op for n in computed for op in ops_of.get(n, ())})

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

    def _nodes(self, outputs: Sequence[str], read: frozenset[str]) -> Iterable[int]:
        """The original nodes that a node computes.

        One that computes none, such as one that changes a layout, counts to those whose results it
        reads.
        """
        producers = self._original.producers
        if not outputs:
            return [producers[t] for t in read if t in producers]
        subgraph = self._original.subgraph(outputs, read)
        if subgraph.nodes and not subgraph.undefined:
            return subgraph.nodes
        return [producers[t] for t in outputs]
