"""Verdicts on many models, each split and compared in a process that is replaced when it dies."""

from __future__ import annotations

import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit import api
from autosplit.errors import AutosplitError, StageError, line_of
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import Handler
from autosplit.hardware.measurement.parity import compare, tolerance_of
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, TVM
from studies.benchmarks.result import at_least, at_most, finish

EQUAL, REFUSED, DIFFERS, FAILS = "equal", "refused", "differs", "crashes or hangs"
COUNTED = (EQUAL, REFUSED, DIFFERS, FAILS)

Verdict = tuple[str, str]
Items = Sequence[dict[str, np.ndarray[Any, Any]]]


def judge_apart(
    benchmark: str, names: Collection[str], seconds: float, fresh: bool = False
) -> dict[str, Verdict]:
    """The verdict on each name and its reason, by the function ``judge`` of a benchmark's module.

    ``fresh``: each name gets a new process, so that a large model leaves no memory behind.
    """
    setting = {"judge": f"studies.benchmarks.{benchmark}:judge"}
    verdicts: dict[str, Verdict] = {}
    worker = Worker(open_judge, setting)
    try:
        for name in names:
            try:
                verdict, text = worker.call({"kind": name}, seconds)
            except StageError as error:
                verdict, text = FAILS, line_of(error)
            if fresh or verdict == FAILS:
                worker.close()
                worker = Worker(open_judge, setting)
            verdicts[name] = (verdict, text)
            print(f"{name}: {verdict}: {text}", file=sys.stderr, flush=True)
    finally:
        worker.close()
    return verdicts


def open_judge(setting: Mapping[str, str]) -> Handler:
    """An OpenHandler; the ``kind`` of a job is the name that is judged."""
    judge = pkgutil.resolve_name(setting["judge"])
    return lambda job: judge(job["kind"])


def judge(
    load: Callable[[str], api.Model],
    split: Callable[[api.Model], api.Split],
    items: Items | None = None,
    expected: Items | None = None,
) -> Verdict:
    """The verdict on a model, in TVM or, if an op is opaque, in onnxruntime, and the reason.

    ``load`` takes the runtime. Without ``items`` they are random; without ``expected`` the outputs
    are compared with the model's own reference.
    """
    try:
        model = load(TVM)
        if any(op.opaque for op in model.graph.ops):
            model = load(ONNXRUNTIME)
        pieces = split(model)
        items = model.items(1) if items is None else items
        expected = model.expected(items) if expected is None else expected
        with pieces.pipeline(["cores:0"] * len(pieces.stages)) as pipeline:
            outputs = pipeline.run(items)
    except AutosplitError as error:
        return REFUSED, line_of(error)
    accuracy = compare(outputs, expected, tolerance_of(model.lowered.dtypes))
    detail = f"{model.runtime_name}, {len(model.graph.ops)} ops, {len(pieces.stages)} stages"
    if not accuracy.equal:
        return DIFFERS, f"{detail}, relative error {accuracy.max_rel_error:.3g}"
    return EQUAL, detail


def report(
    name: str,
    what: str,
    verdicts: Mapping[str, Verdict],
    share: float,
    others: Sequence[str],
    listed: Collection[str],
    file: Path | None,
) -> int:
    """Report one row per verdict; ``others`` are verdicts that do not count.

    A ``share`` of ``what`` must be equal. Each name whose verdict is in ``listed`` gets a note.
    """
    count = Counter(verdict for verdict, _ in verdicts.values())
    total = sum(count[v] for v in COUNTED)
    bars = [
        at_least(f"share of equal {what}", count[EQUAL] / total if total else 0.0, share, ".4f"),
        at_most(f"{what} that differ, crash or hang", count[DIFFERS] + count[FAILS], 0),
    ]
    rows = [{"verdict": v, what: count[v]} for v in (*COUNTED, *others)]
    notes = [f"{one}: {v}: {text}" for one, (v, text) in verdicts.items() if v in listed]
    return finish(name, rows, notes=notes, bars=bars, file=file)
