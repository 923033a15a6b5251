"""How many of ONNX's own node test cases equal onnxruntime in autosplit, and how many are refused.

    python -m studies.benchmarks.onnx_cases [TEXT ...] [-o FILE]

TEXT selects the cases that have it in their names. The cases come with the package onnx. Only those
count whose tensors are all numeric and that onnxruntime runs. Each is split after its first op and
run with the inputs of the case: in TVM, or in onnxruntime where an op is opaque. Bars: at least
97 % are equal, none differs, crashes or hangs, and the remaining ones are refused by name.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from autosplit import api
from autosplit.errors import AutosplitError, line_of
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_step
from studies.benchmarks import verdicts
from studies.benchmarks.result import arguments

NO_NUMBERS, NOT_RUN = "no tensors of numbers", "not run by onnxruntime"
SHARE, SECONDS = 0.97, 120.0
STRING = 8  # the type of elements


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT", default=[""])
    args = parser.parse_args()
    names = [name for name in cases() if any(text in name for text in args.texts)]
    judged = verdicts.judge_apart("onnx_cases", names, SECONDS)
    others, listed = (NOT_RUN, NO_NUMBERS), (verdicts.REFUSED, verdicts.DIFFERS, verdicts.FAILS)
    return verdicts.report("onnx_cases", "cases", judged, SHARE, others, listed, args.file)


@cache
def cases() -> dict[str, Any]:
    """ONNX's node cases by name."""
    from onnx.backend.test.loader import load_model_tests

    # Loading the cases computes their outputs, some of which overflow their type.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def judge(name: str) -> verdicts.Verdict:
    """The verdict on a case and the reason for it."""
    import onnx

    case = cases()[name]
    proto = case.model
    for port in (*proto.graph.input, *proto.graph.output):
        if not port.type.HasField("tensor_type") or port.type.tensor_type.elem_type == STRING:
            return NO_NUMBERS, ""
    names = [port.name for port in proto.graph.input]
    items = [dict(zip(names, map(_array, values), strict=False)) for values, _ in case.data_sets]
    with tempfile.TemporaryDirectory(prefix="autosplit-case-") as folder:
        path = Path(folder) / "case.onnx"
        onnx.save(proto, path)
        shapes = {name: a.shape for name, a in items[0].items() if a.size}
        try:
            expected = list(map(onnxruntime_step(path), items))
        except AutosplitError as error:
            return NOT_RUN, line_of(error)
        return verdicts.judge(
            lambda runtime: api.load_model(path, shapes, runtime=runtime),
            _after_first_op,
            items,
            expected,
        )


def _after_first_op(model: api.Model) -> api.Split:
    """The model cut after its first op, or as one stage if that cut is refused."""
    if len(model.graph.ops) > 1:
        with contextlib.suppress(AutosplitError):
            return model.split([[model.graph.ops[0].name]])
    return model.split([])


def _array(value: Any) -> np.ndarray[Any, Any]:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


if __name__ == "__main__":
    sys.exit(main())
