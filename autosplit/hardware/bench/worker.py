"""A LocalBench inside a worker process: jobs and answers as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autosplit.hardware.isolation.worker import Tell
from autosplit.serialization import dump

Handler = Callable[[Mapping[str, Any]], Any]
Job = Callable[[Any, Mapping[str, Any]], Any]


def open_bench(
    setting: Mapping[str, Any], tell: Tell, more: Mapping[str, Job] = MappingProxyType({})
) -> Handler:
    """The handler of a worker: opens the bench that ``setting`` describes, then answers one job at a time.

    ``more``: what it does beside measuring, by kind; each gets the bench and the job.
    """
    from autosplit.hardware.bench.local import LocalBench
    from autosplit.hardware.compiled_model import load_model
    from autosplit.hardware.devices import device
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.lowering.external.backend import named

    tell("reading the model")
    tuning = Path(setting["tuning"]) if setting["tuning"] else None
    regions = [
        named(r["backend"], r["merge"], r["markers"], r["together"])
        for r in setting.get("regions", ())
    ]
    model = load_model(
        setting["model"],
        setting["shapes"],
        setting["target"],
        tuning,
        backends=regions,
        runtime=setting["runtime"],
        targets=setting.get("targets", {}),
    )
    places = device.along(setting["stages"], setting["devices"])
    tell("reaching devices")
    bench = LocalBench(
        model, places, Budget(**setting["measure"]), tell=tell, wait_s=setting.get("wait_s", 0.0)
    )

    jobs = {**_JOBS, **more}

    def answer(job: Mapping[str, Any]) -> Any:
        return jobs[job["kind"]](bench, job)

    return answer


def _describe(bench: Any, job: Mapping[str, Any]) -> Any:
    return {
        "graph": dump(bench.graph),
        "devices": bench.devices,
        "identity": dict(bench.identity),
        "keep_together": bench.keep_together,
        "regions": dict(bench.regions),
        "untuned": bench.untuned,
    }


def _profile(bench: Any, job: Mapping[str, Any]) -> Any:
    return [dump(p) for p in bench.profile()]


def _links(bench: Any, job: Mapping[str, Any]) -> Any:
    return [asdict(c) for c in bench.links()]


def _measure(bench: Any, job: Mapping[str, Any]) -> Any:
    return dump(bench.measure(tuple(tuple(ops) for ops in job["stages"])))


def _baselines(bench: Any, job: Mapping[str, Any]) -> Any:
    return [dump(b) for b in bench.baselines()]


def _duel(bench: Any, job: Mapping[str, Any]) -> Any:
    candidates, baselines = bench.duel(
        [tuple(tuple(ops) for ops in stages) for stages in job["candidates"]]
    )
    return {"candidates": [dump(s) for s in candidates], "baselines": [dump(s) for s in baselines]}


_JOBS: Mapping[str, Job] = {
    "describe": _describe,
    "profile": _profile,
    "links": _links,
    "measure": _measure,
    "baselines": _baselines,
    "duel": _duel,
}
