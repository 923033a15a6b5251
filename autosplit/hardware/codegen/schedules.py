"""The schedule of each kernel: from a tuning database, else by rule.

On a GPU a kernel without a record takes TVM's default rules. The database has the format of
MetaSchedule, so databases of the same kernels can be exchanged with other tools.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, MachineError, explained
from autosplit.extras import meta_schedule as ms
from autosplit.extras import relax, s_tir, tirx, tvm, tvm_ffi
from autosplit.hardware.codegen.rules.blocks import named_blocks
from autosplit.hardware.codegen.rules.plain import schedule_plain, schedule_swap
from autosplit.hardware.codegen.rules.products import schedule_product
from autosplit.lowering.layout.convolution import PACKED as CONVOLUTION
from autosplit.lowering.layout.matmul import PACKED as MATMUL
from autosplit.lowering.layout.order import SWAP
from autosplit.lowering.layout.tiles import registers_of
from autosplit.lowering.special_values import keep_special_values
from autosplit.lowering.vector_math import vectorize_math

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def schedule(
    functions: Mapping[str, Any], target: Any, tuning: Path | None = None
) -> dict[str, Any]:
    """The kernels by name, each scheduled where a record or a rule fits.

    Raises ConfigError where the folder ``tuning`` holds no database.
    """
    tuned = _from_database(functions, tuning, target) if tuning else {}
    rule = _by_rule if target.kind.name == "llvm" else _on_gpu
    return {name: tuned.get(name) or rule(f, target) for name, f in functions.items()}


def is_scheduled(function: Any) -> bool:
    """Whether ``schedule`` found a schedule for the kernel."""
    return bool((function.attrs or {}).get("tirx.is_scheduled", False))


def completed(function: Any, threads: bool) -> Any:
    """Prepare a scheduled kernel for LLVM; without ``threads`` for a stage with one thread."""
    return keep_special_values(vectorize_math(function if threads else _serial(function)))


def _serial(function: Any) -> Any:
    """Make parallel loops serial, because they hide from LLVM which buffers may alias."""

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
    with target, database(folder):
        open_kernels = {name: f for name, f in functions.items() if not is_scheduled(f)}
        module = relax.transform.MetaScheduleApplyDatabase()(tvm.IRModule(open_kernels))
    return {gvar.name_hint: f for gvar, f in module.functions.items() if is_scheduled(f)}


def _by_rule(function: Any, target: Any) -> Any:
    """Schedule a kernel by the rule that fits; where none does, return it unchanged.

    A kernel that is scheduled in the model file stays unchanged too. A rule does not fit where one
    of its steps raises ScheduleError; after any other error there is also a warning.
    """
    # TVM cannot build a product of a vector and a single number of bfloat16.
    has_bfloat16 = any(str(param.dtype) == "bfloat16" for param in function.params)
    if is_scheduled(function) or has_bfloat16:
        return function
    main = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    registers = registers_of(target)
    try:
        sch = s_tir.Schedule(tvm.IRModule({"main": main}))
        blocks = named_blocks(sch)
        names = [name for name in blocks if name in (CONVOLUTION, MATMUL)]
        if len(names) == 1:
            schedule_product(sch, names[0], registers)
        elif SWAP in blocks:
            schedule_swap(sch, blocks[SWAP])
        else:
            schedule_plain(sch, registers)
    except s_tir.ScheduleError:
        return function
    except Exception as error:  # TVM raises errors of many kinds
        warnings.warn(f"no schedule for a kernel: {error!r}", stacklevel=2)
        return function
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def _on_gpu(function: Any, target: Any) -> Any:
    """Schedule a kernel by TVM's first default GPU rule that fits; without one it is not built."""
    gpu = s_tir.dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    try:
        with target:
            module = s_tir.dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": function}))
            return module["main"]
    except Exception:  # TVM raises errors of many kinds
        return function


def require(folder: Path) -> None:
    """Raises ConfigError where ``folder`` has no tuning database."""
    if not all((folder / name).is_file() for name in (WORKLOADS, RECORDS)):
        raise ConfigError(
            f"'{folder}' has no tuning database ({WORKLOADS}, {RECORDS}); "
            "`autosplit tune` makes one"
        )


def database(folder: Path, create: bool = False) -> Any:
    """The database in ``folder``.

    Raises ConfigError where it is damaged or, without ``create``, absent; MachineError where the
    folder cannot be created.
    """
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(f"cannot write the database '{folder}': {error.strerror}") from error
    else:
        require(folder)
    with explained(ConfigError, f"the tuning database '{folder}' is damaged"):
        return ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
