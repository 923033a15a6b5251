"""A stage in onnxruntime: a session on an ONNX model, on a set of local cores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.measurement.parity import onnxruntime_session


class OnnxStage:
    """One thread a core; for a single core that is the calling thread alone.

    ``model`` has inputs and outputs by the names of the ports. ``spinning``: a thread that waits for work keeps its core
    busy, which is fastest where nothing else needs the core.
    """

    def __init__(
        self,
        model: Path | bytes,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        cores: Cores,
        spinning: bool = False,
    ) -> None:
        self._cores = cores
        self._inputs = [p.name for p in inputs]
        self._outputs = [p.name for p in outputs]
        self._session = on_cores(
            model, cores, {"session.intra_op.allow_spinning": str(int(spinning))}
        )
        for kind, wanted, there in (
            ("inputs", self._inputs, self._session.get_inputs()),
            ("outputs", self._outputs, self._session.get_outputs()),
        ):
            if sorted(wanted) != sorted(t.name for t in there):
                raise ModelError(
                    f"the stage's {kind} are {', '.join(wanted)}, those of its ONNX model are "
                    f"{', '.join(t.name for t in there)}; export it again"
                )

    def open(self) -> None:
        """Keep the calling thread on the stage's cores."""
        self._cores.bind()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Arrays go in and out as they are: measured, OrtValues and bindings are no faster."""
        arrays = (v.numpy() if hasattr(v, "numpy") else v for v in values)
        results: Sequence[Any] = self._session.run(
            self._outputs, dict(zip(self._inputs, arrays, strict=True))
        )
        return results

    def close(self) -> None:
        """The session ends with its last reference."""


def on_cores(model: Path | bytes, cores: Cores, entries: dict[str, str], **options: Any) -> Any:
    """A session whose own threads run on ``cores``: a thread inherits that from the one that makes it."""
    with ThreadPoolExecutor(1, "session", cores.bind) as own_thread:
        return own_thread.submit(
            onnxruntime_session, model, len(cores.numbers), entries, **options
        ).result()
