"""A replica in a Ray actor, as the pipeline sees it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from autosplit.errors import StageError
from autosplit.hardware.execution.tensor_channel import Array, Channel, connect


class RayReplica:
    """Implements Stage; several threads call it, each through a channel of its own.

    ``end`` kills the actor. ``cause`` says, once a channel broke, which actor or node failed.
    """

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        key: bytes,
        outputs: tuple[Sequence[int], int],
        cause: Callable[[], str],
        end: Callable[[], None],
    ) -> None:
        self.name = name
        self.address = address
        self._key = key
        self._returned, self._output_count = outputs
        self._cause, self._end = cause, end
        self._local = threading.local()
        self._channels: list[Channel] = []
        self._fetching = threading.Lock()
        self._fetcher: Channel | None = None
        # Of tensors that nothing refers to any more; the next request tells the actor.
        self.unused: deque[int] = deque()

    def open(self) -> None:
        """Connect the calling thread."""
        self._local.channel = self._connected()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Raises StageError where the stage failed, or its actor or node is gone."""
        inputs: list[Any] = []
        arrays = []
        for value in values:
            if isinstance(value, RemoteTensor):
                inputs.append(value.source(self))
            else:
                inputs.append(None)
                arrays.append(value)
        reply, returned = self._ask(
            self._local.channel, {"inputs": inputs, "free": self._freed()}, arrays
        )
        results: list[Any] = [None] * self._output_count
        for position, array in zip(self._returned, returned, strict=True):
            results[position] = array
        for position, key in reply["keys"]:
            results[position] = RemoteTensor(self, key, results[position])
        return results

    def close(self) -> None:
        """End the actor. Idempotent."""
        self.disconnect()
        self._end()

    def disconnect(self) -> None:
        """Close every channel; a thread that waits for one raises StageError with the cause."""
        for channel in list(self._channels):
            channel.close()

    def fetch(self, key: int) -> Array:
        """A tensor of the actor. Raises StageError where the actor is gone."""
        with self._fetching:
            self._fetcher = self._fetcher or self._connected()
            return self._ask(self._fetcher, {"fetch": key, "lend": False})[1][0]

    def _connected(self) -> Channel:
        try:
            channel = connect(self.address, self._key)
        except OSError as error:
            raise StageError(self._cause() or self._unreachable(error)) from error
        self._channels.append(channel)
        return channel

    def _ask(
        self, channel: Channel, request: dict[str, Any], arrays: Sequence[Any] = ()
    ) -> tuple[dict[str, Any], list[Array]]:
        try:
            channel.send(request, arrays)
            reply, returned = channel.receive()
        except OSError as error:
            raise StageError(self._cause() or self._unreachable(error)) from error
        if "lost" in reply:
            raise StageError(self._cause() or f"{self.name} cannot get a tensor ({reply['lost']})")
        if "error" in reply:
            raise StageError(f"{self.name}: {reply['error']}")
        return reply, returned

    def _unreachable(self, error: OSError) -> str:
        host, port = self.address
        return (
            f"{self.name} does not answer at {host}:{port} ({error}); open its ports to this node"
        )

    def _freed(self) -> list[int]:
        keys: list[int] = []
        with contextlib.suppress(IndexError):  # none is left, or another thread took the last one
            while True:
                keys.append(self.unused.popleft())
        return keys


class RemoteTensor:
    """A tensor that an actor holds, as long as this refers to it; ``array`` where it came too."""

    def __init__(self, owner: RayReplica, key: int, array: Array | None) -> None:
        self._owner, self._key, self._array = owner, key, array

    def source(self, reader: RayReplica) -> tuple[str, int | None, int]:
        """Where a reader gets it: host, port and key; in its own actor without a port."""
        host, port = self._owner.address
        return host, None if reader is self._owner else port, self._key

    def numpy(self) -> Array:
        """The tensor in this process's memory."""
        if self._array is None:
            self._array = self._owner.fetch(self._key)
        return self._array

    def __del__(self) -> None:
        self._owner.unused.append(self._key)
