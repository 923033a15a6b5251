"""Indices that stay inside the tensor they look into.

TVM's kernels of lookups do not check their indices: one that is out of bounds reads or overwrites
memory that is not the tensor's. The indices of a model file are constants as often as inputs.
"""

from __future__ import annotations

from typing import Any

from autosplit.extras import relax, topi, tvm
from autosplit.frontend.relax.kernel_bounds import clamped
from autosplit.frontend.relax.main_function import with_kernels

LOOKUPS = frozenset({
    "relax.gather_elements", "relax.gather_nd", "relax.index_put", "relax.index_tensor",
    "relax.multinomial_from_uniform", "relax.nn.nll_loss", "relax.reverse_sequence",
    "relax.scatter_elements", "relax.scatter_nd", "relax.take",
})  # fmt: skip


def bound_lookups(module: Any) -> Any:
    """Make the kernels of lookups, where an index out of bounds means the nearest element.

    Other calls stay as they are. A target must be in scope.
    """
    others = [name for name in tvm.ir.Op.list_op_names() if name not in LOOKUPS]
    legalize = relax.transform.LegalizeOps({"relax.take": _legalize_take}, skip_ops=others)
    return with_kernels(legalize(relax.backend.DispatchSampling()(module)), clamped)


def _legalize_take(builder: Any, call: Any) -> Any:
    # TVM warns on standard error of its mode without a check.
    mode = "clip" if call.attrs.mode == "fast" else call.attrs.mode
    data, indices = call.args
    return builder.call_te(topi.take, data, indices, call.attrs.axis, mode=mode)
