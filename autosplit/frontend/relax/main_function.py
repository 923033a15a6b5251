"""Reads and rewrites the function ``main`` of a Relax module: its bindings and their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from autosplit.errors import ModelError, explained
from autosplit.extras import relax, transform, tvm, tvm_ffi
from autosplit.frontend.shapes import Shapes, bound_symbols, of_one_item, require_static

ENTRY = "main"


def bindings(function: Any) -> list[Any]:
    """The bindings of a Relax function in order. Raises ModelError if it has control flow."""
    in_order = [binding for block in function.body.blocks for binding in block.bindings]
    for binding in in_order:
        if isinstance(binding.value, relax.If):
            raise ModelError(
                f"variable '{binding.var.name}' is bound to control flow (If), "
                "which cannot be split"
            )
    return in_order


def renamed(module: Any, names: Mapping[Any, str]) -> Any:
    """The module with the variables of ``main`` in ``names`` renamed."""
    variables = {var: type(var)(name, var.ty) for var, name in names.items()}
    rename = relax.Var, lambda variable: variables.get(variable, variable)
    return with_main(module, tvm_ffi.structural_map(module[ENTRY], rename))


def with_calls(module: Any, change: Callable[[Any, Any], Any]) -> Any:
    """The module with the calls that ``main`` binds changed.

    ``change`` gets a mutator and a call, and returns that call where it stays.
    """

    def change_binding(mutator: Any, binding: Any) -> bool:
        if not isinstance(binding.value, relax.Call):
            return False
        rebind(mutator, binding.var, change(mutator, mutator.visit_expr(binding.value)))
        return True

    return with_bindings(module, change_binding)


def with_bindings(module: Any, change: Callable[[Any, Any], bool]) -> Any:
    """The module with bindings of ``main`` changed, and with all that the builder has added.

    ``change`` gets a mutator and a binding; where it returns False the binding stays.
    """
    mutator = _mutator()(module, change)
    main = mutator.visit_expr(module[ENTRY])
    return with_main(mutator.builder_.get(), main)


@cache
def _mutator() -> Any:
    """The only mutator class: TVM never frees a class, nor anything that its methods refer to."""

    @relax.expr_functor.mutator
    class Mutator(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, module: Any, change: Callable[[Any, Any], bool]) -> None:
            super().__init__(module)
            self.change = change

        def visit_var_binding_(self, binding: Any) -> None:
            if not self.change(self, binding):
                super().visit_var_binding_(binding)

    return Mutator


def rebind(mutator: Any, var: Any, value: Any, name: str = "") -> Any:
    """Inside a mutator, replace ``var`` by a new variable bound to ``value``, and return that one.

    Its name is ``name``, by default that of ``var``.
    """
    value = mutator.builder_.normalize(value)
    kind = relax.DataflowVar if isinstance(var, relax.DataflowVar) else relax.Var
    replacement = kind(name or var.name, value.ty)
    mutator.set_var_remap(var, replacement)
    mutator.builder_.emit_normalized(relax.VarBinding(replacement, value))
    return replacement


def with_main(module: Any, main: Any) -> Any:
    """A copy of the module with another ``main``."""
    functions = {g: main if g.name_hint == ENTRY else f for g, f in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)


def inlined(module: Any) -> Any:
    """The module with all Relax functions that ``main`` calls inlined into ``main``.

    Raises:
        ModelError: There is no ``main``, or a function calls itself.
    """
    callees = {g.name_hint: f for g, f in module.functions.items() if isinstance(f, relax.Function)}
    main = callees.pop(ENTRY, None)
    names = ", ".join(sorted(callees))
    if main is None:
        raise ModelError(
            f"the module has no function '{ENTRY}' (it has {names or 'no Relax function'}); "
            f"rename the one to split to '{ENTRY}'"
        )
    with explained(ModelError, f"functions {names} cannot be inlined into '{ENTRY}'"):
        main = main.inline_functions(callees) if callees else main
    remaining = {g: f for g, f in module.functions.items() if g.name_hint not in callees}
    # All calls are inlined now: a function still called calls itself, directly or through others.
    called = {variable.name_hint for variable in relax.analysis.all_global_vars(main)}
    for name in sorted(called & {ENTRY, *callees}):
        raise ModelError(
            f"function '{name}' of the module calls itself, which cannot be split; unroll the calls"
        )
    return with_main(tvm.IRModule(remaining, attrs=module.attrs), main)


def bind_shapes(module: Any, shapes: Shapes, batch: int) -> Any:
    """The module with its symbolic sizes bound by the shapes of its inputs, for ``batch`` items.

    Raises:
        ConfigError: The shapes do not fit the inputs.
        ModelError: An input is no tensor, has no room for a batch, or a size of it stays unknown.
    """
    declared = {param.name: _sizes(param) for param in module[ENTRY].params}
    fixed = [n for n, sizes in declared.items() if not sizes or isinstance(sizes[0], int)]
    if batch > 1 and fixed:
        raise ModelError(f"the first axis of input '{fixed[0]}' has a fixed length; use batch 1")
    items = of_one_item(declared, shapes).items()
    shapes = {n: (*(batch * size for size in shape[:1]), *shape[1:]) for n, shape in items}
    for _ in range(2):  # once n is known, n * 2 has to agree with the shapes
        sizes_of = {param.name: _sizes(param) for param in module[ENTRY].params}
        symbols = bound_symbols(sizes_of, shapes)
        numbers = {size: n for size, n in symbols.items() if isinstance(size, tvm.tirx.Var)}
        module = transform.BindSymbolicVars(numbers, ENTRY)(module) if numbers else module
    for param in module[ENTRY].params:
        require_static(param.name, _sizes(param))
        if str(param.ty.dtype) in ("", "void", "None"):
            raise ModelError(f"input '{param.name}' has no element type; declare it in the module")
    return module


def _sizes(param: Any) -> list[Any]:
    if not isinstance(param.ty, relax.TensorType):
        problem = f"input '{param.name}' is a {type(param.ty).__name__}; only tensors can be split"
        raise ModelError(problem)
    sizes = getattr(param.ty.shape, "values", None)
    if sizes is None:
        raise ModelError(
            f"input '{param.name}' has a shape without sizes; "
            'declare it, e.g. R.Tensor(("n", 4), "float32")'
        )
    return [int(size.value) if hasattr(size, "value") else size for size in sizes]
