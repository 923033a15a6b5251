"""The schedule of each kernel: from a tuning database, else by rule.

On a GPU a kernel without a record takes TVM's default rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autosplit.extras import relax, s_tir, tirx, tvm, tvm_ffi
from autosplit.hardware.codegen.rules.rule import scheduled_by_rule
from autosplit.hardware.codegen.tuning_database import database, quiet
from autosplit.lowering.special_values import keep_special_values
from autosplit.lowering.vector_math import vectorize_math


def schedule(
    functions: Mapping[str, Any], target: Any, tuning: Path | None = None
) -> dict[str, Any]:
    """The kernels by name, each scheduled where a record or a rule fits.

    Raises ConfigError where the folder ``tuning`` holds no database.
    """
    tuned = _from_database(functions, tuning, target) if tuning else {}
    scheduled = {}
    for name, function in functions.items():
        if name in tuned:
            scheduled[name] = tuned[name]
        elif target.kind.name == "llvm":
            # A kernel that a model file brings with a schedule keeps it.
            by_rule = None if is_scheduled(function) else scheduled_by_rule(function, target)
            scheduled[name] = by_rule or function
        else:
            scheduled[name] = _on_gpu(function, target)
    return scheduled


def is_scheduled(function: Any) -> bool:
    """Whether ``schedule`` found a schedule for the kernel."""
    return bool((function.attrs or {}).get("tirx.is_scheduled", False))


def completed(function: Any, threads: bool) -> Any:
    """A scheduled kernel as LLVM compiles it; without ``threads`` for a stage with one thread."""
    return keep_special_values(vectorize_math(function if threads else _serial(function)))


def _serial(function: Any) -> Any:
    """The kernel without parallel loops, which hide from LLVM what aliases what."""

    def plain(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        kind = tirx.ForKind.SERIAL
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, kind, loop.body, None, loop.annotations
        )

    return tvm_ffi.structural_map(function, (tirx.For, plain))


def _from_database(functions: Mapping[str, Any], folder: Path, target: Any) -> dict[str, Any]:
    """The kernels that the database has a record of, scheduled."""
    with target, database(folder), quiet():
        open_kernels = {name: f for name, f in functions.items() if not is_scheduled(f)}
        module = relax.transform.MetaScheduleApplyDatabase()(tvm.IRModule(open_kernels))
    return {gvar.name_hint: f for gvar, f in module.functions.items() if is_scheduled(f)}


def _on_gpu(function: Any, target: Any) -> Any:
    """The kernel by the first of TVM's default GPU rules that fits.

    Where none does it stays as it is, and cannot be built.
    """
    gpu = s_tir.dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    try:
        with target:
            module = s_tir.dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": function}))
            return module["main"]
    except Exception:  # TVM raises errors of many kinds
        return function
