"""A LocalBench inside a worker process: jobs and answers are JSON documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from autosplit import phases
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.isolation.worker import Handler, release_memory
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.runtimes.registry import TVM
from autosplit.serialization import dump, load

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench

_MODEL_OPTIONS = (
    "runtime", "shapes", "states", "target", "targets", "tolerance", "trust_kernels", "tuning",
)  # fmt: skip
Job = Callable[["LocalBench", Mapping[str, Any]], Any]


@dataclass(frozen=True)
class BenchSetting:
    """What a bench measures, and where.

    ``target`` is that of this machine's cores, ``targets`` are those of devices by their spelling.
    ``tuning`` is the folder of a tuning database. ``regions`` are the arguments of
    ``autosplit.lowering.external.backend.named``, one mapping for each external backend. ``states``
    has the output of each state by its input, or is "auto", and ``streams`` streams are measured.
    ``batches`` are those of ``batched_profiles``. Where nothing ``measures``, devices may be cores
    of another machine.
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
    states: Mapping[str, str] | Literal["auto"] = field(default_factory=dict)
    streams: int = 1
    budget: Budget = field(default_factory=Budget)
    measures: bool = True
    batches: tuple[int, ...] | str = (1,)


def open_bench(
    document: Mapping[str, Any], more: Mapping[str, Job] = MappingProxyType({})
) -> Handler:
    """Open a bench as the handler of a worker.

    ``document`` has the keys ``setting``, a BenchSetting, and ``wait_s``, the time to wait for
    servers. A job calls a method of Bench, or one of ``more`` by its kind.
    """
    from autosplit.hardware.bench.local import LocalBench
    from autosplit.hardware.compiled_model import CompiledModel
    from autosplit.hardware.devices import device
    from autosplit.lowering.external.backend import named

    setting = load(BenchSetting, document["setting"])
    options = {name: getattr(setting, name) for name in _MODEL_OPTIONS}
    options["backends"] = [
        named(r["backend"], r["merge"], r["markers"], r["together"]) for r in setting.regions
    ]
    model = CompiledModel.load(setting.model, **options)
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
    jobs: dict[str, Job] = {"describe": lambda bench, arguments: bench.description, **more}

    def answer(job: Mapping[str, Any]) -> Any:
        kind, arguments = job["kind"], job["arguments"]
        try:
            if kind in jobs:
                return dump(jobs[kind](bench, arguments))
            return dump(_called(bench, kind, arguments))
        finally:
            release_memory()

    return answer


def _called(bench: LocalBench, kind: str, documents: Mapping[str, Any]) -> Any:
    """The result of a method of Bench whose arguments are ``documents``."""
    kinds = get_type_hints(getattr(Bench, kind))
    arguments = {name: load(kinds[name], document) for name, document in documents.items()}
    return getattr(bench, kind)(**arguments)
