"""The schedule of each kernel: from a tuning database, else from the records in the package.

A shipped record is a trace of MetaSchedule by the structural hash of its kernel. It holds for any
CPU target, for a schedule changes how a kernel runs and not what it computes. On a GPU a kernel
without a record takes TVM's default rules.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from autosplit.hardware.codegen.rules.rule import scheduled_by_rule
from autosplit.hardware.codegen.tuning_database import database, quiet

SHIPPED = "schedules.json.gz"


def schedule(
    functions: Mapping[str, Any], target: Any, tuning: Path | None = None
) -> dict[str, Any]:
    """The kernels by name, each scheduled where a record is known.

    Raises ConfigError where the folder ``tuning`` holds no database.
    """
    tuned = _from_database(functions, tuning, target) if tuning else {}
    scheduled = {}
    for name, function in functions.items():
        if name in tuned:
            scheduled[name] = tuned[name]
        elif target.kind.name == "llvm":
            scheduled[name] = scheduled_by_rule(function, target) or function
        else:
            scheduled[name] = _on_gpu(function, target)
    return scheduled


def is_scheduled(function: Any) -> bool:
    """Whether ``schedule`` has a schedule for the kernel."""
    return bool((function.attrs or {}).get("tirx.is_scheduled", False))


def key_of(function: Any) -> str:
    """The key of a shipped record: the structural hash, which no name in the kernel changes."""
    import tvm_ffi

    if "global_symbol" in (function.attrs or {}):
        function = function.without_attr("global_symbol")
    # The tuner sets this attribute.
    function = function.with_attr("tirx.noalias", True)
    return f"{tvm_ffi.structural_hash(function) & (1 << 64) - 1:016x}"


@cache
def shipped() -> Mapping[str, Any]:
    """The records that ship with the package, by ``key_of`` of their kernel."""
    file = Path(__file__).with_name(SHIPPED)
    if not file.is_file():
        return {}
    traces: Mapping[str, Any] = json.loads(gzip.decompress(file.read_bytes()))["traces"]
    return traces


def _from_database(functions: Mapping[str, Any], folder: Path, target: Any) -> dict[str, Any]:
    """The kernels that the database has a record of, scheduled."""
    import tvm
    from tvm import relax

    with target, database(folder), quiet():
        module = relax.transform.MetaScheduleApplyDatabase()(tvm.IRModule(dict(functions)))
    return {gvar.name_hint: f for gvar, f in module.functions.items() if is_scheduled(f)}


def _shipped(function: Any) -> Any:
    """The kernel by its shipped record; as it is where there is none or it does not fit."""
    import tvm
    from tvm import s_tir

    trace = shipped().get(key_of(function))
    if trace is None:
        return function
    main = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    try:
        sch = s_tir.Schedule(tvm.IRModule({"main": main}))
        s_tir.schedule.Trace.apply_json_to_schedule(trace, sch)
    except Exception:  # TVM raises errors of many kinds; none is worse than no schedule
        return function
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def _on_gpu(function: Any, target: Any) -> Any:
    """The kernel by the first of TVM's default GPU rules that fits.

    Where none does it stays as it is, and cannot be built.
    """
    import tvm
    from tvm.s_tir import dlight

    gpu = dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    try:
        with target:
            return dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": function}))["main"]
    except Exception:  # TVM raises errors of many kinds
        return function
