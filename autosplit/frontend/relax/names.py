"""Names the nodes and tensors of a Relax module after the variables of ``main``.

A source node is a call that ``main`` binds. Weights are constants of the module; every parameter of
``main`` is an input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import relax
from autosplit.frontend.relax.expressions import (
    callee,
    fixed_sizes,
    flat,
    is_constant,
    resolve,
    shape_of,
)
from autosplit.frontend.relax.main_function import ENTRY, bindings, renamed
from autosplit.frontend.source import Signature, SourceModel, SourceNode, mark, marked, unused

# Limits of what is computed of constants while a model is read: elements, and operations.
_ELEMENTS_EACH, _MORE_ELEMENTS, _MORE_WORK = 8, 1 << 28, 1 << 34
_PRODUCTS = ("matmul", "conv", "einsum", "linear")


class MainReader:
    """Reads the bindings of ``main``: its nodes, the tensor of each variable, its results."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._nodes: list[SourceNode] = []
        self._tensors: list[str] = []
        self._varying: set[str] = set()  # tensors that depend on an input
        self._elements, self._work, self._stored = _MORE_ELEMENTS, _MORE_WORK, set[Any]()
        self._marks: dict[Any, str] = {}
        self._values: dict[Any, Any] = {}  # names of tensors, lists for tuples, None for constants
        self._used_names: set[str] = set()

    def read(self, name: str) -> SourceModel:
        """The source model of a normalised module with static shapes."""
        main = self._module[ENTRY]
        inputs = tuple(self._input(param) for param in main.params)
        in_order = bindings(main)
        # Collected first: an item may be taken out of a tuple after other ops have read the tuple.
        item_names = _item_names(in_order)
        for binding in in_order:
            self._read_binding(binding.var, binding.value, item_names.get(binding.var, {}))
            # A name that we would take for one of our marks.
            if binding.var not in self._marks and marked(binding.var.name) is not None:
                self._marks[binding.var] = f"_{binding.var.name}"
        return SourceModel(
            name=name,
            module=renamed(self._module, self._marks),
            nodes=tuple(self._nodes),
            tensors=tuple(self._tensors),
            alias={},
            constants=frozenset(),
            inputs=inputs,
            outputs=self._outputs(main.body.body),
            tupled=isinstance(main.ret_ty, relax.TupleType),
            format="relax",
        )

    def _input(self, param: Any) -> Signature:
        name = self._values[param] = unused(param.name, self._used_names)
        self._varying.add(name)
        return Signature(name, shape_of(param), str(param.ty.dtype))

    def _read_binding(self, var: Any, value: Any, item_names: Mapping[int, str]) -> None:
        if not isinstance(value, relax.Call):
            self._read_alias(var, value)
            return
        name = unused(var.name, self._used_names)
        outputs = [name]
        if isinstance(var.ty, relax.TupleType):
            names = [item_names.get(i, f"{name}.{i}") for i in range(len(var.ty.fields))]
            self._values[var] = outputs = [unused(item, self._used_names) for item in names]
        else:
            self._values[var] = name
            self._mark(var, name)
        reads = dict.fromkeys(flat(list(map(self._resolve, value.args))))
        if self._varying.isdisjoint(reads):
            self._limit(name, var, value)
        else:
            self._varying.update(outputs)
        self._nodes.append(SourceNode(name, callee(value), tuple(reads), tuple(outputs)))

    def _limit(self, name: str, var: Any, value: Any) -> None:
        """Raise ModelError where too much is computed of constants."""
        for constant in {a for a in value.args if is_constant(a)} - self._stored:
            self._stored.add(constant)
            self._elements += _ELEMENTS_EACH * math.prod(shape_of(constant))
        elements = sum(math.prod(_sizes(each)) for each in getattr(var.ty, "fields", [var.ty]))
        longest = max((n for a in value.args for n in _sizes(getattr(a, "ty", None))), default=1)
        is_product = any(word in callee(value) for word in _PRODUCTS)
        self._elements -= elements
        self._work -= elements * longest if is_product else elements
        if self._elements < 0 or self._work < 0:
            raise ModelError(f"variable '{name}' computes too much of constants; store its result")

    def _read_alias(self, var: Any, value: Any) -> None:
        """A binding that computes nothing: another variable, an item of a tuple, a constant."""
        tensor = self._values[var] = self._resolve(value)
        if isinstance(tensor, str) and isinstance(value, relax.TupleGetItem):
            self._mark(var, tensor)

    def _mark(self, var: Any, tensor: str) -> None:
        self._marks[var] = mark(len(self._tensors))
        self._tensors.append(tensor)

    def _resolve(self, value: Any) -> Any:
        return resolve(value, self._values, lambda _: None)

    def _outputs(self, body: Any) -> tuple[str, ...]:
        """The name of each result; constants and repeated results get their position appended."""
        result = self._resolve(body)
        names: list[str] = []
        for i, field in enumerate(result if isinstance(result, list) else [result]):
            if isinstance(field, list):
                raise ModelError(
                    f"output {i} of '{ENTRY}' is a tuple inside a tuple; return a flat one"
                )
            if field is None or field in names:
                names.append(unused(f"{field or 'output'}.{i}", self._used_names))
            else:
                names.append(field)
        return tuple(names)


def _sizes(kind: Any) -> Iterable[int]:
    return fixed_sizes(kind) or ()


def _item_names(in_order: list[Any]) -> dict[Any, dict[int, str]]:
    """For each variable that holds a tuple, the first variable that takes item i out of it."""
    names: dict[Any, dict[int, str]] = {}
    for binding in in_order:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            names.setdefault(value.tuple_value, {}).setdefault(value.index, binding.var.name)
    return names
