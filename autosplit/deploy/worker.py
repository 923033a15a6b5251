"""The worker process of a study: it measures, and writes a split where its kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.deployment import Deployment
from autosplit.hardware.bench import isolated
from autosplit.hardware.isolation.worker import Handler
from autosplit.hardware.measurement.results import SplitResults
from autosplit.serialization import load

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench


def open_bench(setting: Mapping[str, Any]) -> Handler:
    """The handler of a worker; see ``hardware.bench.isolated.open_bench``."""
    return isolated.open_bench(setting, {"export": write_split_of_job})


def write_split_of_job(bench: LocalBench, job: Mapping[str, Any]) -> str:
    """Write the deployment of a job and its results; returns the manifest."""
    from autosplit.deploy.export import write_split

    deployment = load(Deployment, job["deployment"])
    results = load(SplitResults, job["results"])
    with bench.reached():
        target = Path(job["folder"]), results, job["format"], job["onnx"]
        return str(write_split(bench.model, deployment, *target))
