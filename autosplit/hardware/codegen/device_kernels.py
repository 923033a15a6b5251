"""The kernels of one model for every device, compiled once for each target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autosplit.hardware.codegen.kernels import Kernels, compile_kernels
from autosplit.hardware.codegen.schedules import schedule, unscheduled
from autosplit.hardware.codegen.target import spelled, target_on
from autosplit.hardware.devices.device import Cores, Device


@dataclass(frozen=True)
class DeviceKernels:
    """Compiles PrimFuncs for a device when they are first needed there.

    ``target`` is that of local cores and the default of other devices; ``targets`` gives devices,
    by their spelling, targets of their own. ``tuning`` is the folder of a tuning database.
    """

    functions: Mapping[str, Any]
    target: Any
    targets: Mapping[str, str] = field(default_factory=dict)
    tuning: Path | None = None

    @property
    def default(self) -> Kernels:
        """The kernels for ``target`` and one thread."""
        return self._compiled(self.target, threads=False)

    @property
    def unscheduled(self) -> frozenset[str]:
        """The kernels for ``target`` that no record and no rule schedules; compiles nothing."""
        return unscheduled(schedule(self.functions, self.target, self.tuning))

    def target_on(self, device: Device) -> Any:
        """The target of a device. Raises MachineError where the device is not there."""
        name = str(device)
        if name not in self._device_targets:
            self._device_targets[name] = target_on(device, self.targets.get(name), self.target)
        return self._device_targets[name]

    def on(self, device: Device) -> Kernels:
        """The kernels for a device; ``absent`` are those that it cannot compute."""
        threads = not isinstance(device, Cores) or len(device.numbers) > 1
        return self._compiled(self.target_on(device), threads)

    def _compiled(self, target: Any, threads: bool) -> Kernels:
        key = (spelled(target), threads)
        if key not in self._kernels:
            partly = spelled(target) != spelled(self.target)
            self._kernels[key] = compile_kernels(
                self.functions, target, self.tuning, partly, threads
            )
        return self._kernels[key]

    @cached_property
    def _device_targets(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _kernels(self) -> dict[tuple[str, bool], Kernels]:
        return {}
