"""Names through lowering: which source tensor a Relax variable holds, and which binding a fused call came from.

Passes rename variables, split one op into several and fuse several into one. Two facts carry the names across: a variable
that only renames another holds the same tensor (``adopt_names``), and FuseOps moves calls without changing what they call
on what (``attribution.match``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.source import marked


def bindings(function: Any) -> list[Any]:
    """The bindings of a Relax function in order. Raises ModelError where it holds control flow."""
    from tvm import relax

    if not isinstance(function.body, relax.SeqExpr):
        raise ModelError("the module's function 'main' is not a sequence of bindings; normalise it first")
    found = [b for block in function.body.blocks for b in block.bindings]
    for binding in found:
        if isinstance(getattr(binding, "value", None), relax.If):
            raise ModelError(f"variable '{binding.var.name}' is bound to control flow (If), which cannot be split")
    return found


def adopt_names(module: Any) -> Any:
    """Give the mark of a source tensor to every variable that is only another name of the marked one.

    Run before a pass that removes such renamings, so that whichever name survives carries the mark.
    """
    main = module["main"]
    classes = _aliases(bindings(main), set(main.params))
    names = {var: name for members in classes if (name := _mark_of(members)) for var in members if var.name != name}
    return renamed(module, names) if names else module


def _aliases(found: list[Any], params: set[Any]) -> list[list[Any]]:
    """Classes of variables that hold the same value, each in order of definition; parameters keep their names."""
    from tvm import relax

    parent: dict[Any, Any] = {}
    tuples: dict[Any, Any] = {}
    for binding in found:
        value = binding.value if isinstance(binding, relax.VarBinding) else None
        if isinstance(value, relax.Tuple):
            tuples[binding.var] = value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
            value = tuples[value.tuple_value].fields[value.index]
        same = isinstance(value, relax.Var) and value not in params
        parent[binding.var] = parent.get(value, value) if same else binding.var
    classes: dict[Any, list[Any]] = {}
    for var, root in parent.items():
        classes.setdefault(root, []).append(var)
    return [members for members in classes.values() if len(members) > 1]


def _mark_of(members: list[Any]) -> str | None:
    return next((var.name for var in members if marked(var.name) is not None), None)


def renamed(module: Any, names: Mapping[Any, str]) -> Any:
    """The module with some variables that ``main`` binds called otherwise."""
    from tvm import relax

    @relax.expr_functor.mutator
    class Rename(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            if binding.var in names:
                rebind(self, binding.var, self.visit_expr(binding.value), names[binding.var])
            else:
                super().visit_var_binding_(binding)

    return with_main(module, Rename(module).visit_expr(module["main"]))


def rebind(mutator: Any, var: Any, value: Any, name: str) -> None:
    """Inside a mutator, bind ``value`` to a variable called ``name`` that takes the place of ``var``, output or not."""
    from tvm import relax

    value = mutator.builder_.normalize(value)
    kind = relax.DataflowVar if isinstance(var, relax.DataflowVar) else relax.Var
    new = kind(name, value.ty)
    mutator.set_var_remap(var.vid if hasattr(var, "vid") else var, new)
    mutator.builder_.emit_normalized(relax.VarBinding(new, value))


def with_main(module: Any, main: Any) -> Any:
    """A copy of the module with another ``main``; the module given stays as it is."""
    import tvm

    functions = {g: main if g.name_hint == "main" else f for g, f in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)
