"""A bench in a worker process: a candidate that crashes or hangs is a failed trial.

Jobs and answers are JSON documents.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, get_type_hints

from autosplit import phases
from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, MachineError, StageError
from autosplit.hardware.bench.interface import Bench, BenchDescription
from autosplit.hardware.devices.rpc import RETURN_S
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import Handler, OpenHandler, release_memory
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Baseline, SplitResults
from autosplit.hardware.runtimes.registry import TVM
from autosplit.serialization import dump, load

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])
CANDIDATE_TIMEOUT_S = 600.0  # beyond the time that a candidate is measured for
_MODEL_OPTIONS = (
    "runtime", "shapes", "states", "target", "targets", "tolerance", "trust_kernels", "tuning",
)  # fmt: skip


@dataclass(frozen=True)
class BenchSetting:
    """What a bench measures, and where.

    ``target`` is for this machine's cores, ``targets`` has those of other devices by their names.
    ``tuning`` is the folder of a tuning database. ``regions`` are the arguments of
    ``autosplit.lowering.external.backend.named``, one mapping for each external backend. ``states``
    maps the input of each state to its output, or is "auto"; ``streams`` streams are measured.
    ``batches`` are those of ``batched_profiles``. With ``measures`` false the bench never measures,
    and its devices may be cores of another machine.
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
    document: Mapping[str, Any], more: Mapping[str, Callable[..., Any]] = MappingProxyType({})
) -> Handler:
    """Open a bench as the handler of a worker.

    ``document`` has the keys ``setting``, a BenchSetting, and ``wait_s``, the time to wait for
    servers. A job calls a method of Bench; ``more`` has functions that replace methods, by name.
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

    def answer(job: Mapping[str, Any]) -> Any:
        kind, arguments = job["kind"], job["arguments"]
        try:
            if kind == "description":
                return dump(bench.description)
            if kind == "baseline_runtimes":
                return {run.name: run.runtime for run in bench.unsplit_runs()}
            kinds = get_type_hints(getattr(Bench, kind))
            values = {name: load(kinds[name], value) for name, value in arguments.items()}
            method = more.get(kind) or getattr(LocalBench, kind)
            return dump(method(bench, **values))
        finally:
            release_memory()

    return answer


def _in_worker(method: Method) -> Method:
    """Make a method of Bench run in the worker."""
    signature, returned = inspect.signature(method), get_type_hints(method)["return"]

    @wraps(method)
    def ask(bench: IsolatedBench, *arguments: Any, **named: Any) -> Any:
        values = signature.bind(bench, *arguments, **named).arguments
        values.pop("self")
        return bench.ask(method.__name__, returned, **values)

    return cast(Method, ask)


class IsolatedBench(Bench):
    """Implements Bench. A new worker starts after a crash, a timeout or a lack of memory.

    ``open_handler`` is what the worker runs; the default only measures, and cannot export.
    """

    profile = _in_worker(Bench.profile)
    links = _in_worker(Bench.links)
    measure = _in_worker(Bench.measure)
    compare_interleaved = _in_worker(Bench.compare_interleaved)
    under_load = _in_worker(Bench.under_load)

    def __init__(self, setting: BenchSetting, open_handler: OpenHandler = open_bench) -> None:
        self._setting = setting
        self._open_handler = open_handler
        # A phase may be a rate of a load test, which takes up to 48 times the budget.
        self._timeout_s = CANDIDATE_TIMEOUT_S + 48 * setting.budget.seconds
        self._worker: Worker | None = None
        # Only a server that has answered before is waited for.
        self._wait_s = 0.0

    def baselines(self, names: Sequence[str] | None = None) -> Sequence[Baseline]:
        """See Bench. One that kills the worker is left out, as one that fails is."""
        measured: list[Baseline] = []
        runtimes = self.ask("baseline_runtimes", dict[str, str])
        for name in runtimes if names is None else names:
            try:
                measured += self.ask("baselines", list[Baseline], names=[name])
            except StageError as error:
                if self._worker or runtimes[name] == self._setting.runtime:
                    raise
                phases.report(f"{name} is left out: {error}")
        return measured

    @cached_property
    def description(self) -> BenchDescription:
        """See Bench."""
        return self.ask("description", BenchDescription)

    def export(
        self, deployment: Deployment, folder: Path, results: SplitResults, format: str, onnx: bool
    ) -> Path:
        """See Bench."""
        # The folder of this process may have changed since the worker was started.
        what = {"deployment": deployment, "folder": folder.absolute(), "results": results}
        self.ask("export", Path, format=format, onnx=onnx, **what)
        return folder / "split.json"

    def close(self) -> None:
        """End the worker; the next job starts another."""
        if self._worker:
            self._worker.close()
            self._worker = None

    def _require_same_model(self) -> None:
        """Raise MachineError where a fresh worker has another model than the one before it."""
        before, now = self.description.identity, self.ask("description", BenchDescription).identity
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if changed:
            self.close()
            raise MachineError(
                f"{' and '.join(changed)} of '{self._setting.model}' changed meanwhile; put back "
                "what was there, or run a new study with --force"
            )

    def ask(self, kind: str, returned: type[T], **arguments: Any) -> T:
        """Run a job in the worker and return its answer. Raises StageError if the worker dies."""
        if self._worker is None:
            document = {"setting": dump(self._setting), "wait_s": self._wait_s}
            self._worker = Worker(self._open_handler, document)
            if "description" in vars(self):
                self._require_same_model()
        try:
            job = {"kind": kind, "arguments": dump(arguments)}
            answer = self._worker.call(job, self._timeout_s)
            self._wait_s = RETURN_S
            return load(returned, answer)
        except BaseException as error:
            if isinstance(error, StageError):
                error.log = self._worker.log_tail()
            # A late answer is not that of the next job, and another model is not that of the study.
            is_usable = isinstance(error, AutosplitError) and self._worker.is_alive
            if not is_usable or kind == "description":
                self.close()
            raise
