"""A stage in onnxruntime: a session on a set of local cores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_session


class SessionStage:
    """Implements Stage with one thread a core; on a single core that is the calling thread.

    ``model`` has inputs and outputs by the names of the ports. With ``spinning`` a thread that
    waits for work keeps its core busy: fastest where nothing else needs the core.
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
        options = {"session.intra_op.allow_spinning": str(int(spinning))}
        self._session = session_on(model, cores, options)
        _require_names("inputs", self._inputs, [t.name for t in self._session.get_inputs()])
        _require_names("outputs", self._outputs, [t.name for t in self._session.get_outputs()])

    def open(self) -> None:
        """Pin the calling thread to the stage's cores."""
        self._cores.bind()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Plain arrays were measured: OrtValues and IO bindings are no faster."""
        arrays = (v.numpy() if hasattr(v, "numpy") else v for v in values)
        feed = dict(zip(self._inputs, arrays, strict=True))
        results: Sequence[Any] = self._session.run(self._outputs, feed)
        return results

    def close(self) -> None:
        """The session ends with its last reference."""


def session_on(model: Path | bytes, cores: Cores, entries: dict[str, str], **options: Any) -> Any:
    """A session whose threads run on ``cores``."""
    # A new thread inherits the affinity of the one that starts it.
    with ThreadPoolExecutor(1, "session", cores.bind) as executor:
        return executor.submit(
            onnxruntime_session, model, len(cores.numbers), entries, **options
        ).result()


def _require_names(kind: str, ports: list[str], tensors: list[str]) -> None:
    if sorted(ports) != sorted(tensors):
        raise ModelError(
            f"the stage's {kind} are {', '.join(ports)}, those of its ONNX model are "
            f"{', '.join(tensors)}; export it again"
        )
