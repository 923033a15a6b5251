"""A replica in a Ray actor, as the pipeline sees it."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

from autosplit.errors import StageError, line_of
from autosplit.hardware.cluster.actor import StageActor
from autosplit.hardware.cluster.connection import answer, connected
from autosplit.hardware.cluster.pool import PooledActor, take
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.ray_nodes import RayPlace
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.runtimes.arrays import aligned_copy, array_of, dtype_of


class RayReplica:
    """Implements Stage; several threads may call it at once.

    ``environment`` is that of the export, ``contents`` has Ray's references to the files of
    ``spec``, and Ray reserves ``cpus`` for it. Without those it takes an actor that is there.
    """

    def __init__(
        self,
        spec: StageSpec,
        environment: Mapping[str, str],
        contents: Mapping[str, Any],
        place: RayPlace,
        cpus: int = 0,
    ) -> None:
        self._ray = connected()
        self._spec, self._environment, self._place = spec, environment, place
        self._contents = [contents[name] for name in spec.digests]
        self._size = _buffer_bytes(spec)
        self._actor: PooledActor | None = take(StageActor, place, cpus)
        self._handle: Any = self._actor.handle
        # Once the stage is loaded, until it is closed.
        self._submit: Callable[[Any], Any] | None = None
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._sent = self._received = 0
        # Of states that nothing refers to any more; the next request tells the actor.
        self.unused: deque[int] = deque()

    def load(self, name: str, stored: Collection[int]) -> None:
        """Begin to load the stage, which is called ``name``; outputs ``stored`` stay there."""
        self.name = f"{name} on {self._place}"
        self._loading = self._handle.load.remote(
            self._spec, self._environment, str(self._place.cores), stored, *self._contents
        )

    def await_load(self) -> None:
        """Wait for the end of it. Raises MachineError where the node cannot run the stage."""
        answer(self._loading, self.name)
        assert self._actor is not None
        self._submit = self._actor.submitter(self._size)

    def open(self) -> None:
        """The actor pins its own thread."""

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Raises StageError where it fails, is gone or does not answer in time."""
        inputs = [v.key if isinstance(v, RemoteState) else array_of(v) for v in values]
        unused = [self.unused.popleft() for _ in range(len(self.unused))]
        try:
            with self._sending:
                if self._submit is None:
                    raise StageError("the replica is closed")
                self._sent += 1
                get = self._submit((inputs, unused))
                self._receiving.acquire()  # in the order of the requests
            try:
                outputs = get(timeout=devices.SILENCE_S)
                # The next result overwrites them.
                outputs = [
                    RemoteState(self, o) if isinstance(o, int) else aligned_copy(o) for o in outputs
                ]
                self._received += 1
                return outputs
            finally:
                self._receiving.release()
        except Exception as error:  # of many kinds, once Ray itself is shut down
            raise self._failure(error) from error

    def state(self, key: int) -> Any:
        """A state that the actor holds. Raises StageError where the actor is gone."""
        try:
            return aligned_copy(
                self._ray.get(self._handle.state.remote(key), timeout=devices.SILENCE_S)
            )
        except Exception as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """End the actor, or leave it to the next candidate there. Idempotent."""
        with self._sending:
            actor, self._actor = self._actor, None
            submit, self._submit = self._submit, None
            self._handle = None  # its next user has states by the same keys
        if actor is None or not self._ray.is_initialized():
            return
        is_busy = self._sent > self._received  # or has failed
        if submit and not is_busy:
            actor.handle.unload.remote()
            actor.leave()
        else:
            actor.end()

    def _failure(self, error: Exception) -> StageError:
        kinds = self._ray.exceptions
        if not self._ray.is_initialized():
            return StageError("Ray was shut down")
        if isinstance(error, (kinds.GetTimeoutError, kinds.RayChannelTimeoutError)):
            self._submit = None  # whoever tries again need not wait as long
            return StageError(f"{self.name} has not answered for {devices.SILENCE_S:g} s; it hangs")
        if isinstance(error, kinds.RayTaskError):
            original: Exception = error.cause  # pyright: ignore[reportAttributeAccessIssue]
            return StageError(f"{self.name}: {type(original).__name__}: {line_of(original)}")
        cause = re.search(r"because (its [^.]+)", str(error))
        return StageError(f"{self.name} is gone: {cause[1] if cause else 'its node is lost'}")


def _buffer_bytes(spec: StageSpec) -> int:
    """How much memory the tensors of one call need, in either direction."""
    sides = (spec.inputs, spec.outputs)
    return max(sum(prod(p.shape) * dtype_of(p.dtype).itemsize for p in side) for side in sides)


class RemoteState:
    """A state that an actor holds, as long as this refers to it."""

    def __init__(self, owner: RayReplica, key: int) -> None:
        self._owner, self.key = owner, key

    def numpy(self) -> Any:
        """The state in this process's memory."""
        return self._owner.state(self.key)

    def __del__(self) -> None:
        self._owner.unused.append(self.key)
