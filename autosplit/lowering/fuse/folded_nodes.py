"""Why a source node left no op of its own; from the source graph alone."""

from __future__ import annotations

from functools import cached_property

from autosplit.frontend.source import SourceModel

MERGED = "merged away by simplification"


class FoldedNodes:
    """Reasons by source node; the nodes of a source are in topological order."""

    def __init__(self, source: SourceModel) -> None:
        self._source = source

    def reason(self, index: int) -> str:
        """Why node ``index`` may have left no op; MERGED where the source does not explain it."""
        outputs = self._source.nodes[index].outputs
        constants, alias = self._source.constants, self._source.alias
        if outputs and all(t in constants or t in alias for t in outputs):
            # The mask of a dropout is a constant beside the tensor that is passed on.
            if outputs[0] in alias and outputs[0] not in constants:
                return f"identity: passes '{alias[outputs[0]]}' on"
            return "constant: known without running the model"
        if index not in self._live:
            return "dead: no output of the model needs it"
        if index not in self._varying:
            return "constant: depends on weights alone"
        return MERGED

    @cached_property
    def _live(self) -> frozenset[int]:
        """The nodes that some output depends on."""
        needed, live = set(self._source.outputs), set()
        for i, node in reversed(list(enumerate(self._source.nodes))):
            if needed.intersection(node.outputs):
                live.add(i)
                needed.update(node.inputs)
        return frozenset(live)

    @cached_property
    def _varying(self) -> frozenset[int]:
        """The nodes that depend on some input."""
        tensors, varying = {i.name for i in self._source.inputs}, set()
        for i, node in enumerate(self._source.nodes):
            if tensors.intersection(node.inputs):
                tensors.update(node.outputs)
                varying.add(i)
        return frozenset(varying)
