"""A stage in onnxruntime: a session on a set of local cores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.runtimes.onnx.stage import SubmodelStage
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_session


class SessionStage(SubmodelStage):
    """Implements Stage with one thread a core; on a single core that is the calling thread.

    With ``spinning`` a thread that waits for work keeps its core busy: fastest where nothing else
    needs the core.
    """

    def __init__(
        self,
        model: Path | bytes,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        cores: Cores,
        spinning: bool = False,
    ) -> None:
        super().__init__(inputs, outputs, cores)
        options = {"session.intra_op.allow_spinning": str(int(spinning))}
        self._session = session_on(model, cores, options)
        self._require_tensors(
            [t.name for t in self._session.get_inputs()],
            [t.name for t in self._session.get_outputs()],
        )

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Plain arrays were measured: OrtValues and IO bindings are no faster."""
        results: Sequence[Any] = self._session.run(self._outputs, self._feed(values))
        return results


def session_on(model: Path | bytes, cores: Cores, entries: dict[str, str], **options: Any) -> Any:
    """A session whose threads run on ``cores``."""
    # A new thread inherits the affinity of the one that starts it.
    with ThreadPoolExecutor(1, "session", cores.bind) as executor:
        return executor.submit(
            onnxruntime_session, model, len(cores.numbers), entries, **options
        ).result()
