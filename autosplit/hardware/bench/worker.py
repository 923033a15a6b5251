"""A LocalBench inside a worker process: jobs and answers are JSON documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autosplit import phases
from autosplit.deployment import Deployment
from autosplit.hardware.isolation.worker import Handler, release_memory
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.runtimes.registry import TVM
from autosplit.serialization import dump, load

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench

Job = Callable[["LocalBench", Mapping[str, Any]], Any]


@dataclass(frozen=True)
class BenchSetting:
    """What a bench measures, and where.

    ``target`` is that of this machine's cores, ``targets`` are those of devices by their spelling.
    ``tuning`` is the folder of a tuning database. ``regions`` are the arguments of
    ``autosplit.lowering.external.backend.named``, one mapping for each external backend. ``states``
    has the output of each state by its input, and ``streams`` streams are measured. ``batches`` are
    those of ``batched_profiles``. Where nothing ``measures``, devices may be cores of another
    machine.
    """

    model: Path
    stages: int
    devices: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    target: str | None = None
    targets: Mapping[str, str] = field(default_factory=dict)
    tuning: Path | None = None
    tolerance: float | None = None
    trust_kernels: bool = False
    runtime: str = TVM
    regions: tuple[Mapping[str, Any], ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    streams: int = 1
    budget: Budget = field(default_factory=Budget)
    measures: bool = True
    batches: tuple[int, ...] | str = (1,)


def open_bench(
    document: Mapping[str, Any], more: Mapping[str, Job] = MappingProxyType({})
) -> Handler:
    """Open a bench as the handler of a worker.

    ``document`` has the keys ``setting``, a BenchSetting, and ``wait_s``, the time to wait for
    servers. ``more`` are further jobs by their kind.
    """
    from autosplit.hardware.bench.local import LocalBench
    from autosplit.hardware.compiled_model import CompiledModel
    from autosplit.hardware.devices import device
    from autosplit.lowering.external.backend import named

    setting = load(BenchSetting, document["setting"])
    model = CompiledModel.load(
        setting.model,
        setting.shapes,
        setting.target,
        setting.tuning,
        backends=[
            named(r["backend"], r["merge"], r["markers"], r["together"]) for r in setting.regions
        ],
        runtime=setting.runtime,
        targets=setting.targets,
        states=setting.states,
        tolerance=setting.tolerance,
        trust_kernels=setting.trust_kernels,
    )
    places = device.along(setting.stages, setting.devices, anywhere=not setting.measures)
    phases.report("reaching devices")
    bench = LocalBench(
        model,
        places,
        setting.budget,
        wait_s=document["wait_s"],
        streams=setting.streams,
        batches=setting.batches,
    )
    jobs = {**_JOBS, **more}

    def answer(job: Mapping[str, Any]) -> Any:
        try:
            return dump(jobs[job["kind"]](bench, job))
        finally:
            release_memory()

    return answer


_JOBS: Mapping[str, Job] = {
    "describe": lambda bench, job: bench.description,
    "profile": lambda bench, job: bench.profile(),
    "links": lambda bench, job: bench.links(),
    "measure": lambda bench, job: bench.measure(load(Deployment, job["deployment"])),
    "baselines": lambda bench, job: bench.baselines(),
    "compare_interleaved": lambda bench, job: bench.compare_interleaved(
        load(list[Deployment], job["candidates"]), job["baselines"]
    ),
    "real_time": lambda bench, job: bench.real_time(
        load(Deployment, job["deployment"]), job["rate"], load(Spread, job["period"])
    ),
}
