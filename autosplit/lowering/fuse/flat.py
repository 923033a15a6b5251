"""The flat module, read: every call before fusion with what it calls on what, the source tensors it makes, its node.

A call holds a source tensor if its variable is marked; an unmarked one computes a part of the node that its first reader
belongs to. The same walk reads a fused module: FuseOps moves calls without changing what they call on what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel, marked

Env = dict[Any, Any]
"""Variable to what it holds: ("call", number, item), ("input", index), ("const", object) or a list of those (a tuple)."""


class Flat:
    """The calls of the flat ``main`` by number, in order."""

    def __init__(self, source: SourceModel, module: Any) -> None:
        self.maker = {tensor: i for i, node in enumerate(source.nodes) for tensor in node.outputs}
        self.tensors: list[dict[int, str]] = []  # by call: result index -> source tensor
        self.owner: dict[int, int] = {}  # call -> source node
        self._passed: dict[int, Any] = {}  # call that only copies -> what it copies
        self._same: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
        self._first: dict[int, int] = {}  # call -> the first call that computes the same
        self._read(source, module["main"])

    def take(self, call: Any, env: Env) -> int:
        """The number of the flat call that ``call`` is, given what its variables hold; each flat call is taken once."""
        key, weights = self._key(call, env)
        candidates = self._same[key]
        position = next((i for i, (w, _) in enumerate(candidates) if w == weights), 0)
        return candidates.pop(position)[1]

    def name(self, held: Any) -> str | None:
        """The source tensor that something held is, or is a mere copy of; None where no source tensor matches."""
        while held[0] == "call":
            name: str | None = self.tensors[held[1]].get(held[2])
            if name is not None or held[1] not in self._passed:
                return name
            held = self._passed[held[1]]
        return None

    def _read(self, source: SourceModel, main: Any) -> None:
        env = start(main)
        readers: dict[int, list[int]] = defaultdict(list)
        for binding in bindings(main):
            value: Any = getattr(binding, "value", None)
            if is_call(value):
                number = len(self.tensors)
                key, weights = self._key(value, env)
                equal = next((n for w, n in self._same[key] if w == weights), None)
                self._first[number] = number if equal is None else self._first[equal]
                self._same[key].append((weights, number))
                self.tensors.append({})
                for held in _flatten([env.get(v) for v in variables(value)]):
                    if held[0] == "call":
                        readers[held[1]].append(number)
                env[binding.var] = made(number, value)
                if _only_copies(value):
                    self._passed[number] = resolve(value.args[1][0], env)
            elif value is not None:
                env[binding.var] = resolve(value, env)
            index = marked(binding.var.name)
            if index is not None:
                self._name(env.get(binding.var), source.tensors[index])
        for name, held in zip(source.outputs, _fields(resolve(main.body.body, env)), strict=False):
            self._name(held, name)
        self._own(readers)

    def _key(self, call: Any, env: Env) -> tuple[Any, Any]:
        """What a call calls on which computed values, and on which constants (kept apart: a pass may copy a constant).

        Calls that compute the same stand for each other, for a pass may reorder them.
        """
        import tvm

        function = getattr(call.op, "name", None) or getattr(call.op, "name_hint", str(call.op))
        head, rest = [function], list(call.args)
        if rest and isinstance(rest[0], tvm.ir.GlobalVar):
            head.append(rest.pop(0).name_hint)
        held = list(_flatten([resolve(a, env) for a in rest]))
        read = tuple(
            (h[0], self._first[h[1]], h[2]) if h[0] == "call" else h
            for h in held
            if h[0] != "const"
        )
        return (tuple(head), read), tuple(h[1] for h in held if h[0] == "const")

    def _name(self, held: Any, tensor: str) -> None:
        if isinstance(held, tuple) and held[0] == "call":
            self.tensors[held[1]].setdefault(held[2], tensor)

    def _own(self, readers: Mapping[int, list[int]]) -> None:
        for number in reversed(range(len(self.tensors))):
            nodes = [self.maker[t] for t in self.tensors[number].values() if t in self.maker]
            nodes += [self.owner[r] for r in readers.get(number, ()) if r in self.owner]
            if nodes:
                self.owner[number] = nodes[0]


def start(function: Any) -> Env:
    """What the parameters of a function hold."""
    return {p: ("input", i) for i, p in enumerate(function.params)}


def made(number: int, call: Any) -> Any:
    """What a variable bound to call ``number`` holds."""
    from tvm import relax

    width = len(call.ty.fields) if isinstance(call.ty, relax.TupleType) else None
    return ("call", number, 0) if width is None else [("call", number, i) for i in range(width)]


def resolve(value: Any, env: Env) -> Any:
    """What an expression without computation holds."""
    from tvm import relax

    if isinstance(value, relax.Var):
        return env.get(value, ("const", value))
    if isinstance(value, relax.Tuple):
        return [resolve(field, env) for field in value.fields]
    if isinstance(value, relax.TupleGetItem):
        held = resolve(value.tuple_value, env)
        return held[value.index] if isinstance(held, list) else ("const", value)
    return ("const", value)


def is_call(value: Any) -> bool:
    """Whether a bound value computes something."""
    from tvm import relax

    return isinstance(value, relax.Call)


def variables(value: Any) -> Iterator[Any]:
    """The variables an expression reads."""
    from tvm import relax

    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Call):
        for argument in value.args:
            yield from variables(argument)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from variables(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from variables(value.tuple_value)


def _only_copies(call: Any) -> bool:
    """Whether a call broadcasts a tensor to the shape it has; importers leave such calls, and fusion keeps them."""
    import tvm
    import tvm_ffi

    named = (
        call.args
        and isinstance(call.args[0], tvm.ir.GlobalVar)
        and call.args[0].name_hint.startswith("broadcast_to")
    )
    return (
        bool(named)
        and len(call.args[1]) == 1
        and tvm_ffi.structural_equal(call.args[1][0].ty, call.ty)
    )


def _fields(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held]


def _flatten(held: Any) -> Iterator[Any]:
    if isinstance(held, list):
        for item in held:
            yield from _flatten(item)
    elif held is not None:
        yield held
