"""The schedule of a kernel by the first rule that fits."""

from __future__ import annotations

import warnings
from typing import Any

from autosplit.extras import s_tir, tvm
from autosplit.hardware.codegen.rules.blocks import named_blocks
from autosplit.hardware.codegen.rules.plain import schedule_plain, schedule_swap
from autosplit.hardware.codegen.rules.products import schedule_product
from autosplit.lowering.layout.convolution import PACKED as CONVOLUTION
from autosplit.lowering.layout.matmul import PACKED as MATMUL
from autosplit.lowering.layout.order import SWAP
from autosplit.lowering.layout.tiles import registers_of


def scheduled_by_rule(function: Any, target: Any) -> Any | None:
    """The kernel with its schedule, None where no rule fits.

    A rule does not fit where a step of it raises ScheduleError; another error is a warning too.
    """
    main = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    registers = registers_of(target)
    # TVM cannot build a product of a vector and a single number of bfloat16.
    if any(str(param.dtype) == "bfloat16" for param in function.params):
        return None
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
        return None
    except Exception as error:  # TVM raises errors of many kinds
        warnings.warn(f"no schedule for a kernel: {error!r}", stacklevel=2)
        return None
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)
