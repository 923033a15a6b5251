"""Stages in TVM's virtual machine, linked from compiled kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.hardware import cache, profile
from autosplit.hardware.devices import Cores
from autosplit.hardware.link import link, write
from autosplit.hardware.results import Profile
from autosplit.hardware.stage import VmStage
from autosplit.hardware.target import toolchain
from autosplit.hardware.wiring import StagePorts

if TYPE_CHECKING:
    from autosplit.hardware.model import Model


@dataclass(frozen=True)
class TvmRunner:
    """Implements Runner."""

    model: Model
    suffix = ".so"

    @property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Ops of an external backend that were asked to be one region."""
        return self.model.lowered.together

    @property
    def versions(self) -> str:
        """See Runner."""
        return toolchain()

    def prepare(self) -> None:
        """Compile the kernels that the cache does not hold."""
        self.model.kernels  # noqa: B018  a cached property

    def stage(self, ports: StagePorts, device: Cores) -> VmStage:
        """See Runner."""
        return VmStage(link(self.model.lowered, self.model.kernels, ports, self.model.target), device)

    def whole(self, ports: StagePorts, device: Cores) -> VmStage:
        """See Runner."""
        return self.stage(ports, device)

    def profile(self, device: Cores, seconds: float, force: bool) -> Profile:
        """See Runner."""
        model, lowered, kernels = self.model, self.model.lowered, self.model.kernels
        whole = model.whole.stages[0]

        def measure() -> Profile:
            module = link(lowered, kernels, whole, model.target, merge=False)
            item = model.items(1)[0]
            inputs = [item[p.name] for p in whole.inputs]
            return profile.profile_ops(lowered, kernels, module, inputs, device, seconds)

        composites = {symbol: c.key for symbol, c in lowered.composites.items()}
        symbols = composites | dict(kernels.symbols)
        order = ",".join(symbols.get(op.kernel, op.kernel) for op in model.graph.ops)
        return profile.cached((order, str(device), profile.machine()), measure, force)

    def write(self, ports: StagePorts, file: Path) -> None:
        """Write a shared library that holds the stage's kernels and weights."""
        with cache.writing(file) as temporary:
            write(self.model.lowered, self.model.kernels, ports, self.model.target, temporary)
