"""What runs on a node of a Ray cluster: one replica of a stage, and the tensors it produced."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from autosplit.errors import line_of
from autosplit.extras import require
from autosplit.hardware.cluster.connection import require_version, write_files
from autosplit.hardware.cluster.shared_outputs import SharedOutputs
from autosplit.hardware.devices import device
from autosplit.hardware.execution.tensor_channel import Array, Channel, connect, listen
from autosplit.hardware.runtimes.arrays import aligned_copy, array_of
from autosplit.hardware.runtimes.stage_file import StageFile


@dataclass(frozen=True)
class ReplicaPlan:
    """One replica: what it loads, its cores, and the secret of its pipeline.

    Of the stage's outputs, by position, the caller gets those in ``returned``. Those in ``passed``
    wait here for other stages, and those in ``stored`` for later items. ``version`` is the
    sender's.
    """

    version: str
    file: StageFile
    device: str
    key: bytes
    returned: tuple[int, ...]
    passed: tuple[int, ...]
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
            (self._stage,) = plan.file.load(Path(folder), [device.parse(plan.device)])
        self._passed = SharedOutputs(len(plan.passed))
        self._stored: dict[int, Any] = {}  # by key, a negative one
        self._keys = count(-1, -1)
        self._borrowed: dict[tuple[str, int, int], Array] = {}
        self._requests: SimpleQueue[tuple[Channel, list[Any]]] = SimpleQueue()
        self._senders = ThreadPoolExecutor(thread_name_prefix="send")
        opened: Future[None] = Future()
        threading.Thread(target=self._compute, args=(opened,), name="stage", daemon=True).start()
        opened.result()
        return listen(require("ray", "ray").util.get_node_ip_address(), plan.key, self._serve)

    def live(self) -> None:
        """Never returns, so that Ray says when the actor ends."""
        threading.Event().wait()

    def _serve(self, channel: Channel) -> None:
        """Answer the pipeline or another actor until it goes."""
        sources: dict[tuple[str, int], Channel] = {}
        try:
            while True:
                request, arrays = channel.receive(are_lasting=False)
                if "fetch" in request:
                    self._pass_on(request, channel)
                    continue
                for key in request["free"]:
                    self._free(key)
                try:
                    # Here other items' tensors arrive while the stage computes.
                    values = self._collect(request["inputs"], iter(arrays), sources)
                except OSError as error:
                    channel.send({"lost": f"{type(error).__name__}: {line_of(error)}"})
                else:
                    self._requests.put((channel, values))
        finally:
            for source in sources.values():
                source.close()

    def _compute(self, opened: Future[None]) -> None:
        """Run the stage in the thread where it was opened, and answer."""
        try:
            self._stage.open()
            opened.set_result(None)
        except BaseException as error:
            opened.set_exception(error)
            return
        while True:
            channel, values = self._requests.get()
            reply, arrays = self._computed(values)
            if arrays and not channel.is_shared:
                # While they travel the next item is computed.
                self._senders.submit(_send, channel, reply, arrays)
            else:
                _send(channel, reply, arrays)
            # Otherwise they would stay in memory during the next wait.
            del values, arrays

    def _computed(self, values: Sequence[Any]) -> tuple[dict[str, Any], Sequence[Any]]:
        """The answer to a request with these inputs."""
        try:
            results = self._stage.run(values)
            passed = [array_of(results[i]) for i in self._plan.passed]
            keys = list(zip(self._plan.passed, self._passed.put(passed), strict=True))
            for position in self._plan.stored:
                key = next(self._keys)
                self._stored[key] = _lasting(results[position], values)
                keys.append((position, key))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {line_of(error)}"}, ()
        return {"keys": keys}, [results[i] for i in self._plan.returned]

    def _free(self, key: int) -> None:
        if key < 0:
            self._stored.pop(key, None)
        else:
            self._passed.free(key)

    def _tensor(self, key: int) -> Any:
        return self._stored[key] if key < 0 else self._passed.get(key)

    def _collect(self, inputs: Any, arrays: Any, sources: dict[tuple[str, int], Channel]) -> Any:
        """The input values: of this request, of this actor, or of another one."""
        values = []
        for place in inputs:
            if place is None:
                values.append(next(arrays))
                continue
            source = host, port, key = tuple(place)
            if port is None:
                values.append(self._tensor(key))
            elif source in self._borrowed:
                values.append(self._borrowed[source])
            else:
                if (host, port) not in sources:
                    sources[host, port] = connect((host, port), self._plan.key)
                values.append(self._fetch(source, sources[host, port]))
        return values

    def _fetch(self, source: tuple[str, int, int], channel: Channel) -> Any:
        """A tensor of another actor."""
        host, port, key = source
        channel.send({"fetch": key, "lend": channel.is_shared})
        message, arrays = channel.receive()
        if arrays:
            return arrays[0]
        for each, array in zip(message["keys"], channel.borrow(message), strict=True):
            self._borrowed[host, port, each] = array
        return self._borrowed[source]

    def _pass_on(self, request: dict[str, Any], channel: Channel) -> None:
        """Answer an actor that fetches a tensor; on this machine lend it the memory."""
        key = request["fetch"]
        if not request["lend"] or key < 0:
            channel.send({}, [self._tensor(key)])
            return
        keys, memory = self._passed.memory(key)
        channel.lend({"keys": list(keys)}, memory)


def _send(channel: Channel, reply: dict[str, Any], arrays: Sequence[Any]) -> None:
    try:
        channel.send(reply, arrays)
    except Exception:
        channel.close()  # which ends the thread that serves it


def _lasting(result: Any, values: Sequence[Any]) -> Any:
    """A result, copied where it lies in the memory of an input, which the next one overwrites."""
    array = array_of(result)
    inputs = [value for value in values if isinstance(value, np.ndarray)]
    is_input = any(np.may_share_memory(array, value) for value in inputs)
    return aligned_copy(array) if is_input else result
