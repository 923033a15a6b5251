"""What runs stages, chosen by the name of its runtime: TVM's virtual machine or onnxruntime."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autosplit.errors import ConfigError
from autosplit.hardware.devices.device import Cores, Device, Rpc
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.runtimes.stage import Stage

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel

TVM, ONNXRUNTIME = RUNTIMES = ("tvm", "onnxruntime")


class Runtime(Protocol):
    """Runs the stages of one model."""

    suffix: str
    """Of the name of a stage's file."""

    @property
    def versions(self) -> str:
        """What the stages' times and files depend on."""
        ...

    @property
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of ops that no cut may part, by index."""
        ...

    def check(self, devices: Sequence[Device]) -> None:
        """Raises ConfigError for a device on which the runtime cannot run."""
        ...

    def prepare(self, devices: Sequence[Device] = ()) -> None:
        """Do what all stages on some devices need done once. Raises AutosplitError where the model cannot be run so."""
        ...

    def stage(self, ports: StagePorts, device: Device) -> Stage:
        """The stage that computes some ops on a device. Raises SplitError where the runtime cannot cut there."""
        ...

    def whole(self, ports: StagePorts, device: Device) -> Stage:
        """All ops on a device, as fast as the runtime runs them there."""
        ...

    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """The time of every op on a device; from the cache unless ``force``."""
        ...

    def link(self, device: Device) -> LinkCost:
        """What it takes to move tensors to a device and to call it, measured."""
        ...

    def write(self, ports: StagePorts, file: Path, device: Device) -> Path | None:
        """Write the stage's file for a device; returns the file beside it that it needs, None where there is none."""
        ...


def runtime_of(model: CompiledModel, runtime: str) -> Runtime:
    """The runtime of a model for one of the RUNTIMES."""
    if runtime == TVM:
        from autosplit.hardware.runtimes.tvm.runtime import TvmRuntime

        return TvmRuntime(model)
    from autosplit.hardware.runtimes.onnxruntime.runtime import OnnxruntimeRuntime

    return OnnxruntimeRuntime(model)


def load_stage(
    runtime: str,
    file: Path,
    sha256: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    device: Device,
) -> Stage:
    """The stage of a file, with that digest, that a runtime of ``runtime`` wrote."""
    if runtime == ONNXRUNTIME:
        from autosplit.hardware.runtimes.onnxruntime.stage import OnnxStage

        return OnnxStage(file, inputs, outputs, local_cores(runtime, device))
    if isinstance(device, Rpc):
        from autosplit.hardware.devices import rpc
        from autosplit.hardware.runtimes.tvm.remote_stage import RpcStage

        def copied(there: Path) -> None:
            shutil.copyfile(file, there)

        return RpcStage(rpc.connect(device), sha256, copied, inputs, len(outputs))
    from autosplit.hardware.runtimes.stage import VmStage

    return VmStage(_library(file), device)


def _library(file: Path) -> Any:
    """The library in a file, whose path no library was loaded from before.

    The loader knows a library by its path and would return the one that it loaded first.
    """
    import tvm  # noqa: F401  it brings what reads TVM's libraries
    import tvm_ffi

    return tvm_ffi.load_module(str(file))


def local_cores(runtime: str, device: Device) -> Cores:
    """The device, if it is a set of local cores. Raises ConfigError otherwise."""
    if not isinstance(device, Cores):
        raise ConfigError(
            f"runtime '{runtime}' runs on local cores, not on '{device}'; use runtime tvm there, or write cores:0"
        )
    return device
