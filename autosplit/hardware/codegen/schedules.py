"""Schedules for kernels: from a tuning database the user names, else from the records that ship with the package.

A shipped record is a trace of MetaSchedule by the structural hash of the kernel it was found for; it holds for any CPU
target, for a schedule changes how a kernel runs and not what it computes.
On a GPU a kernel without a record takes TVM's default rules.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

SHIPPED = "schedules.json.gz"


def schedule(
    functions: Mapping[str, Any], target: Any, tuning: Path | None = None
) -> dict[str, Any]:
    """The kernels by name, scheduled where a record is known. Raises ConfigError where ``tuning`` holds no database."""
    done = _from_database(functions, tuning, target) if tuning else dict(functions)
    if target.kind.name != "llvm":
        return {name: f if is_scheduled(f) else _on_gpu(f, target) for name, f in done.items()}
    return {name: _shipped(f) if f.same_as(functions[name]) else f for name, f in done.items()}


def key_of(function: Any) -> str:
    """What a shipped record goes by: the structural hash, which no name in the kernel changes."""
    import tvm_ffi

    plain = (
        function.without_attr("global_symbol")
        if "global_symbol" in (function.attrs or {})
        else function
    )
    plain = plain.with_attr("tirx.noalias", True)  # as the tuner sets it
    return f"{tvm_ffi.structural_hash(plain) & (1 << 64) - 1:016x}"


def _from_database(functions: Mapping[str, Any], folder: Path, target: Any) -> dict[str, Any]:
    import tvm
    from tvm import relax

    from autosplit.hardware.codegen.tuning import database, quiet

    with target, database(folder), quiet():
        module = relax.transform.MetaScheduleApplyDatabase()(tvm.IRModule(dict(functions)))
    scheduled = {g.name_hint: f for g, f in module.functions.items()}
    return {
        name: scheduled[name] if is_scheduled(scheduled[name]) else f
        for name, f in functions.items()
    }


def _shipped(function: Any) -> Any:
    """The kernel as its shipped record says; as it is where there is none, or where the record does not fit."""
    import tvm
    from tvm import s_tir

    trace = shipped().get(key_of(function))
    if trace is None:
        return function
    try:
        plain = tvm.IRModule(
            {"main": function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)}
        )
        changed = s_tir.Schedule(plain)
        s_tir.schedule.Trace.apply_json_to_schedule(trace, changed)
        return changed.mod["main"].with_attr("tirx.is_scheduled", True)
    except (
        Exception
    ):  # TVM raises errors of many kinds, and none of them is worse than an unscheduled kernel
        return function


def _on_gpu(function: Any, target: Any) -> Any:
    """The kernel by the first of TVM's default GPU rules that fits; as it is where none does, and then it cannot be built."""
    import tvm
    from tvm.s_tir import dlight

    rules = dlight.gpu
    chosen = (
        rules.Matmul(),
        rules.GEMV(),
        rules.Reduction(),
        rules.GeneralReduction(),
        rules.Fallback(),
    )
    try:
        with target:
            return dlight.ApplyDefaultSchedule(*chosen)(tvm.IRModule({"main": function}))["main"]
    except Exception:  # TVM raises errors of many kinds
        return function


@cache
def shipped() -> Mapping[str, Any]:
    """The records that ship with the package, by ``key_of`` of their kernel."""
    file = resources.files("autosplit.hardware.codegen").joinpath(SHIPPED)
    if not file.is_file():
        return {}
    found: Mapping[str, Any] = json.loads(gzip.decompress(file.read_bytes()))["traces"]
    return found


def is_scheduled(function: Any) -> bool:
    """Whether ``schedule`` found a schedule for the kernel."""
    return bool((function.attrs or {}).get("tirx.is_scheduled", False))
