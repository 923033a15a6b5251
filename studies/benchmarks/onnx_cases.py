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
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit import api
from autosplit.errors import AutosplitError, StageError, line_of
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import Handler, ReportPhase
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_step
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, TVM
from studies.benchmarks.result import arguments, at_least, at_most, finish

EQUAL, REFUSED, DIFFERS, FAILS = "equal", "refused", "differs", "crashes or hangs"
NO_NUMBERS, NOT_RUN = "no tensors of numbers", "not run by onnxruntime"
SHARE, SECONDS = 0.97, 120.0


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    args = parser.parse_args()
    names = [n for n in cases() if not args.texts or any(t in n for t in args.texts)]
    verdicts = judge_apart(names)
    count = Counter(verdict for verdict, _ in verdicts.values())
    total = sum(count[v] for v in (EQUAL, REFUSED, DIFFERS, FAILS))
    rows = [(v, count[v]) for v in (EQUAL, REFUSED, DIFFERS, FAILS, NOT_RUN, NO_NUMBERS)]
    notes = [f"{n}: {v}: {text}" for n, (v, text) in verdicts.items() if v in (REFUSED, DIFFERS)]
    bars = [
        at_least("share of equal cases", count[EQUAL] / total if total else 0.0, SHARE, ".4f"),
        at_most("cases that differ, crash or hang", count[DIFFERS] + count[FAILS], 0),
    ]
    columns = ("verdict", "cases")
    return finish("onnx_cases", columns, rows, notes=notes, bars=bars, file=args.file)


def cases() -> dict[str, Any]:
    """ONNX's node cases by name."""
    from onnx.backend.test.loader import load_model_tests

    # Collecting them computes their outputs, at times beyond the range of a type.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def judge_apart(names: list[str]) -> dict[str, tuple[str, str]]:
    """The verdict on each case and its reason, from a process that is replaced when it dies."""
    # A worker imports the function by its module, which is not the one that runs as a program.
    from studies.benchmarks import onnx_cases

    verdicts = {}
    worker = Worker(onnx_cases.open_cases, {})
    try:
        for name in names:
            try:
                verdict, text = worker.call({"kind": name}, SECONDS)
            except StageError as error:
                worker.close()
                worker = Worker(onnx_cases.open_cases, {})
                verdict, text = FAILS, line_of(error)
            verdicts[name] = (verdict, text)
            print(f"{name}: {verdict}: {text}", file=sys.stderr, flush=True)
    finally:
        worker.close()
    return verdicts


def open_cases(setting: Mapping[str, Any], report_phase: ReportPhase) -> Handler:
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
        try:
            model = api.load_model(path, shapes, runtime=TVM)
            if any(op.opaque for op in model.graph.ops):
                model = api.load_model(path, shapes, runtime=ONNXRUNTIME)
            split = _split(model)
            with split.pipeline(["cores:0"] * len(split.stages)) as pipeline:
                outputs = pipeline.run(items)
        except AutosplitError as error:
            return REFUSED, line_of(error)
    accuracy = compare(outputs, expected, model.lowered.dtypes)
    detail = model.runtime_name
    if not accuracy.equal:
        return DIFFERS, f"{detail}, relative error {accuracy.max_rel_error:.3g}"
    return EQUAL, detail


def _split(model: api.Model) -> api.Split:
    """The model cut after its first op, or where that is refused as one stage."""
    if len(model.graph.ops) > 1:
        with contextlib.suppress(AutosplitError):
            return model.split([[model.graph.ops[0].name]])
    return model.split([])


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
