"""What runs on a node of a Ray cluster: one replica of a stage."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autosplit.hardware.cluster.connection import require_version, write_files
from autosplit.hardware.devices import device
from autosplit.hardware.runtimes.arrays import array_of
from autosplit.hardware.runtimes.stage_spec import StageSpec


class StageActor:
    """Ray's actor. ``run`` is called in one thread, ``load`` in another."""

    def load(
        self,
        version: str,
        spec: StageSpec,
        environment: Mapping[str, str],
        place: str,
        *contents: Any,
    ) -> None:
        """Load the replica from its files' contents, on cores of this node.

        Raises as ``autosplit.load``, of which the check of the files is part.
        """
        require_version(version)
        spec.require_here(environment)
        with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
            write_files(Path(folder), spec.digests, contents)
            (self._stage,) = spec.load(Path(folder), [device.parse(place)])
        self._is_open = False

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for some inputs."""
        if not self._is_open:
            self._stage.open()
            self._is_open = True
        return list(map(array_of, self._stage.run(inputs)))
