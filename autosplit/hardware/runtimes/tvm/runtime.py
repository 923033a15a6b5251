"""Stages in TVM's virtual machine, linked from compiled kernels; here, on a GPU, or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit import files
from autosplit.hardware import cache
from autosplit.hardware.codegen.link import large_weights, link, link_each, write
from autosplit.hardware.codegen.target import spelled, toolchain
from autosplit.hardware.devices import rpc
from autosplit.hardware.devices.device import Cores, Device, Rpc
from autosplit.hardware.execution.wiring import StagePorts
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling import single_ops, transfer_costs
from autosplit.hardware.profiling import whole_model as profile
from autosplit.hardware.runtimes.stage import Stage, VmStage
from autosplit.hardware.runtimes.tvm.remote_stage import RpcStage, machine_of
from autosplit.versions import machine

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel


@dataclass(frozen=True)
class TvmRuntime:
    """Implements Runtime."""

    model: CompiledModel
    suffix = ".so"

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """Ops of an external backend that were asked to be one region."""
        return self.model.lowered.keep_together

    @property
    def versions(self) -> str:
        """See Runtime."""
        return toolchain()

    def check(self, devices: Sequence[Device]) -> None:
        """See Runtime; TVM runs on all of them."""

    def prepare(self, devices: Sequence[Device] = ()) -> None:
        """Compile the kernels that the cache does not hold, for each device."""
        for device in devices:
            kernels = self.model.kernels_on(device)
            if not isinstance(device, Rpc):
                kernels.module  # noqa: B018  a cached property

    def stage(self, ports: StagePorts, device: Device) -> Stage:
        """See Runtime. Raises ModelError where the device cannot run an op of the stage."""
        lowered, kernels, target = self._on(device)
        if not isinstance(device, Cores):
            single_ops.require_all(kernels, lowered, ports, str(device))
        if not isinstance(device, Rpc):
            weights = large_weights(lowered, ports) if isinstance(device, Cores) else ()
            module = link(lowered, kernels, ports, target, weights=weights)
            return VmStage(module, device, [w.value for w in weights])
        key = cache.digest(
            self.model.sha256, spelled(target), repr(ports), *sorted(kernels.symbols.values())
        )

        def written(file: Path) -> None:
            write(lowered, kernels, {"main": ports}, target, file)

        return RpcStage(rpc.connect(device), key, written, ports.inputs, len(ports.outputs))

    def whole(self, ports: StagePorts, device: Device) -> Stage:
        """See Runtime."""
        return self.stage(ports, device)

    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """See Runtime."""
        _, kernels, _ = self._on(device)
        composites = {symbol: c.key for symbol, c in self.model.lowered.composites.items()}
        symbols = composites | dict(kernels.symbols)
        order = ",".join(symbols.get(op.kernel, op.kernel) for op in self.model.graph.ops)
        where = (order, str(device), machine())
        if isinstance(device, Cores):
            return profile.cached(where, lambda: self._profile_within(device, seconds), force)
        return profile.cached(
            (*where, _threads(device)), lambda: self._profile_apart(device, seconds), force
        )

    def link(self, device: Device) -> LinkCost:
        """See Runtime."""
        if isinstance(device, Cores):
            return LinkCost(str(device))
        if isinstance(device, Rpc):
            connection = rpc.connect(device)
            with connection.guarded("its link was measured"):
                return transfer_costs.measure(str(device), connection.tvm_device, connection.call)
        runtime = device.tvm_device()
        return transfer_costs.measure(str(device), runtime, runtime.sync)

    def write(self, ports: StagePorts, file: Path, device: Device) -> None:
        """Write a shared library that holds the stage's kernels and weights."""
        lowered, kernels, target = self._on(device)
        if not isinstance(device, Cores):
            single_ops.require_all(kernels, lowered, ports, str(device))
        with files.atomic_write(file) as temporary:
            write(lowered, kernels, {"main": ports}, target, temporary)

    def _on(self, device: Device) -> tuple[Any, Any, Any]:
        return self.model.lowered, self.model.kernels_on(device), self.model.target_on(device)

    def _profile_within(self, device: Cores, seconds: float) -> Profile:
        lowered, kernels, target = self._on(device)
        whole = self.model.whole.stages[0]
        module = link(lowered, kernels, whole, target, merge=False)
        item = self.model.items(1)[0]
        return profile.profile_ops(
            lowered, kernels, module, [item[p.name] for p in whole.inputs], device, seconds
        )

    def _profile_apart(self, device: Device, seconds: float) -> Profile:
        lowered, kernels, target = self._on(device)
        ports = self.model.wiring([[i] for i in range(len(self.model.graph.ops))]).stages
        functions = single_ops.functions(ports, lowered, kernels)
        common = (ports, self.model.items(1)[0], str(device), seconds)
        if isinstance(device, Rpc):
            connection = rpc.connect(device)
            key = cache.digest("profile", self.model.sha256, spelled(target))
            module = connection.load(
                key, lambda file: write(lowered, kernels, functions, target, file, merge=False)
            )
            with connection.guarded("it was profiled"):
                machine = machine_of(connection, module)
                return single_ops.profile_apart(
                    lowered, kernels, machine, connection.tvm_device, *common
                )
        from tvm import cpu, relax

        runtime = device.tvm_device()
        machine = relax.VirtualMachine(
            link_each(lowered, kernels, functions, target), [runtime, cpu()]
        )
        return single_ops.profile_apart(lowered, kernels, machine, runtime, *common)


def _threads(device: Device) -> str:
    """How many kernel threads a server has, on which its times depend."""
    return str(rpc.connect(device).call()) if isinstance(device, Rpc) else ""
