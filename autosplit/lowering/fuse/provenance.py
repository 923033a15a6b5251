"""Source names through passes: which variables hold the same source tensor.

Passes rename variables, split one op into several and fuse several into one. Two facts carry the
names across: a variable that only renames another holds the same tensor (``adopt_names``), and
FuseOps moves calls without changing what they call on what (``attribution.match``).
"""

from __future__ import annotations

from typing import Any

from autosplit.extras import relax
from autosplit.frontend.relax.main_function import bindings, renamed
from autosplit.frontend.source import marked


def adopt_names(module: Any) -> Any:
    """Give the mark of a source tensor to every variable that only renames the marked one.

    Run before a pass that removes such renamings, so that whichever name survives has the mark.
    """
    main = module["main"]
    names: dict[Any, str] = {}
    for variables in _aliases(bindings(main), set(main.params)):
        marks = [var.name for var in variables if marked(var.name) is not None]
        for var in variables if marks else ():
            if var.name != marks[0]:
                names[var] = marks[0]
    return renamed(module, names) if names else module


def _aliases(main: list[Any], params: set[Any]) -> list[list[Any]]:
    """Sets of variables that hold the same value, each in order of definition.

    Parameters are in none, for they keep their names.
    """
    root: dict[Any, Any] = {}
    tuples: dict[Any, Any] = {}
    for binding in main:
        value: Any = binding.value if isinstance(binding, relax.VarBinding) else None
        if isinstance(value, relax.Tuple):
            tuples[binding.var] = value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
            value = tuples[value.tuple_value].fields[value.index]
        is_alias = isinstance(value, relax.Var) and value not in params
        root[binding.var] = root.get(value, value) if is_alias else binding.var
    classes: dict[Any, list[Any]] = {}
    for var, first in root.items():
        classes.setdefault(first, []).append(var)
    return [variables for variables in classes.values() if len(variables) > 1]
