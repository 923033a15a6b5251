"""Why a source node left no op of its own. Pure: it only looks at the source graph."""

from __future__ import annotations

from functools import cached_property

from autosplit.frontend.source import SourceModel

MERGED = "merged away by simplification"


class Folding:
    """The reasons by source node; nodes are taken in the source's order, which is topological."""

    def __init__(self, source: SourceModel) -> None:
        self._source = source

    def reason(self, index: int) -> str:
        """Why node ``index`` may have left no op; MERGED where nothing about the source explains it."""
        node = self._source.nodes[index]
        known = self._source.constants
        if known.intersection(node.outputs) and all(
            t in known or t in self._source.alias for t in node.outputs
        ):
            return "constant: known without running the model"
        if node.outputs and all(t in self._source.alias for t in node.outputs):
            return f"identity: passes '{self._source.alias[node.outputs[0]]}' on"
        if index not in self._live:
            return "dead: no output of the model needs it"
        if index not in self._varying:
            return "constant: depends on weights alone"
        return MERGED

    @cached_property
    def _live(self) -> frozenset[int]:
        needed, live = set(self._source.outputs), set()
        for i, node in reversed(list(enumerate(self._source.nodes))):
            if needed.intersection(node.outputs):
                live.add(i)
                needed.update(node.inputs)
        return frozenset(live)

    @cached_property
    def _varying(self) -> frozenset[int]:
        tensors, varying = {i.name for i in self._source.inputs}, set()
        for i, node in enumerate(self._source.nodes):
            if tensors.intersection(node.inputs):
                tensors.update(node.outputs)
                varying.add(i)
        return frozenset(varying)
