"""The calls of the flat module, before fusion: what each reads, and which source node it is of.

A call holds a source tensor if its variable is marked. An unmarked one computes a part of the
node that its first reader belongs to. The same walk reads a fused module: FuseOps moves calls
without changing what they call on what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autosplit.extras import relax, tvm
from autosplit.frontend.relax.expressions import callee, flat, resolve, variables
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel, marked
from autosplit.lowering.layout.order import SUFFIX

Environment = dict[Any, Any]
"""Variable to its content: ("call", number, item), ("input", index), ("const", object) or, for a
tuple, a list of those."""


class FlatCalls:
    """The calls of the flat ``main`` by number, in order."""

    def __init__(self, source: SourceModel, module: Any) -> None:
        self.producer = {
            tensor: i for i, node in enumerate(source.nodes) for tensor in node.outputs
        }
        self.tensors: list[dict[int, str]] = []  # by call: result index -> source tensor
        self.node_of: dict[int, int] = {}  # call -> source node
        self._last: set[Any] = set()  # contents with channels last
        self._by_key: dict[Any, list[int]] = defaultdict(list)
        self._representative: list[int] = []  # by call: the first call that computes the same
        self._read(source, module["main"])

    def take(self, call: Any, environment: Environment) -> int:
        """The number of the flat call that ``call`` is; each flat call is taken once."""
        return self._by_key[self._key(call, environment)].pop(0)

    def name(self, content: Any) -> str | None:
        """The source tensor that a content is; None where none matches."""
        if content[0] != "call":
            return None
        _, number, item = content
        name: str | None = self.tensors[number].get(item)
        return name

    @property
    def channels_last(self) -> frozenset[str]:
        """The source tensors with channels last."""
        return frozenset(filter(None, map(self.name, self._last)))

    def _read(self, source: SourceModel, main: Any) -> None:
        environment = parameters(main)
        readers: dict[int, list[int]] = defaultdict(list)

        def enter(call: Any, environment: Environment) -> Any:
            return results_of(self._enter(call, environment, readers), call)

        for binding, content in walk(main, environment, enter):
            if binding.var.name.endswith(SUFFIX) and isinstance(content, tuple):
                self._last.add(content)
            index = marked(binding.var.name)
            if index is not None:
                self._name(content, source.tensors[index])
        result = content_of(main.body.body, environment)
        fields = result if isinstance(result, list) else [result]
        for name, content in zip(source.outputs, fields, strict=False):
            self._name(content, name)
        self._assign_nodes(readers)

    def _enter(self, call: Any, environment: Environment, readers: dict[int, list[int]]) -> int:
        number = len(self.tensors)
        equal = self._by_key[self._key(call, environment)]
        equal.append(number)
        self._representative.append(equal[0])
        self.tensors.append({})
        for content in flat([environment.get(v) for v in variables(call)]):
            if content[0] == "call":
                readers[content[1]].append(number)
        return number

    def _key(self, call: Any, environment: Environment) -> tuple[Any, ...]:
        """What is called on which contents.

        Calls that compute the same stand for each other, for a pass may reorder them.
        """
        key: list[Any] = [callee(call)]
        arguments = [a for a in call.args if not isinstance(a, tvm.ir.GlobalVar)]
        for kind, *content in flat([content_of(a, environment) for a in arguments]):
            if kind == "call":
                content[0] = self._representative[content[0]]
            key.append((kind, *content))
        return tuple(key)

    def _name(self, content: Any, tensor: str) -> None:
        if isinstance(content, tuple) and content[0] == "call":
            self.tensors[content[1]].setdefault(content[2], tensor)

    def _assign_nodes(self, readers: Mapping[int, list[int]]) -> None:
        # From the last call on, so that the readers of a call have their nodes already.
        for number in reversed(range(len(self.tensors))):
            nodes = [self.producer[t] for t in self.tensors[number].values() if t in self.producer]
            nodes += [self.node_of[r] for r in readers.get(number, ()) if r in self.node_of]
            if nodes:
                self.node_of[number] = nodes[0]


def parameters(function: Any) -> Environment:
    """The contents of a function's parameters."""
    return {parameter: ("input", i) for i, parameter in enumerate(function.params)}


def results_of(number: int, call: Any) -> Any:
    """The content of a variable that is bound to call ``number``."""
    if not isinstance(call.ty, relax.TupleType):
        return ("call", number, 0)
    return [("call", number, i) for i in range(len(call.ty.fields))]


def walk(
    function: Any, environment: Environment, of_call: Callable[[Any, Environment], Any]
) -> Iterator[tuple[Any, Any]]:
    """The bindings of a function with their contents, which join the environment."""
    for binding in bindings(function):
        is_call = isinstance(binding.value, relax.Call)
        content = (of_call if is_call else content_of)(binding.value, environment)
        environment[binding.var] = content
        yield binding, content


def content_of(value: Any, environment: Environment) -> Any:
    """The content of an expression without computation."""
    return resolve(value, environment, lambda constant: ("const", constant))
