"""Whether an exported split computes what the original model computes, and how fast it is."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from autosplit import phases
from autosplit.deploy.arrays import read_reference
from autosplit.deploy.load import load
from autosplit.deploy.manifest import Manifest
from autosplit.errors import ConfigError, MachineError, ModelError
from autosplit.files import sha256
from autosplit.frontend import importing
from autosplit.frontend.samples import random_items, special_items
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.engine import StageEvent
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import Handler
from autosplit.hardware.measurement import disturbance, measure, sequences
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.open_loop import load_test
from autosplit.hardware.measurement.parity import DEFAULT_TOLERANCE
from autosplit.hardware.measurement.reference import reference_of_file
from autosplit.hardware.measurement.results import Accuracy, LoadTest, Spread
from autosplit.planner.workload import Workload
from autosplit.serialization import dump
from autosplit.serialization import load as from_document


@dataclass(frozen=True)
class BenchResult:
    """The measurement of an exported pipeline, with times in ms.

    ``gaps`` are the times between the results of ``items``, after ``warm_up`` that do not count.
    ``devices`` and ``busy_ms``, the time of work for a result, have the replicas of each stage.
    ``load`` is None without a workload. ``disturbances`` say why the times cannot be trusted.
    """

    period: Spread
    latency: Spread
    gaps: tuple[float, ...]
    items: int
    warm_up: int
    busy_ms: tuple[tuple[float, ...], ...]
    devices: tuple[tuple[Device, ...], ...]
    events: tuple[StageEvent, ...]
    submitted: tuple[float, ...]
    wiring: Wiring
    disturbances: tuple[str, ...]
    load: LoadTest | None = None


@dataclass(frozen=True)
class Verification:
    """The ``accuracy`` of an export against a ``reference``; ``reason`` says why it is rejected."""

    accuracy: Accuracy
    reference: str
    reason: str = ""


def verify(
    folder: Path,
    model: Path | None = None,
    items: int | None = None,
    seed: int | None = None,
    special: bool = False,
    tolerance: float | None = None,
) -> Verification:
    """Compare an exported pipeline with a reference.

    The reference runs the original model on random items: the file ``model``, or the file that the
    export names if it is unchanged. The number of items, ``seed`` and ``tolerance`` are by default
    those of the comparison at export. Without such a file, or where nothing here runs it, the items
    and reference outputs recorded at export are used, unless ``items``, ``seed`` or ``special``,
    which adds NaN, infinities and denormals, ask for others. Raises ConfigError where there is
    neither, for no item and a negative seed; MachineError or ModelError where ``model`` cannot run.
    """
    pipeline = load(folder)
    document = pipeline.document
    before = document.comparison
    count = items or (before.items if before else sequences.ITEMS)
    draw_seed = seed if seed is not None else (before.seed if before else sequences.SEED)
    if items is not None and items < 1:
        raise ConfigError(f"--items {items} is invalid; give 1 or more")
    if draw_seed < 0:
        raise ConfigError(f"--seed {draw_seed} is invalid; give 0 or more")
    file = _original_model(document, model)
    options = {"--special": special, "--items": items is not None, "--seed": seed is not None}
    asked = next((option for option, is_given in options.items() if is_given), "")
    if asked and file is None:
        raise ConfigError(f"{asked} needs the original model; give it with --model FILE")
    draw = special_items if special else random_items
    initial = pipeline.wiring.first_states
    if file is None:
        expected, name = read_reference(pipeline.folder, document, initial)
    else:
        try:
            # States are inputs of the original model.
            shapes = {p.name: p.shape for p in document.model.inputs}
            shapes |= {name: state.shape for name, state in initial.items()}
            reference = reference_of_file(file, shapes)
            below = document.model.integers_below
            inputs = sequences.drawn(pipeline.wiring, draw, count, draw_seed, below)
            phases.report(f"computing the outputs of {reference.name}")
            expected = sequences.expect(reference, inputs, initial, document.model.states)
            name = f"{reference.name} on {file}"
        except (MachineError, ModelError) as error:
            if model or asked or document.reference is None:
                raise
            expected, name = read_reference(pipeline.folder, document, initial)
            name = f"{name}, as the model at {file} cannot be run here: {error}"
    allowed_error = tolerance or (before.tolerance if before else DEFAULT_TOLERANCE)
    runtimes = [stage.runtime for stage in document.stages]
    with pipeline:
        stages = [f"{stage.index} ('{stage.file}')" for stage in document.stages]
        threads = {thread: stages[stage] for thread, stage in pipeline.threads.items()}
        phases.report("running the export", threads)
        accuracy = sequences.accuracy_of(pipeline, expected, allowed_error)
    return Verification(accuracy, name, sequences.refusal(accuracy, runtimes, name))


def verify_apart(folder: Path, model: Path | None, **options: Any) -> Verification:
    """Run ``verify`` in a process of its own, which a damaged stage file may crash.

    Raises StageError where it crashes.
    """
    job = {"folder": str(folder), "model": model and str(model), "options": options}
    with contextlib.closing(Worker(open_verification, {})) as worker:
        return from_document(Verification, worker.call(job, math.inf))


def open_verification(_: Mapping[str, Any]) -> Handler:
    """The handler of the process of ``verify_apart``."""

    def answer(job: Mapping[str, Any]) -> Any:
        model = job["model"] and Path(job["model"])
        return dump(verify(Path(job["folder"]), model, **job["options"]))

    return answer


def bench(
    folder: Path, budget: Budget, workload: Workload | None = None, streams: int | None = None
) -> BenchResult:
    """Measure an exported pipeline on random items, under an open load too if one is given.

    The items belong to ``streams`` streams, by default as many as the export is for.
    """
    pipeline = load(folder, trace=True)
    document = pipeline.document
    count = streams or document.streams
    inputs = [(p.name, p.shape, p.dtype) for p in document.model.inputs]
    items = random_items(inputs, 3, 0, document.model.integers_below)
    with pipeline:
        start = disturbance.Counters.now()
        period, busy_ms = measure.period_and_busy(pipeline, items, budget, count)
        events, submitted = tuple(pipeline.events), tuple(pipeline.submitted)
        warm_up = measure.warm_up_items(pipeline)
        latency = measure.latency(pipeline, items, budget)
        reasons = disturbance.since(start).reasons + disturbance.signs(period, latency)
        test = None
        if workload:
            if workload.delay_ms is None and pipeline.delay_ms is not None:
                workload = replace(workload, delay_ms=pipeline.delay_ms)
            capacity = measure.MS / period.median
            test = load_test(pipeline, items, workload, budget.seconds, capacity, count)
    ends = sorted(measure.completions(events, warm_up, len(submitted)))
    # The gaps are those of single results, while the period averages over groups of them.
    scale = measure.MS / pipeline.batch
    gaps = tuple((after - before) * scale for before, after in pairwise(ends))
    return BenchResult(
        period,
        latency,
        gaps,
        pipeline.batch * len(ends),
        pipeline.batch * warm_up,
        busy_ms,
        pipeline.places,
        events,
        submitted,
        pipeline.wiring,
        reasons,
        test,
    )


def _original_model(document: Manifest, model: Path | None) -> Path | None:
    """The unchanged original model, None where it is not there."""
    named = document.model.file
    file, problem = model or (Path(named) if named else None), ""
    if file is None or not os.path.isfile(file):
        problem = "does not exist; give the file the split was made from"
    elif not _is_unchanged(file, document.model.sha256):
        problem = "is not the one the split was made from (its sha256 differs); give that one"
    if problem and model:
        raise ConfigError(f"model '{model}' {problem}")
    return None if problem else file


def _is_unchanged(file: Path, digest: str) -> bool:
    try:
        # The file alone first: it is read as a model only where it can have weights in other files.
        return sha256(file) == digest or importing.digest(file) == digest
    except (OSError, ModelError, MachineError):  # no model, or one that cannot be read here
        return False
