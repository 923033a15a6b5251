"""A Relax module as a source: an object, a TVMScript file, or the JSON of ``tvm.ir.save_json``.

A source node is a call that ``main`` binds; it and its tensors go by the names of the variables. Weights are constants of
the module; every parameter of ``main`` is an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.relax import script
from autosplit.frontend.relax.inline import inlined
from autosplit.frontend.relax.main_function import bindings, renamed
from autosplit.frontend.relax.saved_module import load_harmless
from autosplit.frontend.relax.shapes import ENTRY, Shapes, bind_shapes
from autosplit.frontend.source import Signature, SourceModel, SourceNode, mark

SUFFIXES = (".py", ".json")


def load(path: Path, shapes: Shapes | None = None) -> SourceModel:
    """Import a Relax file. Raises ModelError or ConfigError, one line, where it cannot be imported."""
    return convert(read(path), path.stem, shapes)


def read(path: Path) -> Any:
    """The IRModule of a TVMScript (.py) or JSON (.json) file; no code of the file is run.

    Raises:
        ModelError: The file cannot be read, or holds something that is not on the allow-list.
    """
    import tvm

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{path}' cannot be read as text: {error}") from error
    try:
        module = load_harmless(text) if path.suffix == ".json" else script.parse(text)
    except ModelError as error:
        raise ModelError(f"model '{path}': {error}") from error
    except ValueError as error:
        raise ModelError(
            f"model '{path}' is no module that tvm.ir.save_json wrote ({error}); save it again"
        ) from error
    if not isinstance(module, tvm.IRModule):
        raise ModelError(
            f"model '{path}' holds a {type(module).__name__}, not a module; save the IRModule"
        )
    return module


def convert(module: Any, name: str, shapes: Shapes | None = None) -> SourceModel:
    """Import an IRModule whose function ``main`` has static shapes once ``shapes`` is applied; see ``load``."""
    from tvm import relax
    from tvm.relax import transform as t

    module = bind_shapes(inlined(module), shapes or {})
    try:
        relax.analysis.well_formed(module)
        module = t.ConvertToDataflow(min_size=1)(t.Normalize()(module))
    except Exception as error:
        raise ModelError(f"the module is not well formed: {line_of(error)}") from error
    return _Names(module, name).source()


class _Names:
    """Reads the bindings of ``main``: what is a node, which tensor each variable holds, what leaves."""

    def __init__(self, module: Any, name: str) -> None:
        self._module = module
        self._name = name
        self._params = list(module[ENTRY].params)
        self._nodes: list[SourceNode] = []
        self._tensors: list[str] = []
        self._alias: dict[str, str] = {}
        self._constants: set[str] = set()
        self._marks: dict[Any, str] = {}
        self._held: dict[Any, Any] = {}  # variable -> tensor name, or a list of those (a tuple)
        self._taken: set[str] = set()

    def source(self) -> SourceModel:
        from tvm import relax

        main = self._module[ENTRY]
        for param in self._params:
            self._held[param] = self._free(param.name)
        found = bindings(main)
        items = _item_names(found)
        for binding in found:
            if hasattr(binding, "value"):
                self._binding(binding.var, binding.value, items)
        return SourceModel(
            name=self._name,
            module=renamed(self._module, self._marks),
            nodes=tuple(self._nodes),
            tensors=tuple(self._tensors),
            alias=self._alias,
            constants=frozenset(self._constants),
            inputs=tuple(
                Signature(
                    self._held[p], tuple(int(s.value) for s in p.ty.shape.values), str(p.ty.dtype)
                )
                for p in self._params
            ),
            outputs=self._outputs(main.body.body),
            tupled=isinstance(main.ret_ty, relax.TupleType),
            format="relax",
        )

    def _binding(self, var: Any, value: Any, items: Mapping[Any, dict[int, str]]) -> None:
        from tvm import relax

        if not isinstance(value, relax.Call):
            self._held[var] = self._resolve(value)
            if isinstance(self._held[var], str) and isinstance(value, relax.TupleGetItem):
                self._mark(var, self._held[var])
            elif self._held[var] is None:
                self._constants.add(self._free(var.name))
            return
        width = len(var.ty.fields) if isinstance(var.ty, relax.TupleType) else None
        name = self._free(var.name)
        if width is None:
            self._held[var] = name
            self._mark(var, name)
        else:
            named = items.get(var, {})
            self._held[var] = [self._free(named.get(i, f"{name}.{i}")) for i in range(width)]
        reads = dict.fromkeys(_flat(self._resolve(a) for a in value.args))
        made = self._held[var] if width is not None else [name]
        self._nodes.append(SourceNode(name, _kind(value), tuple(reads), tuple(made)))

    def _mark(self, var: Any, tensor: str) -> None:
        self._marks[var] = mark(len(self._tensors))
        self._tensors.append(tensor)

    def _resolve(self, value: Any) -> Any:
        from tvm import relax

        if isinstance(value, relax.Var):
            return self._held.get(value)
        if isinstance(value, relax.Tuple):
            return [self._resolve(field) for field in value.fields]
        if isinstance(value, relax.TupleGetItem):
            held = self._resolve(value.tuple_value)
            if not isinstance(held, list):
                return None
            if not 0 <= value.index < len(held):
                raise ModelError(
                    f"item {value.index} is taken out of a tuple of {len(held)}; the module is damaged"
                )
            return held[value.index]
        return None

    def _free(self, name: str) -> str:
        """``name``, or a name near it that nothing has yet: variables of one module may share a name."""
        number, free = 2, name
        while free in self._taken:
            free, number = f"{name}.{number}", number + 1
        self._taken.add(free)
        return free

    def _outputs(self, body: Any) -> tuple[str, ...]:
        """A name for each result: that of its variable, numbered where a result is a constant or is given twice."""
        held = self._resolve(body)
        fields = held if isinstance(held, list) else [held]
        names: list[str] = []
        for i, field in enumerate(fields):
            if isinstance(field, list):
                raise ModelError(
                    f"output {i} of '{ENTRY}' is a tuple inside a tuple; return a flat one"
                )
            name = (
                field
                if field is not None and field not in names
                else self._free(f"{field or 'output'}.{i}")
            )
            names.append(name)
        return tuple(names)


def _item_names(found: list[Any]) -> dict[Any, dict[int, str]]:
    """For each variable that holds a tuple, the name of the first variable that takes item i out of it."""
    from tvm import relax

    items: dict[Any, dict[int, str]] = {}
    for binding in found:
        value = getattr(binding, "value", None)
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            items.setdefault(value.tuple_value, {}).setdefault(value.index, binding.var.name)
    return items


def _kind(call: Any) -> str:
    """What a call is called: its operator, or the kernel it calls."""
    callee = (
        call.args[0]
        if call.args and hasattr(call.args[0], "name_hint") and hasattr(call.op, "name")
        else None
    )
    if callee is not None and str(getattr(call.op, "name", "")).startswith("relax.call_tir"):
        return str(callee.name_hint)
    return str(getattr(call.op, "name", None) or getattr(call.op, "name_hint", "call"))


def _flat(held: Any) -> Iterator[str]:
    for item in held:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            yield from _flat(item)
