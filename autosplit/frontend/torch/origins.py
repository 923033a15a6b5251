"""Which node of a PyTorch program each node of its rewritten graph came from."""

from __future__ import annotations

from typing import Any

from autosplit.frontend.source import SourceNode
from autosplit.frontend.torch.normalize import target_name


class Origins:
    """The origin of each node of a rewritten graph, and the name of its result.

    Taking an item out of a tuple is no node of the source, but names a tensor that the tuple's node
    makes. If several nodes came from one, the last makes its result and the others are called after
    it and themselves.
    """

    def __init__(self, program: Any, rewritten: Any) -> None:
        self._calls = {n.name: n for n in program.nodes if n.op == "call_function"}
        groups: dict[str, list[str]] = {}
        for node in rewritten.nodes:
            if node.op == "call_function":
                groups.setdefault(self._origin(node), []).append(node.name)
        self.tensor_of: dict[str, str] = {}
        outputs: dict[str, list[str]] = {}
        for origin, group in groups.items():
            *inner, last = group
            self.tensor_of.update({name: f"{origin}.{name}" for name in inner})
            self.tensor_of[last] = origin
            tensors = [self.tensor_of[name] for name in group]
            outputs.setdefault(self._maker(origin), []).extend(tensors)
        for name in self._calls:
            outputs.setdefault(self._maker(name), []).append(name)
        self._outputs = outputs

    def nodes(self) -> tuple[SourceNode, ...]:
        """The source nodes with all tensors made for them."""
        nodes = []
        for name, node in self._calls.items():
            if target_name(node.target) != "getitem":
                inputs = tuple(i.name for i in node.all_input_nodes)
                outputs = tuple(dict.fromkeys((name, *self._outputs.get(name, ()))))
                nodes.append(SourceNode(name, str(node.target), inputs, outputs))
        return tuple(nodes)

    def _origin(self, node: Any) -> str:
        sources = [str(s.name) for s in node.meta.get("from_node", ())]
        return next((name for name in reversed(sources) if name in self._calls), str(node.name))

    def _maker(self, origin: str) -> str:
        """The node that makes a tensor: for an item of a tuple, the one that makes the tuple."""
        node = self._calls.get(origin)
        if node is not None and target_name(node.target) == "getitem":
            return str(node.args[0].name)
        return origin
