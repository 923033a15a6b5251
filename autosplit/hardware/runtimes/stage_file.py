"""A stage in a file: what it takes to load it, here or on another machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autosplit import phases
from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.hardware.codegen.target import architecture, target_of
from autosplit.hardware.devices import processor
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.hardware.runtimes.interface import Stage
from autosplit.hardware.runtimes.registry import TVM, runtime_class
from autosplit.versions import require_pair


@dataclass(frozen=True)
class StageFile:
    """A stage that ``runtime`` wrote into the file ``name``.

    ``digests`` has the sha256 of that file and of those that it needs beside it, by name.
    ``target`` is what its code is for; ``architecture`` is given where the target does not say it.
    """

    runtime: str
    name: str
    digests: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    target: str | None = None
    architecture: str | None = None

    def require_here(self) -> None:
        """Raises MachineError where this machine cannot run the code."""
        if self.runtime != TVM:
            return
        # With an ffi package of another version TVM may crash the process when it loads a library.
        require_pair()
        here, target = platform.machine(), target_of(self.target)
        made_for = self.architecture or architecture(target.host or target)
        if made_for != here:
            raise MachineError(
                f"the split was exported for {made_for}, this machine is {here}; export it there"
            )
        missing = processor.missing_features(target.host or target)
        if missing:
            raise MachineError(
                f"the split was exported for {target.attrs.get('mcpu', target.kind.name)}, this "
                f"processor lacks {', '.join(missing)}; "
                "export it on this machine or for an older processor"
            )

    def load(self, folder: Path, places: Sequence[Device]) -> list[Stage]:
        """The stage on each of some devices, from the folder that its file lies in.

        Raises ConfigError or MachineError where it does not load.
        """
        phases.report(f"loading {self.name}")
        try:
            digest = self.digests[self.name]
            file = folder / self.name
            runtime = runtime_class(self.runtime)
            ports = StagePorts((), self.inputs, self.outputs)
            return runtime.load_stages(file, digest, ports, places)
        except (ConfigError, MachineError):
            raise
        except Exception as error:
            reason = line_of(error, last=True)
            name = {TVM: "TVM"}.get(self.runtime, self.runtime)
            raise MachineError(
                f"'{self.name}' does not load with this {name}: {reason}; see `autosplit doctor`"
            ) from error
