"""Which node of a PyTorch program each node of its rewritten graph came from."""

from __future__ import annotations

from typing import Any

from autosplit.frontend.source import SourceNode
from autosplit.frontend.torch.normalize import target_name


class Origins:
    """Which node of a program each node of its rewritten graph came from, and what its result is called.

    Taking an item out of a tuple is no node of the source, but names a tensor that the tuple's maker makes. Where several
    nodes came from one, the last makes its result and the others are called after it and themselves.
    """

    def __init__(self, program: Any, rewritten: Any) -> None:
        self._calls = {n.name: n for n in program.nodes if n.op == "call_function"}
        groups: dict[str, list[str]] = {}
        for node in rewritten.nodes:
            if node.op == "call_function":
                groups.setdefault(self._origin(node), []).append(node.name)
        self.called = {
            name: origin if i == len(group) - 1 else f"{origin}.{name}"
            for origin, group in groups.items()
            for i, name in enumerate(group)
        }
        self._made: dict[str, list[str]] = {}
        for origin, group in groups.items():
            self._made.setdefault(self._maker(origin), []).extend(
                self.called[name] for name in group
            )
        for name in self._calls:
            self._made.setdefault(self._maker(name), []).append(name)

    def nodes(self) -> tuple[SourceNode, ...]:
        """The source nodes with all tensors made for them."""
        return tuple(
            SourceNode(
                name,
                str(node.target),
                tuple(i.name for i in node.all_input_nodes),
                tuple(dict.fromkeys((name, *self._made.get(name, ())))),
            )
            for name, node in self._calls.items()
            if target_name(node.target) != "getitem"
        )

    def _origin(self, node: Any) -> str:
        sources = [str(s.name) for s in node.meta.get("from_node", ())]
        return next((name for name in reversed(sources) if name in self._calls), str(node.name))

    def _maker(self, origin: str) -> str:
        node = self._calls.get(origin)
        return (
            str(node.args[0].name)
            if node is not None and target_name(node.target) == "getitem"
            else origin
        )
