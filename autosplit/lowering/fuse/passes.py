"""Fusing once, before any cut, so that a split never undoes a fusion."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import relax, transform
from autosplit.lowering.fuse.constants import fold_others, fold_weights
from autosplit.lowering.fuse.indices import bound_lookups
from autosplit.lowering.fuse.provenance import adopt_names
from autosplit.lowering.layout.channels_last import channels_last
from autosplit.lowering.layout.convolution import legalize_convolutions
from autosplit.lowering.layout.matmul import legalize_matmul
from autosplit.lowering.layout.tiles import registers_of


@dataclass(frozen=True)
class FusedModule:
    """One module at three moments.

    ``flat`` has a kernel an op. ``grouped`` calls fused functions; equal ones share one. ``fused``
    has one PrimFunc a fused op. The last two bind the same calls in the same order.
    """

    flat: Any
    grouped: Any
    fused: Any


def fuse(module: Any, target: Any, check: Callable[[Any, bool], None]) -> FusedModule:
    """Lower and fuse the function ``main`` of ``module``. Raises ModelError where a pass fails.

    ``check`` gets the module before and after constants are folded, and whether they are. It
    raises ModelError for a module that cannot be lowered.
    """
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
    layout = [transform.CanonicalizeBindings(), fold_weights, channels_last]
    if target.kind.name != "llvm":
        layout, packed = [], {}
    legalise = [
        transform.CanonicalizeBindings(),
        # LegalizeOps leaves sorting to it.
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(packed),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.DeadCodeElimination(["main"]),
    ]
    with target, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = adopt_names(module)
            check(module, False)
            module = adopt_names(_run(simplify, module))
            check(module, True)
            module = adopt_names(_run(layout, module))
            module = adopt_names(_run(legalise, module))
            check(module, True)
            grouped = transform.FuseOps()(module)
            return FusedModule(module, grouped, transform.FuseTIR()(grouped))
        except ModelError:
            raise
        except Exception as error:  # TVM raises errors of many kinds
            raise ModelError(
                f"the model cannot be lowered for target {target.kind.name}: "
                f"{line_of(error, last=True)}"
            ) from error


def _run(passes: list[Any], module: Any) -> Any:
    for each in passes:
        module = each(module)
    return module
