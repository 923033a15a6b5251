"""A model made ready to be split: read, fused, its kernels compiled, its constants held once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autosplit import files
from autosplit.cuts.stages import used
from autosplit.errors import ConfigError
from autosplit.frontend.samples import random_items
from autosplit.graph import FusedGraph
from autosplit.hardware.codegen.kernels import Kernels, compile_kernels
from autosplit.hardware.codegen.target import spelled, target_of, target_on
from autosplit.hardware.codegen.tuning import work_of
from autosplit.hardware.codegen.tuning_database import RECORDS, require
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring, wire
from autosplit.hardware.measurement import reference
from autosplit.hardware.measurement.reference import Judge
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.runtimes.runtime import RUNTIMES, TVM, Runtime, runtime_of
from autosplit.hardware.runtimes.stage import Stage
from autosplit.lowering.external.backend import Backend
from autosplit.lowering.fuse.lowered import Lowered, lower
from autosplit.versions import require_pair

Item = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class CompiledModel:
    """A model lowered for a target, its stages run by ``runtime``; kernels are compiled when first needed.

    ``targets`` gives devices, by their spelling, targets of their own; the graph is one for all. ``path`` is the original
    file, None for an object; ``judge`` runs the original by other means than stages. Stages are tuples of op indices, as the
    cuts room gives them.
    """

    path: Path | None
    sha256: str
    target: Any
    lowered: Lowered
    judge: Judge
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tuning: Path | None = None
    runtime_name: str = TVM
    targets: Mapping[str, str] = field(default_factory=dict)

    @property
    def graph(self) -> FusedGraph:
        """The graph of fused ops."""
        return self.lowered.graph

    @cached_property
    def kernels(self) -> Kernels:
        """The compiled kernels; compiles those the cache does not hold."""
        return compile_kernels(self.lowered.kernels, self.target, self.tuning)

    def untuned_on(self, device: Device) -> float:
        """The share of the arithmetic, 0 to 1, that kernels do for which no schedule is known; 0 where TVM runs no stage."""
        work = work_of(self.graph) if self.runtime_name == TVM else {}
        plain = self.kernels_on(device).unscheduled if work else frozenset()
        return sum(amount for name, amount in work.items() if name in plain) / (
            sum(work.values()) or 1.0
        )

    def target_on(self, device: Device) -> Any:
        """The target of a device; one that is not given is asked of the device. Raises MachineError where it is not there."""
        known = self._targets
        if (name := str(device)) not in known:
            known[name] = target_on(device, self.targets.get(name), self.target)
        return known[name]

    def kernels_on(self, device: Device) -> Kernels:
        """The kernels for a device, compiled once for each target; ``absent`` are those that it cannot run."""
        target = self.target_on(device)
        if (name := spelled(target)) == spelled(self.target):
            return self.kernels
        known = self._kernels
        if name not in known:
            known[name] = compile_kernels(self.lowered.kernels, target, self.tuning, partly=True)
        return known[name]

    def can_run(self, device: Device) -> bool:
        """Whether a device can run all of the model."""
        if isinstance(device, Cores):
            return True
        return not self.kernels_on(device).absent and not self.lowered.composites

    @cached_property
    def _targets(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _kernels(self) -> dict[str, Kernels]:
        return {}

    @cached_property
    def runtime(self) -> Runtime:
        """What runs the stages."""
        return runtime_of(self, self.runtime_name)

    @cached_property
    def whole(self) -> Wiring:
        """The wiring of the model as one stage."""
        return self.wiring([range(len(self.graph.ops))])

    def wiring(self, stages: Sequence[Sequence[int]]) -> Wiring:
        """Which tensor goes where for a legal split."""
        return wire(self.graph, stages, self.lowered.outputs)

    def pipeline(
        self,
        stages: Sequence[Sequence[int]],
        devices: Sequence[Device],
        depth: int = 2,
        trace: bool = False,
    ) -> Pipeline:
        """Link the stages and put stage i on device i; an empty stage leaves its device unused."""
        if any(stages):
            stages, devices = [s for s in stages if s], used(stages, devices)
        return self.run_on(self.wiring(stages), devices, depth, trace)

    def run_on(
        self, wiring: Wiring, devices: Sequence[Device], depth: int = 2, trace: bool = False
    ) -> Pipeline:
        """Link the stages of a wiring and put stage i on device i."""
        loaded: list[Stage] = []
        try:
            for ports, device in zip(wiring.stages, devices, strict=True):
                loaded.append(self.runtime.stage(ports, device))
        except BaseException:
            for stage in loaded:
                stage.close()
            raise
        return Pipeline(wiring, loaded, depth, trace)

    def unsplit(self, device: Device, trace: bool = False) -> Pipeline:
        """The whole model on one device, run as fast as the runtime can."""
        return Pipeline(self.whole, [self.runtime.whole(self.whole.stages[0], device)], trace=trace)

    def profile(self, device: Device, seconds: float = 2.0, force: bool = False) -> Profile:
        """The time of every op on a device, from the cache where it was measured before on this machine.

        ``force`` measures again and replaces what the cache holds.
        """
        return self.runtime.profile(device, seconds, force)

    def link(self, device: Device) -> LinkCost:
        """What it takes to move tensors to a device and to call it, measured now; nothing for local cores."""
        return self.runtime.link(device)

    def items(self, count: int = 3, seed: int = 0) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Random items: for each the array of every input by name, in its shape and dtype; alike for a ``seed``."""
        lowered = self.lowered
        return random_items(
            [(i.name, i.shape, i.dtype) for i in lowered.inputs],
            count,
            seed,
            lowered.integers_below,
        )

    def expected(self, items: Sequence[Item]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """What the judge computes for the items on the original model: for each its outputs by name.

        Raises MachineError where the package that does is missing, ModelError where it refuses the model.
        """
        return self.judge.outputs(items)

    @property
    def identity(self) -> dict[str, str]:
        """What makes two measurements of this model comparable, besides the machine."""
        shapes = ",".join(f"{i.name}={'x'.join(map(str, i.shape))}" for i in self.lowered.inputs)
        records = files.sha256(self.tuning / RECORDS) if self.tuning else "shipped"
        composites = sorted(c.key for c in self.lowered.composites.values())
        external = (
            {"regions": f"{' '.join(composites)} {self.lowered.keep_together}"}
            if composites
            else {}
        )
        return external | {
            "model": self.sha256,
            "shapes": shapes,
            "target": spelled(self.target),
            "tuning": records,
            "versions": self.runtime.versions,
        }


def load_model(
    model: str | Path | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | None = None,
    tuning: Path | None = None,
    backends: Sequence[Backend] = (),
    runtime: str = TVM,
    targets: Mapping[str, str] | None = None,
) -> CompiledModel:
    """Read and fuse a model: an ONNX file, TVMScript (.py), a saved module (.json), a saved exported program (.pt2); or an
    object, a TVM IRModule or a ``torch.export.ExportedProgram``.

    ``shapes`` gives the shape of dynamic inputs by name; ``target`` defaults to this machine's processor, ``targets`` are
    those of devices by their spelling, and a device that is left out is asked for its own; ``tuning`` is the folder of a
    tuning database; ``backends`` run what their patterns match. ``runtime`` runs the stages: ``tvm``, or ``onnxruntime`` for
    a model from an ONNX file. Raises ModelError or ConfigError where the model, the shapes or the runtime are wrong,
    MachineError without the package that reads it.
    """
    from autosplit.frontend import importing

    require_pair()
    _check(runtime, tuning, backends)
    path = Path(model) if isinstance(model, str | Path) else None
    given = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    source = importing.read(path or model, given)
    where = target_of(target)
    judge = reference.judge_of(source, path, where)
    digest = files.sha256(path) if path else _digest(source.module)
    lowered = lower(source, where, backends)
    return CompiledModel(
        path, digest, where, lowered, judge, given, tuning, runtime, _targets(targets or {})
    )


def _check(runtime: str, tuning: Path | None, backends: Sequence[Backend]) -> None:
    """Raises ConfigError where the runtime is unknown, or given what only TVM can use, or where nothing was tuned."""
    if runtime not in RUNTIMES:
        raise ConfigError(f"runtime '{runtime}' is unknown; use {' or '.join(RUNTIMES)}")
    if runtime != TVM and (tuning or backends):
        what = f"tuning '{tuning}'" if tuning else f"external backend '{backends[0].name}'"
        raise ConfigError(
            f"{what} is for TVM, but the stages run in {runtime}; remove one of the two"
        )
    if tuning:
        require(tuning)


def _targets(given: Mapping[str, str]) -> dict[str, str]:
    """By the canonical spelling of the device. Raises ConfigError for a misspelt device or target."""
    found = {str(devices.parse(name)): text for name, text in given.items()}
    for text in found.values():
        target_of(text)
    return found


def _digest(module: Any) -> str:
    import tvm

    return hashlib.sha256(tvm.ir.save_json(module).encode()).hexdigest()
