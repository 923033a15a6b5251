"""The worker of a study: what hardware measures there, and ``export``, which writes a split where its kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import used
from autosplit.hardware.bench import worker
from autosplit.hardware.isolation.worker import Tell
from autosplit.hardware.measurement.results import Baseline, Measurement
from autosplit.serialization import load

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench


def open_bench(setting: Mapping[str, Any], tell: Tell) -> worker.Handler:
    """The handler of a worker; see ``hardware.worker_bench.open_bench``."""
    return worker.open_bench(setting, tell, {"export": _export})


def _export(bench: LocalBench, job: Mapping[str, Any]) -> str:
    """Write a split with what is known of it, its empty stages left out; see ``report.export.export``."""
    from autosplit.deploy.export import export

    stages = [tuple(ops) for ops in job["stages"]]
    measured = load(Measurement, job["measured"]) if job["measured"] else None
    if measured:
        measured = replace(measured, stage_ms=tuple(used(stages, measured.stage_ms)))
    with bench.reached():
        file = export(
            bench.model,
            [s for s in stages if s],
            used(stages, bench.places),
            Path(job["folder"]),
            measured=measured,
            predicted=job["predicted"],
            baselines=[load(Baseline, b) for b in job["baselines"]],
            verdict=job["verdict"],
        )
    return str(file)
