"""Op times from the times of the nodes that a runtime executes.

A runtime fuses, renames and adds nodes. Its optimised graph shows which tensors of the
original lie around each of its nodes. The original nodes between those are what it computes,
and its time goes to the ops that they belong to.
"""

from __future__ import annotations

from collections import deque
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

    ``original_inputs`` and ``original_outputs`` are those that the original has too; without the
    latter the node computes no op of its own.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    original_inputs: frozenset[str]
    original_outputs: tuple[str, ...]


class TimeShares:
    """The ops that each executed node computes, and their shares of its time."""

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
        self._group_ops = groups.ops
        self._group_of = {node: g for g, members in enumerate(groups.nodes) for node in members}
        self._nodes = {node.name: node for node in nodes}
        self._producers = {t: node for node in self._nodes.values() for t in node.outputs}

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

        The time of a group is shared among its ops by their arithmetic.
        """
        node = self._nodes.get(name)
        groups = self._groups_of(node) if node is not None else ()
        ops = [op for g in groups or range(len(self._group_ops)) for op in self._group_ops[g]]
        total = sum(self._work[op] for op in ops)
        return {op: self._work[op] / total if total else 1 / len(ops) for op in ops}

    def _groups_of(self, node: ExecutedNode) -> Sequence[int]:
        """The groups that a node computes.

        A node that computes none, such as one that changes a layout, counts to its nearest
        reader that does, else to its nearest maker.
        """
        for neighbours in (self._readers, self._makers):
            visited: set[str] = set()
            queue = deque([node])
            while queue:
                current = queue.popleft()
                if current.name in visited:
                    continue
                visited.add(current.name)
                groups = self._computed_groups(current)
                if groups:
                    return groups
                queue.extend(neighbours(current))
        return ()

    def _computed_groups(self, node: ExecutedNode) -> Sequence[int]:
        if not node.original_outputs:
            return ()
        subgraph = self._original.subgraph(node.original_outputs, node.original_inputs)
        nodes = subgraph.nodes
        if not nodes or subgraph.undefined:
            nodes = frozenset(self._original.producers[t] for t in node.original_outputs)
        return sorted({self._group_of[n] for n in nodes if n in self._group_of})

    def _readers(self, node: ExecutedNode) -> list[ExecutedNode]:
        outputs = set(node.outputs)
        return [n for n in self._nodes.values() if outputs.intersection(n.inputs)]

    def _makers(self, node: ExecutedNode) -> list[ExecutedNode]:
        return [self._producers[t] for t in node.inputs if t in self._producers]
