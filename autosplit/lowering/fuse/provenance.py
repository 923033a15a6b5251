"""Names through lowering: which source tensor a Relax variable holds, and which binding a fused call came from.

Passes rename variables, split one op into several and fuse several into one. Two facts carry the names across: a variable
that only renames another holds the same tensor (``adopt_names``), and FuseOps moves calls without changing what they call
on what (``attribution.match``).
"""

from __future__ import annotations

from typing import Any

from autosplit.frontend.relax.main_function import bindings, renamed
from autosplit.frontend.source import marked


def adopt_names(module: Any) -> Any:
    """Give the mark of a source tensor to every variable that is only another name of the marked one.

    Run before a pass that removes such renamings, so that whichever name survives carries the mark.
    """
    main = module["main"]
    classes = _aliases(bindings(main), set(main.params))
    names = {
        var: name
        for members in classes
        if (name := _mark_of(members))
        for var in members
        if var.name != name
    }
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
