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

    @cached_property
    def default(self) -> Kernels:
        """The kernels for ``target`` and one thread."""
        return compile_kernels(self.functions, self.target, self.tuning)

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
        target = self.target_on(device)
        is_default = spelled(target) == spelled(self.target)
        threads = not isinstance(device, Cores) or len(device.numbers) > 1
        if is_default and not threads:
            return self.default
        name = f"{spelled(target)} {threads}"
        if name not in self._kernels:
            self._kernels[name] = compile_kernels(
                self.functions, target, self.tuning, partly=not is_default, threads=threads
            )
        return self._kernels[name]

    @cached_property
    def _device_targets(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _kernels(self) -> dict[str, Kernels]:
        return {}
