"""Whether an exported split computes what the original model computes, and how fast it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit import files
from autosplit.deploy import manifest
from autosplit.deploy.load import checked, load, placed
from autosplit.deploy.manifest import Manifest
from autosplit.errors import ConfigError, MachineError, ModelError
from autosplit.frontend.samples import random_items
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.reference import judge_of_file
from autosplit.hardware.measurement.results import Accuracy, Spread
from autosplit.report.drawing import run

Items = list[dict[str, np.ndarray[Any, Any]]]


def verify(
    folder: Path, model: Path | None = None, items: int = 3, seed: int = 0
) -> tuple[Accuracy, str]:
    """Run the exported pipeline and compare it with onnxruntime; returns the accuracy and what it was compared with.

    With the original model, ``model`` or the file the export names if it still is the one, on fresh random items; without
    it, or where nothing here can run that file, on the items onnxruntime's outputs were recorded for at export. Raises
    ConfigError where there is neither, and for fewer than one item; MachineError or ModelError where ``model`` was given
    and cannot be run.
    """
    if items < 1:
        raise ConfigError(f"--items {items} compares nothing; give 1 or more")
    document = manifest.read(folder)
    file, reason = _model(document, model), ""
    found = None
    if file:
        try:
            found = _judged(document, file, items, seed)
        except (MachineError, ModelError) as error:
            if model or document.reference is None:
                raise
            reason = f", as the model at {file} cannot be run here: {error}"
    given, expected, judge = found or _recorded(folder, document)
    with load(folder) as pipeline:
        kinds = {
            port.dtype for stage in document.stages for port in (*stage.inputs, *stage.outputs)
        }
        return compare(
            pipeline.run(given), expected, kinds.union(document.model.dtypes)
        ), judge + reason


def bench(
    folder: Path, budget: Budget, timeline: Path | None = None
) -> tuple[Spread, Spread, tuple[float, ...]]:
    """Period, latency and busy time of each stage, in ms, of an exported pipeline on random items.

    The first items of the stream are drawn into ``timeline``, an .svg or .png. Raises ConfigError for another name, and
    MachineError where matplotlib is missing, before anything is measured.
    """
    if timeline:
        run.check(timeline)
    document = manifest.read(folder)
    items = _random(document, 3, 0)
    with load(folder, trace=True) as pipeline:
        period, busy = measure.period_and_stages(pipeline, items, budget)
        if timeline:
            run.write(pipeline.events, tuple(map(str, placed(document))), timeline)
        return period, measure.latency(pipeline, items, budget), busy


def _judged(document: Manifest, file: Path, items: int, seed: int) -> tuple[Items, Items, str]:
    """Random items, what the judge of the model file computes for them, and who it is."""
    given = _random(document, items, seed)
    judge = judge_of_file(file, {p.name: p.shape for p in document.model.inputs})
    return given, judge.outputs(given), f"{judge.name} on {file}"


def _random(document: Manifest, count: int, seed: int) -> Items:
    inputs = [(p.name, p.shape, p.dtype) for p in document.model.inputs]
    return random_items(inputs, count, seed, document.model.integers_below)


def _model(document: Manifest, given: Path | None) -> Path | None:
    file = given or (Path(document.model.file) if document.model.file else None)
    if file is None or (given is None and not file.is_file()):
        return None
    if not file.is_file():
        raise ConfigError(f"model '{file}' does not exist; give the file the split was made from")
    if files.sha256(file) == document.model.sha256:
        return file
    if given:
        raise ConfigError(
            f"model '{file}' is not the one the split was made from (its sha256 differs); give that one"
        )
    return None


def _recorded(folder: Path, document: Manifest) -> tuple[Items, Items, str]:
    """The recorded items, onnxruntime's outputs for them, and where they are."""
    if document.reference is None:
        raise ConfigError(
            "the export holds no reference outputs; give the original model with --model FILE"
        )
    file = checked(folder, document.reference.file, document.reference.sha256)
    given: dict[str, dict[str, Any]] = {}
    expected: dict[str, dict[str, Any]] = {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            for key in arrays.files:
                number, kind, name = key.split("/", 2)
                side: Mapping[str, dict[str, dict[str, Any]]] = {"in": given, "out": expected}
                side[kind].setdefault(number, {})[name] = arrays[key]
        order = sorted(given)
        judge = f"onnxruntime's outputs recorded in {file.name}"
        return [given[n] for n in order], [expected[n] for n in order], judge
    except Exception as error:  # numpy and zipfile raise many kinds for an archive that is none
        raise ConfigError(
            f"'{file}' holds no reference outputs ({error}); export the split again"
        ) from error
