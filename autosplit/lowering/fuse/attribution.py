"""Which source nodes each fused op came from, and what its results are called.

In the flat module (before fusion), a call whose variable is marked computes a source tensor. A call
with an unmarked variable computes a part of the node that its first reader belongs to. The same
walk reads a fused module: FuseOps moves calls, but keeps what each one calls and its arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosplit.extras import relax, tvm, tvm_ffi
from autosplit.frontend.relax.expressions import callee, flat, resolve, variables
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel, marked
from autosplit.graph import Folded
from autosplit.lowering.fuse.passes import FusedModule
from autosplit.lowering.layout.order import SUFFIX

MERGED = "merged away by simplification"
Environment = dict[Any, Any]
"""Maps a variable to its content: ("call", number, item), ("input", index), ("const", object) or,
for a tuple, a list of contents."""


@dataclass(frozen=True)
class OpNames:
    """The source names of a fused op.

    ``sources`` are the nodes whose result the op computes, ``parts`` those of which it computes
    only a part, ``results`` the names of its results (None where no source tensor matches).
    """

    sources: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    results: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Attribution:
    """The source names of the fused ops, in the order of their calls in the fused ``main``.

    ``channels_last`` are the source tensors that have channels last between ops.
    """

    ops: tuple[OpNames, ...]
    folded: tuple[Folded, ...]
    channels_last: frozenset[str]


def attribute(source: SourceModel, module: FusedModule) -> Attribution:
    """Match the calls of the fused ``main`` with the nodes of ``source``."""
    flat_calls = FlatCalls(source, module.flat)
    members, results = match(flat_calls, module.grouped)
    reasons = folded_reasons(source)
    op_of = _op_of_node(source, flat_calls, members, reasons)
    names = [node.name for node in source.nodes]
    ops = []
    for position, calls in enumerate(members):
        whole = [node for node, op in op_of.items() if op == position]
        touched = {flat_calls.node_of[call] for call in calls if call in flat_calls.node_of}
        sources = tuple(names[node] for node in sorted(whole))
        parts = tuple(names[node] for node in sorted(touched.difference(whole)))
        ops.append(OpNames(sources, parts, results[position]))
    folded = [Folded(names[i], reasons[i]) for i in range(len(names)) if i not in op_of]
    return Attribution(tuple(ops), tuple(folded), flat_calls.channels_last)


class FlatCalls:
    """The calls of the flat ``main``, numbered in order."""

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
        """The number of the flat call that equals ``call``; each number is returned only once."""
        return self._by_key[self._key(call, environment)].pop(0)

    def name(self, content: Any) -> str | None:
        """The source tensor of a content; None if no source tensor matches."""
        return self.tensors[content[1]].get(content[2]) if content[0] == "call" else None

    @property
    def channels_last(self) -> frozenset[str]:
        """The source tensors with channels last."""
        return frozenset(filter(None, map(self.name, self._last)))

    def _read(self, source: SourceModel, main: Any) -> None:
        environment = _parameters(main)
        readers: dict[int, list[int]] = defaultdict(list)

        def enter(call: Any, environment: Environment) -> Any:
            return _results_of(self._enter(call, environment, readers), call)

        for binding, content in _walk(main, environment, enter):
            if binding.var.name.endswith(SUFFIX) and isinstance(content, tuple):
                self._last.add(content)
            index = marked(binding.var.name)
            if index is not None:
                self._name(content, source.tensors[index])
        result = _content_of(main.body.body, environment)
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
        """What a call runs, its attributes and the contents of its arguments.

        Calls with the same key are interchangeable, since a pass may reorder them.
        """
        key: list[Any] = [callee(call), tvm_ffi.structural_hash(call.attrs)]
        arguments = [a for a in call.args if not isinstance(a, tvm.ir.GlobalVar)]
        for kind, *content in flat([_content_of(a, environment) for a in arguments]):
            if kind == "call":
                content[0] = self._representative[content[0]]
            key.append((kind, *content))
        return tuple(key)

    def _name(self, content: Any, tensor: str) -> None:
        if isinstance(content, tuple) and content[0] == "call":
            self.tensors[content[1]].setdefault(content[2], tensor)

    def _assign_nodes(self, readers: Mapping[int, list[int]]) -> None:
        # Backwards, so that the readers of a call have their nodes already.
        for number in reversed(range(len(self.tensors))):
            nodes = [self.producer[t] for t in self.tensors[number].values() if t in self.producer]
            nodes += [self.node_of[r] for r in readers.get(number, ()) if r in self.node_of]
            if nodes:
                self.node_of[number] = nodes[0]


def match(
    flat_calls: FlatCalls, module: Any
) -> tuple[list[list[int]], list[tuple[str | None, ...]]]:
    """The flat calls inside each call of a grouped ``main``, and the names of its results."""
    members: list[list[int]] = []
    results: list[tuple[str | None, ...]] = []

    def take(call: Any, environment: Environment) -> Any:
        """The content of a call; its flat calls, even those inside a function, become members."""
        if not isinstance(call.op, tvm.ir.GlobalVar):
            members[-1].append(flat_calls.take(call, environment))
            return _results_of(members[-1][-1], call)
        function = module[call.op]
        arguments = [_content_of(argument, environment) for argument in call.args]
        inner = dict(zip(function.params, arguments, strict=True))
        for _ in _walk(function, inner, take):
            pass
        return _content_of(function.body.body, inner)

    def begin(call: Any, environment: Environment) -> Any:
        members.append([])
        content = take(call, environment)
        fields = content if isinstance(content, list) else [content]
        results.append(tuple(map(flat_calls.name, fields)))
        return content

    main = module["main"]
    for _ in _walk(main, _parameters(main), begin):
        pass
    return members, results


def _parameters(function: Any) -> Environment:
    """The contents of a function's parameters."""
    return {parameter: ("input", i) for i, parameter in enumerate(function.params)}


def _results_of(number: int, call: Any) -> Any:
    """The content of a variable that is bound to call ``number``."""
    if not isinstance(call.ty, relax.TupleType):
        return ("call", number, 0)
    return [("call", number, i) for i in range(len(call.ty.fields))]


def _walk(
    function: Any, environment: Environment, of_call: Callable[[Any, Environment], Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield each binding of a function with its content, which is added to the environment."""
    for binding in bindings(function):
        is_call = isinstance(binding.value, relax.Call)
        content = (of_call if is_call else _content_of)(binding.value, environment)
        environment[binding.var] = content
        yield binding, content


def _content_of(value: Any, environment: Environment) -> Any:
    """The content of an expression that computes nothing."""
    return resolve(value, environment, lambda constant: ("const", constant))


def _op_of_node(
    source: SourceModel, flat_calls: FlatCalls, members: list[list[int]], reasons: Sequence[str]
) -> dict[int, int]:
    """By source node, the position of the op that computes or absorbed it, without folded nodes."""
    op_of: dict[int, int] = {}
    for position, calls in enumerate(members):
        for call in calls:
            for tensor in flat_calls.tensors[call].values():
                if tensor in flat_calls.producer:
                    op_of[flat_calls.producer[tensor]] = position
    # A node that simplification merged away went into the op of its first reader. Readers come
    # later, so walking backwards meets them first.
    first_reader: dict[str, int] = {}  # node by tensor
    for i, node in reversed(list(enumerate(source.nodes))):
        readers = [first_reader[tensor] for tensor in node.outputs if tensor in first_reader]
        if i not in op_of and reasons[i] == MERGED and readers:
            op_of[i] = op_of[min(readers)]
        if i in op_of:
            first_reader.update(dict.fromkeys(node.inputs, i))
    return op_of


def folded_reasons(source: SourceModel) -> list[str]:
    """Why each source node may have left no op; MERGED where the source does not explain it."""
    needed, live = set(source.outputs), set()
    for i, node in reversed(list(enumerate(source.nodes))):
        if needed.intersection(node.outputs):
            live.add(i)
            needed.update(node.inputs)
    varying = {i.name for i in source.inputs}
    reasons = []
    for i, node in enumerate(source.nodes):
        depends = bool(varying.intersection(node.inputs))
        varying.update(node.outputs if depends else ())
        reasons.append(_reason(source, node.outputs, i in live, depends))
    return reasons


def _reason(source: SourceModel, outputs: Sequence[str], is_live: bool, depends: bool) -> str:
    if not outputs:
        return "left out by torch's exporter"
    if all(t in source.constants or t in source.alias for t in outputs):
        # A dropout passes on its input as the first output; its second, the mask, is a constant.
        if outputs[0] in source.alias and outputs[0] not in source.constants:
            return f"identity: passes '{source.alias[outputs[0]]}' on"
        return "constant: known without running the model"
    if not is_live:
        return "dead: no output of the model needs it"
    return MERGED if depends else "constant: depends on weights alone"
