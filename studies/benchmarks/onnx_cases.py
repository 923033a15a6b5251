"""ONNX's own node cases through autosplit: how many equal onnxruntime, and how many are refused.

    python -m studies.benchmarks.onnx_cases [TEXT ...] [-o FILE]

TEXT keeps the cases with it in their names. The cases come with the package onnx. Those count that
have tensors of numbers alone and that onnxruntime runs. Each is split after its first op and run
with the inputs of the case: in TVM, or in onnxruntime where an op is opaque. Bars: at least 97 %
are equal, none differs, crashes or hangs, and the remaining ones are refused by name.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit import api
from autosplit.errors import AutosplitError, line_of
from autosplit.hardware.isolation.worker import Handler
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_step
from studies.benchmarks import verdicts
from studies.benchmarks.result import arguments, finish

NO_NUMBERS, NOT_RUN = "no tensors of numbers", "not run by onnxruntime"
SHARE, SECONDS = 0.97, 120.0


def main() -> int:
    # A worker imports the function by its module, which is not the one that runs as a program.
    from studies.benchmarks import onnx_cases

    parser = arguments(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    args = parser.parse_args()
    names = verdicts.named(cases(), args.texts)
    judged = verdicts.judge_apart(onnx_cases.open_cases, names, SECONDS)
    rows, bars = verdicts.counted(judged, "cases", SHARE, NOT_RUN, NO_NUMBERS)
    notes = verdicts.listed(judged, (verdicts.REFUSED, verdicts.DIFFERS, verdicts.FAILS))
    columns = ("verdict", "cases")
    return finish("onnx_cases", columns, rows, notes=notes, bars=bars, file=args.file)


def cases() -> dict[str, Any]:
    """ONNX's node cases by name."""
    from onnx.backend.test.loader import load_model_tests

    # Collecting them computes their outputs, at times beyond the range of a type.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def open_cases(setting: Mapping[str, Any]) -> Handler:
    """An OpenHandler; a job names a case in ``kind``."""
    known = cases()
    return lambda job: judge(known[job["kind"]])


def judge(case: Any) -> tuple[str, str]:
    """The verdict on a case and the reason for it."""
    import onnx

    loaded = _model_and_items(case)
    if loaded is None:
        return NO_NUMBERS, ""
    proto, items = loaded
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
            verdicts.after_first_op,
            items,
            expected,
        )


def _model_and_items(case: Any) -> tuple[Any, list[dict[str, np.ndarray[Any, Any]]]] | None:
    """The model of a case and its inputs; None where one is no tensor of numbers."""
    import onnx

    if case.model is not None:
        proto, data = case.model, case.data_sets
    else:
        folder = Path(case.model_dir)
        proto = onnx.load(folder / "model.onnx")
        data = []
        for inputs in sorted(folder.glob("test_data_set_*")):
            files = sorted(inputs.glob("input_*.pb"), key=lambda f: int(f.stem.split("_")[1]))
            data.append(([onnx.load_tensor(f) for f in files], []))
    for port in (*proto.graph.input, *proto.graph.output):
        if not port.type.HasField("tensor_type") or port.type.tensor_type.elem_type == 8:
            return None
    names = [port.name for port in proto.graph.input]
    items = []
    for values, _ in data:
        items.append(dict(zip(names, map(_array, values), strict=False)))
    return proto, items


def _array(value: Any) -> np.ndarray[Any, Any]:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


if __name__ == "__main__":
    sys.exit(main())
