"""What runs on a node of a Ray cluster: one replica of a stage, and the states it left."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.hardware.cluster.connection import require_version, write_files
from autosplit.hardware.devices import device
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.runtimes.arrays import aligned_copy, array_of
from autosplit.hardware.runtimes.interface import Stage
from autosplit.hardware.runtimes.stage_files import load_stage, require_here


class StageActor:
    """Ray's actor. ``run`` is called in one thread, the other methods in another."""

    def __init__(self, version: str) -> None:
        require_version(version)

    def load(
        self,
        spec: StageSpec,
        environment: Mapping[str, str],
        place: str,
        stored: Collection[int],
        *contents: Any,
    ) -> None:
        """Load the replica from its files' contents, on cores of this node.

        The outputs ``stored``, by position, stay here for later items. Raises as
        ``autosplit.load``, of which the check of the files is part.
        """
        with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
            write_files(Path(folder), spec.digests, contents)
            self._stage = self._loaded(spec, environment, Path(folder), place)
        self._stored = stored
        self._states: dict[int, Any] = {}
        self._keys = count()
        self._is_open = False

    def _loaded(
        self, spec: StageSpec, environment: Mapping[str, str], folder: Path, place: str
    ) -> Stage:
        require_here(spec, environment)
        (stage,) = load_stage(spec, folder, [device.parse(place)])
        return stage

    def run(self, request: tuple[Sequence[Any], Sequence[int]]) -> list[Any]:
        """The outputs for some inputs; states are keys in both. The second keys are given up."""
        inputs, unused = request
        for key in unused:
            self._states.pop(key, None)
        if not self._is_open:
            self._stage.open()
            self._is_open = True
        values = [self._states[value] if isinstance(value, int) else value for value in inputs]
        outputs: list[Any] = []
        for position, result in enumerate(self._stage.run(values)):
            if position not in self._stored:
                outputs.append(array_of(result))
                continue
            outputs.append(next(self._keys))
            self._states[outputs[-1]] = _lasting(result, inputs)
        return outputs

    def state(self, key: int) -> Any:
        """A stored output."""
        return array_of(self._states[key])

    def unload(self) -> None:
        """Free the memory of the stage and its states."""
        self._stage.close()
        del self._stage
        self._states.clear()


def _lasting(result: Any, inputs: Sequence[Any]) -> Any:
    """A result, copied where it lies in the memory of an input, which the next one overwrites."""
    array = array_of(result)
    is_input = any(np.may_share_memory(array, each) for each in inputs if not isinstance(each, int))
    return aligned_copy(array) if is_input else result
