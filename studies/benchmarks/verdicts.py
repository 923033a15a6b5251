"""Verdicts on many models, each split and compared in a process that is replaced when it dies."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit import api
from autosplit.errors import AutosplitError, StageError, line_of
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import OpenHandler
from autosplit.hardware.measurement.parity import compare, tolerance_of
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, TVM
from studies.benchmarks.result import Bar, at_least, at_most

EQUAL, REFUSED, DIFFERS, FAILS = "equal", "refused", "differs", "crashes or hangs"
COUNTED = (EQUAL, REFUSED, DIFFERS, FAILS)

Verdict = tuple[str, str]
Items = Sequence[dict[str, np.ndarray[Any, Any]]]


def named(names: Iterable[str], texts: Collection[str]) -> list[str]:
    """The names with one of the texts in them; without texts all names."""
    return [name for name in names if not texts or any(text in name for text in texts)]


def judge_apart(
    open_models: OpenHandler, names: Collection[str], seconds: float, fresh: bool = False
) -> dict[str, Verdict]:
    """The verdict on each name and its reason; a job names a model in ``kind``.

    ``fresh``: in a new process each, so that a large model leaves no memory behind.
    """
    verdicts: dict[str, Verdict] = {}
    worker = Worker(open_models, {})
    try:
        for name in names:
            try:
                verdict, text = worker.call({"kind": name}, seconds)
                dead = False
            except StageError as error:
                verdict, text, dead = FAILS, line_of(error), True
            if fresh or dead:
                worker.close()
                worker = Worker(open_models, {})
            verdicts[name] = (verdict, text)
            print(f"{name}: {verdict}: {text}", file=sys.stderr, flush=True)
    finally:
        worker.close()
    return verdicts


def judge(
    load: Callable[[str], api.Model],
    split: Callable[[api.Model], api.Split],
    items: Items | None = None,
    expected: Items | None = None,
) -> Verdict:
    """The verdict on a model, in TVM or where an op is opaque in onnxruntime, and the reason.

    ``load`` takes the runtime. Without ``items`` they are random; without ``expected`` the model's
    own reference computes it.
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


def after_first_op(model: api.Model) -> api.Split:
    """The model cut after its first op, or where that is refused as one stage."""
    if len(model.graph.ops) > 1:
        with contextlib.suppress(AutosplitError):
            return model.split([[model.graph.ops[0].name]])
    return model.split([])


def listed(verdicts: Mapping[str, Verdict], some: Collection[str] = ()) -> list[str]:
    """A line for each name, by default whatever its verdict is."""
    return [
        f"{name}: {verdict}: {text}"
        for name, (verdict, text) in verdicts.items()
        if not some or verdict in some
    ]


def counted(
    verdicts: Mapping[str, Verdict], what: str, share: float, *others: str
) -> tuple[list[tuple[str, int]], list[Bar]]:
    """The rows and bars of verdicts on ``what``; ``others`` are verdicts that do not count."""
    count = Counter(verdict for verdict, _ in verdicts.values())
    total = sum(count[v] for v in COUNTED)
    bars = [
        at_least(f"share of equal {what}", count[EQUAL] / total if total else 0.0, share, ".4f"),
        at_most(f"{what} that differ, crash or hang", count[DIFFERS] + count[FAILS], 0),
    ]
    return [(v, count[v]) for v in (*COUNTED, *others)], bars
