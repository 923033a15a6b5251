"""Fuses a model once, before any cut, so that a split never undoes a fusion.

Source names are kept, although passes rename variables, split one op into several and fuse several
into one: a variable that only renames another holds the same tensor (``adopt_names``), and FuseOps
moves calls, but keeps what each one calls and its arguments (``attribution.match``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from autosplit.errors import ModelError, explained
from autosplit.extras import relax, transform
from autosplit.frontend.relax.main_function import bindings, renamed
from autosplit.frontend.source import marked
from autosplit.lowering.fuse.constants import fold_others, fold_weights
from autosplit.lowering.fuse.indices import bound_lookups
from autosplit.lowering.layout.channels_last import channels_last
from autosplit.lowering.layout.convolution import legalize_convolutions
from autosplit.lowering.layout.matmul import legalize_matmul
from autosplit.lowering.layout.tiles import registers_of


@dataclass(frozen=True)
class FusedModule:
    """A module before, during and after fusion.

    ``flat`` has one kernel per op. ``grouped`` calls fused functions; equal ones share one.
    ``fused`` has one PrimFunc per fused op. The last two bind the same calls in the same order.
    """

    flat: Any
    grouped: Any
    fused: Any


def fuse(module: Any, target: Any) -> FusedModule:
    """Lower and fuse the function ``main`` of ``module``. Raises ModelError where a pass fails."""
    simplify = [
        transform.FoldBatchnormToConv2D(),
        transform.DecomposeOpsForInference(),
        bound_lookups,
        fold_weights,
        fold_others,
    ]
    registers = registers_of(target)
    packed = {**legalize_convolutions(registers), "relax.matmul": legalize_matmul(registers)}
    # On a GPU TVM's default schedules expect its own operators in the layout of the source.
    layout = [transform.CanonicalizeBindings(), channels_last]
    if target.kind.name != "llvm":
        layout, packed = [], {}
    legalise = [
        transform.CanonicalizeBindings(),
        # LegalizeOps does not lower sorting.
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(packed),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.DeadCodeElimination(["main"]),
    ]
    problem = f"the model cannot be lowered for target {target.kind.name}"
    with explained(ModelError, problem), target, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = adopt_names(module)
        for passes in (simplify, layout, legalise):
            for each in passes:
                module = each(module)
            module = adopt_names(module)
        grouped = transform.FuseOps()(module)
        return FusedModule(module, grouped, transform.FuseTIR()(grouped))


def adopt_names(module: Any) -> Any:
    """Give the mark of a source tensor to every variable that only renames the marked one.

    Run before a pass that removes such renamings, so that whichever name survives has the mark.
    """
    main, params = module["main"], set(module["main"].params)
    # For each variable, the first one with the same value. Parameters are left out, because they
    # keep their names.
    first_of: dict[Any, Any] = {}
    marks: dict[Any, str] = {}
    tuples: dict[Any, Any] = {}
    for binding in bindings(main):
        value: Any = binding.value if isinstance(binding, relax.VarBinding) else None
        if isinstance(value, relax.Tuple):
            tuples[binding.var] = value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
            value = tuples[value.tuple_value].fields[value.index]
        is_alias = isinstance(value, relax.Var) and value not in params
        first = first_of[binding.var] = first_of.get(value, value) if is_alias else binding.var
        if marked(binding.var.name) is not None:
            marks.setdefault(first, binding.var.name)
    names = {var: marks[first] for var, first in first_of.items() if first in marks}
    names = {var: name for var, name in names.items() if var.name != name}
    return renamed(module, names) if names else module
