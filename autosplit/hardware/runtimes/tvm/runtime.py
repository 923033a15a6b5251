"""Stages in TVM's virtual machine, linked from compiled kernels: on cores, a GPU or a server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, ModelError
from autosplit.extras import relax, tvm
from autosplit.files import atomic_write
from autosplit.graph import Op
from autosplit.hardware.codegen.link import ENTRY, Linker
from autosplit.hardware.codegen.target import toolchain
from autosplit.hardware.devices import processor, rpc
from autosplit.hardware.devices.device import Cores, Device, LocalDevice, Rpc, on_its_machine
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling import profile_cache
from autosplit.hardware.profiling.timing import on_cores
from autosplit.hardware.runtimes.interface import Runtime, Stage, closed_on_error
from autosplit.hardware.runtimes.registry import TVM
from autosplit.hardware.runtimes.tvm import profile
from autosplit.hardware.runtimes.tvm.stage import RpcStage, VmStage
from autosplit.versions import machine


class TvmRuntime(Runtime):
    """Implements Runtime."""

    name = TVM
    suffix = ".so"

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """The regions of external backends, and the ops of each state."""
        return self.source.lowered.keep_together

    @property
    def versions(self) -> str:
        """See Runtime."""
        return toolchain()

    def check(self, devices: Sequence[Device]) -> None:
        """TVM supports every device. Raises ModelError for a model with an opaque op."""
        if self._opaque_ops:
            raise ModelError(self._refusal(self._opaque_ops[0], devices[0]))

    def can_run(self, device: Device) -> bool:
        """See Runtime."""
        return not any(self._refusal(op, device) for op in self.source.graph.ops)

    def prepare(self, devices: Sequence[Device] = ()) -> None:
        """See Runtime. Raises ConfigError where a target needs more than this processor has."""
        for device in devices:
            kernels = self.source.kernels.on(device)
            if isinstance(device, LocalDevice):
                target = self.source.kernels.target_on(device)
                # Instructions that the processor lacks would end the process.
                if missing := processor.missing_features(target.host or target):
                    problem = f"this processor lacks {', '.join(missing)}, which the target"
                    raise ConfigError(f"{problem} of '{device}' needs; give another target or none")
                kernels.module  # noqa: B018  the property links and loads the kernels

    def stages(self, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """See Runtime. Raises ModelError for an op that a device cannot compute."""
        programs: dict[object, Any] = {}

        def linked(device: Device) -> Stage:
            self._require_supported(spec, device)
            linker, place = self._linker(device), on_its_machine(device)
            if isinstance(place, Rpc):
                return RpcStage(rpc.connect(place), partial(linker.write, {ENTRY: spec}), spec)
            # Replicas with the same kernels share a program, unless it has code of a backend.
            key = object() if self.source.lowered.composites else id(linker.kernels)
            if key not in programs:
                programs[key] = linker.link({ENTRY: spec})
            return VmStage(programs[key], place)

        return closed_on_error(map(linked, devices))

    def _linker(self, device: Device) -> Linker:
        kernels = self.source.kernels
        return Linker(self.source.lowered, kernels.on(device), kernels.target_on(device))

    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """See Runtime."""
        composites = {symbol: c.key for symbol, c in self.source.lowered.composites.items()}
        symbols = composites | dict(self.source.kernels.on(device).symbols)
        # Op times depend on the order: results of earlier ops may still be in the CPU's caches.
        order = ",".join(symbols.get(op.kernel, op.kernel) for op in self.source.graph.ops)
        key = [order, str(device), machine()]
        if self._opaque_ops:  # so single ops are timed, before 0.3.0 with other numbers of threads
            key.append("with the threads of the device")
        if isinstance(device, Cores):
            return profile_cache.cached(key, lambda: self._profile_cores(device, seconds), force)
        # The times of a server depend on how many threads its kernels use.
        key.append(str(rpc.connect(device).call()) if isinstance(device, Rpc) else "")
        key.append("in the layout inside a stage")
        place = on_its_machine(device)
        return profile_cache.cached(key, lambda: self._profile_single_ops(place, seconds), force)

    def write(self, spec: StageSpec, file: Path, device: Device) -> None:
        """Write a shared library with the stage's kernels and weights."""
        self._require_supported(spec, device)
        with atomic_write(file) as temporary:
            self._linker(device).write({ENTRY: spec}, temporary)

    @classmethod
    def load_stages(cls, file: Path, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """See Runtime."""

        def loaded(device: Device) -> Stage:
            device = on_its_machine(device)
            if not isinstance(device, Rpc):
                # A path that is loaded already gives the loaded library, even if the file changed.
                with tempfile.TemporaryDirectory(prefix="autosplit-load-") as private:
                    copy = shutil.copyfile(file, Path(private, file.name))
                    return VmStage(tvm.runtime.load_module(str(copy)), device)
            return RpcStage(rpc.connect(device), partial(shutil.copyfile, file), spec)

        return closed_on_error(map(loaded, devices))

    def _require_supported(self, spec: StageSpec, device: Device) -> None:
        """Raises ModelError, naming the op, where a device cannot compute one of a stage."""
        graph = self.source.graph
        for op in (graph.ops[graph.index[op.name]] for op in spec.ops):
            if refusal := self._refusal(op, device):
                raise ModelError(refusal)

    def _refusal(self, op: Op, device: Device) -> str:
        """Why a device cannot compute an op; empty where it can."""
        if op.opaque:
            node = " ".join(op.sources or op.parts)
            return f"node '{node}' cannot run in TVM: {op.opaque}; use --runtime onnxruntime"
        if isinstance(device, Cores):
            return ""
        composites = self.source.lowered.composites
        if op.kernel in composites:
            return (
                f"op '{op.name}' of backend '{composites[op.kernel].backend.name}' runs on "
                f"local cores, not on '{device}'; write cores:0"
            )
        if op.kernel in self.source.kernels.on(device).absent:
            return (
                f"op '{op.name}' cannot be compiled for device '{device}'; "
                "give its stage another device"
            )
        return ""

    @property
    def _opaque_ops(self) -> list[Op]:
        return [op for op in self.source.graph.ops if op.opaque]

    def _profile_cores(self, device: Cores, seconds: float) -> Profile:
        """Op times inside the model; with opaque ops, which take infinitely long, of single ops."""
        if self._opaque_ops:
            return on_cores(device, lambda: self._profile_single_ops(device, seconds))
        whole, item = self.source.whole_stage, self.source.items(1)[0]
        return profile.inside_model(self._linker(device), whole, item, device, seconds)

    def _profile_single_ops(self, device: LocalDevice | Rpc, seconds: float) -> Profile:
        lowered, item = self.source.lowered, self.source.items(1)[0]
        # Only tensors at a cut are converted to the layout of the source; here none are.
        linker = replace(self._linker(device), lowered=replace(lowered, channels_last=frozenset()))
        stages = [
            profile.as_inside(stage, lowered.channels_last)
            for stage in self.source.wiring([[i] for i in range(len(lowered.graph.ops))]).stages
        ]
        functions = {
            op.name: stage
            for op, stage in zip(lowered.graph.ops, stages, strict=True)
            if not self._refusal(op, device)
        }
        with ExitStack() as guarded:
            if isinstance(device, Rpc):
                connection = rpc.connect(device)
                module = connection.load(partial(linker.write, functions))
                guarded.enter_context(connection.guarded("it was profiled"))
                tvm_device = connection.tvm_device
            else:
                device.bind_kernels()
                module, tvm_device = linker.link(functions, merge=False), device.tvm_device()
            vm = relax.VirtualMachine(module, tvm_device)
            times = profile.single_ops(linker, stages, functions, item, vm, tvm_device, seconds)
            return Profile.of_samples(str(device), times)
