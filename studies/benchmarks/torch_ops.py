"""PyTorch's own samples of its operators: how many equal torch, and how many are refused.

    python -m studies.benchmarks.torch_ops [TEXT ...] [--count N] [--seed N] [-o FILE]

TEXT keeps the operators with it in their names; N are drawn by a seed. The samples are those that
PyTorch tests its operators with: of each the first one in float32 whose tensors have dimensions and
are not empty, or where there is none the first one. Complex results are taken as pairs of numbers.
A sample is exported by torch, split after its first op and compared with torch: in TVM, or in
onnxruntime where an op is opaque. Those do not count that torch cannot export or that give no dense
tensor. Needs the packages torch and expecttest. Bars: at least 80 % are equal, none differs,
crashes or hangs, and the remaining ones are refused by name.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from autosplit import api
from autosplit.errors import line_of
from autosplit.extras import require
from autosplit.hardware.isolation.worker import Handler
from studies.benchmarks import verdicts
from studies.benchmarks.result import arguments, finish

NO_TENSORS, NOT_EXPORTED = "no dense tensor", "not exported by torch"
SHARE, SECONDS = 0.8, 120.0


def main() -> int:
    # A worker imports the function by its module, which is not the one that runs as a program.
    from studies.benchmarks import torch_ops

    parser = arguments(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--count", type=int, metavar="N", help="operators to draw (default all)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    args = parser.parse_args()
    names = verdicts.named(operators(), args.texts)
    if args.count and args.count < len(names):
        names = sorted(random.Random(args.seed).sample(names, args.count))
    judged = verdicts.judge_apart(torch_ops.open_operators, names, SECONDS)
    rows, bars = verdicts.counted(judged, "operators", SHARE, NOT_EXPORTED, NO_TENSORS)
    notes = verdicts.listed(judged, (verdicts.REFUSED, verdicts.DIFFERS, verdicts.FAILS))
    columns = ("verdict", "operators")
    return finish("torch_ops", columns, rows, notes=notes, bars=bars, file=args.file)


def operators() -> dict[str, Any]:
    """PyTorch's descriptions of its operators that take float32 on a CPU, by name."""
    torch = require("torch", "torch")
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        sys.exit(f"torch_ops: {line_of(error)}; pip install expecttest")
    fitting = [op for op in op_db if op.supports_dtype(torch.float32, "cpu")]
    return {".".join(filter(None, (op.name, op.variant_test_name))): op for op in fitting}


def open_operators(setting: Mapping[str, Any]) -> Handler:
    """An OpenHandler; a job names an operator in ``kind``."""
    known = operators()
    return lambda job: judge(known[job["kind"]])


def judge(operator: Any) -> verdicts.Verdict:
    """The verdict on the first sample of an operator and the reason for it."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = operator.sample_inputs("cpu", torch.float32)
        calls = [_call(operator, (s.input, s.args, s.kwargs)) for s in samples]
        if not calls:
            return NO_TENSORS, ""
        usual = (call for call in calls if all(t.ndim and t.numel() for t in call[1]))
        module, tensors = next(usual, calls[0])
        if not tensors or any(tensor.layout != torch.strided for tensor in tensors):
            return NO_TENSORS, ""
        try:
            program = torch.export.export(module, tensors)
        except Exception as error:  # whatever torch raises
            return NOT_EXPORTED, line_of(error)
    names = program.graph_signature.user_inputs
    items = [{name: t.numpy() for name, t in zip(names, tensors, strict=True)}]
    return verdicts.judge(
        lambda runtime: api.load_model(program, runtime=runtime), verdicts.after_first_op, items
    )


def _call(operator: Any, arguments: tuple[Any, Any, Any]) -> tuple[Any, tuple[Any, ...]]:
    """A module that calls an operator, and the tensors it takes; the rest is a part of it."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, tree = pytree.tree_flatten(arguments)
    is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            rest = iter(tensors)
            values = [next(rest) if t else v for t, v in zip(is_tensor, leaves, strict=True)]
            first, others, named = pytree.tree_unflatten(values, tree)
            return pytree.tree_map_only(
                torch.Tensor, _as_real, operator.op(first, *others, **named)
            )

    tensors = [leaf for leaf, t in zip(leaves, is_tensor, strict=True) if t]
    return Call().eval(), tuple(tensors)


def _as_real(tensor: Any) -> Any:
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


if __name__ == "__main__":
    sys.exit(main())
