"""What runs on a node of a Ray cluster: one replica of a stage, and the tensors it produced."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from autosplit.errors import line_of
from autosplit.extras import require
from autosplit.hardware.cluster.connection import require_version, write_files
from autosplit.hardware.devices import device
from autosplit.hardware.execution.tensor_channel import Channel, connect, listen
from autosplit.hardware.runtimes.stage_file import StageFile


@dataclass(frozen=True)
class ReplicaPlan:
    """One replica: what it loads, its cores, and the secret of its pipeline.

    Of the stage's outputs, by position, the caller gets those in ``returned``, and those in
    ``stored`` wait here for other stages and later items. ``version`` is the sender's.
    """

    version: str
    file: StageFile
    device: str
    key: bytes
    returned: tuple[int, ...]
    stored: tuple[int, ...]


class StageActor:
    """Ray's actor; its methods but ``load`` and ``live`` are called in threads of its own."""

    def load(self, plan: ReplicaPlan, *contents: Any) -> tuple[str, int]:
        """Load the replica from its files' contents; returns the address where it listens.

        Raises as ``autosplit.load``, of which the check of the files is part.
        """
        require_version(plan.version)
        self._plan = plan
        plan.file.require_here()
        with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
            write_files(Path(folder), plan.file.digests, contents)
            self._stage = plan.file.load(Path(folder), device.parse(plan.device))
        # A stage has to be run where it was opened.
        self._worker = ThreadPoolExecutor(1, "stage")
        self._worker.submit(self._stage.open).result()
        self._tensors: dict[int, Any] = {}
        self._keys = count()
        return listen(require("ray", "ray").util.get_node_ip_address(), plan.key, self._serve)

    def live(self) -> None:
        """Never returns, so that Ray says when the actor ends."""
        threading.Event().wait()

    def _serve(self, channel: Channel) -> None:
        """Answer the pipeline or another actor until it goes."""
        sources: dict[tuple[str, int], Channel] = {}
        try:
            while True:
                request, arrays = channel.receive()
                if "fetch" in request:
                    channel.send({}, [self._tensors[request["fetch"]]])
                else:
                    channel.send(*self._answer(request, arrays, sources))
        finally:
            for source in sources.values():
                source.close()

    def _answer(
        self, request: Any, arrays: Sequence[Any], sources: dict[tuple[str, int], Channel]
    ) -> tuple[dict[str, Any], Sequence[Any]]:
        for key in request["free"]:
            self._tensors.pop(key, None)
        try:
            # Here other items' tensors arrive while the stage computes.
            values = self._collect(request["inputs"], iter(arrays), sources)
        except OSError as error:
            return {"lost": f"{type(error).__name__}: {line_of(error)}"}, ()
        try:
            results = self._worker.submit(self._stage.run, values).result()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {line_of(error)}"}, ()
        keys = {}
        for position in self._plan.stored:
            keys[position] = next(self._keys)
            self._tensors[keys[position]] = results[position]
        return {"keys": list(keys.items())}, [results[i] for i in self._plan.returned]

    def _collect(self, inputs: Any, arrays: Any, sources: dict[tuple[str, int], Channel]) -> Any:
        """The input values: of this request, of this actor, or of another one."""
        values = []
        for source in inputs:
            if source is None:
                values.append(next(arrays))
                continue
            host, port, key = source
            if port is None:
                values.append(self._tensors[key])
                continue
            if (host, port) not in sources:
                sources[host, port] = connect((host, port), self._plan.key)
            sources[host, port].send({"fetch": key})
            values += sources[host, port].receive()[1]
        return values
