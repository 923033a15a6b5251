"""A LocalBench inside a worker process: jobs and answers are JSON documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autosplit.cuts.stages import Stages
from autosplit.hardware.isolation.worker import Handler, ReportPhase
from autosplit.serialization import dump

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench

Job = Callable[["LocalBench", Mapping[str, Any]], Any]


def open_bench(
    setting: Mapping[str, Any],
    report_phase: ReportPhase,
    more: Mapping[str, Job] = MappingProxyType({}),
) -> Handler:
    """Open the bench that ``setting`` describes, as the handler of a worker.

    ``more`` are further jobs by their kind.
    """
    from autosplit.hardware.bench.local import LocalBench
    from autosplit.hardware.compiled_model import load_model
    from autosplit.hardware.devices import device
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.lowering.external.backend import named

    report_phase("reading the model")
    model = load_model(
        setting["model"],
        setting["shapes"],
        setting["target"],
        Path(setting["tuning"]) if setting["tuning"] else None,
        backends=[
            named(r["backend"], r["merge"], r["markers"], r["together"]) for r in setting["regions"]
        ],
        runtime=setting["runtime"],
        targets=setting["targets"],
    )
    places = device.along(setting["stages"], setting["devices"])
    report_phase("reaching devices")
    budget = Budget(**setting["measure"])
    bench = LocalBench(model, places, budget, report_phase=report_phase, wait_s=setting["wait_s"])
    jobs = {**_JOBS, **more}
    return lambda job: jobs[job["kind"]](bench, job)


def _describe(bench: LocalBench, job: Mapping[str, Any]) -> Any:
    return {
        "graph": dump(bench.graph),
        "devices": bench.devices,
        "identity": dict(bench.identity),
        "keep_together": bench.keep_together,
        "regions": dict(bench.regions),
    }


def _compare_interleaved(bench: LocalBench, job: Mapping[str, Any]) -> Any:
    candidates, baselines = bench.compare_interleaved([_stages(c) for c in job["candidates"]])
    return [dump(s) for s in candidates], [dump(s) for s in baselines]


def _stages(document: Any) -> Stages:
    return tuple(tuple(ops) for ops in document)


_JOBS: Mapping[str, Job] = {
    "describe": _describe,
    "untuned_share": lambda bench, job: bench.untuned_share(),
    "profile": lambda bench, job: [dump(p) for p in bench.profile()],
    "links": lambda bench, job: [dump(c) for c in bench.links()],
    "measure": lambda bench, job: dump(bench.measure(_stages(job["stages"]))),
    "baselines": lambda bench, job: [dump(b) for b in bench.baselines()],
    "compare_interleaved": _compare_interleaved,
}
