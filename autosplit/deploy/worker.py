"""The worker process of a study: it measures, and writes a split where its kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import used
from autosplit.hardware.bench import worker
from autosplit.hardware.isolation.worker import Handler, ReportPhase
from autosplit.hardware.measurement.results import Baseline, Measurement
from autosplit.serialization import load

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench


def open_bench(setting: Mapping[str, Any], report_phase: ReportPhase) -> Handler:
    """The handler of a worker; see ``hardware.bench.worker.open_bench``."""
    return worker.open_bench(setting, report_phase, {"export": write_split_of_job})


def write_split_of_job(bench: LocalBench, job: Mapping[str, Any]) -> str:
    """Write the split of a job and its measurement, without empty stages; returns the manifest."""
    from autosplit.deploy.export import write_split

    stages = [tuple(ops) for ops in job["stages"]]
    measured = load(Measurement, job["measured"]) if job["measured"] else None
    if measured:
        measured = replace(measured, stage_ms=tuple(used(stages, measured.stage_ms)))
    with bench.reached():
        file = write_split(
            bench.model,
            [ops for ops in stages if ops],
            used(stages, bench.places),
            Path(job["folder"]),
            measured=measured,
            predicted=job["predicted"],
            baselines=[load(Baseline, b) for b in job["baselines"]],
            verdict=job["verdict"],
        )
    return str(file)
