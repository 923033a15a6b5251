"""What runs stages, chosen by the name of its backend: TVM's virtual machine or onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autosplit.hardware.devices import Cores
from autosplit.hardware.results import Profile
from autosplit.hardware.stage import Stage
from autosplit.hardware.wiring import Port, StagePorts

if TYPE_CHECKING:
    from autosplit.hardware.model import Model

TVM, ONNXRUNTIME = BACKENDS = ("tvm", "onnxruntime")


class Runner(Protocol):
    """Runs the stages of one model."""

    suffix: str
    """Of the name of a stage's file."""

    @property
    def versions(self) -> str:
        """What the stages' times and files depend on."""
        ...

    @property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of ops that no cut may part, by index."""
        ...

    def prepare(self) -> None:
        """Do what all stages need done once. Raises AutosplitError where the model cannot be run so."""
        ...

    def stage(self, ports: StagePorts, device: Cores) -> Stage:
        """The stage that computes some ops on a device. Raises SplitError where the backend cannot cut there."""
        ...

    def whole(self, ports: StagePorts, device: Cores) -> Stage:
        """All ops on a device, as fast as the backend runs them there."""
        ...

    def profile(self, device: Cores, seconds: float, force: bool) -> Profile:
        """The time of every op on a device; from the cache unless ``force``."""
        ...

    def write(self, ports: StagePorts, file: Path) -> Path | None:
        """Write the stage's file; returns the file beside it that it needs, None where there is none."""
        ...


def runner_of(model: Model, backend: str) -> Runner:
    """The runner of a model for one of the BACKENDS."""
    if backend == TVM:
        from autosplit.hardware.tvm_runner import TvmRunner

        return TvmRunner(model)
    from autosplit.hardware.onnx_runner import OnnxRunner

    return OnnxRunner(model)


def load_stage(backend: str, file: Path, inputs: Sequence[Port], outputs: Sequence[Port], device: Cores) -> Stage:
    """The stage of a file that a runner of ``backend`` wrote."""
    if backend == TVM:
        import tvm

        from autosplit.hardware.stage import VmStage

        return VmStage(tvm.runtime.load_module(str(file)), device)
    from autosplit.hardware.onnx_stage import OnnxStage

    return OnnxStage(file, inputs, outputs, device)
