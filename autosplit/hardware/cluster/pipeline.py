"""Pipelines with stages on a Ray cluster: the actors there, and the stages here that call them."""

from __future__ import annotations

import re
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import StageError, line_of
from autosplit.hardware.cluster.connection import answer, connected, put, write_files
from autosplit.hardware.cluster.pool import Actor, take
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import RayCores
from autosplit.hardware.devices.ray_nodes import RayPlace, only_place
from autosplit.hardware.execution.engine import replica_name
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.arrays import aligned_copy, array_of
from autosplit.hardware.runtimes.interface import Runtime, Stage
from autosplit.hardware.runtimes.stage_files import load_stage, require_here, write_stage

LANES = 2  # threads a replica: while it computes an item, the tensors of the next one arrive


class StageActor(Actor):
    """The Ray actor of a replica. Ray calls ``run`` in one thread, other methods in another."""

    def load(
        self,
        spec: StageSpec,
        environment: Mapping[str, str],
        place: str,
        stored: Collection[int],
        *contents: Any,
    ) -> None:
        """Load the replica from its files' contents, on cores of this node.

        The outputs ``stored``, by position, stay here for later items. Raises as ``autosplit.load``
        does, for damaged files too.
        """
        with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
            write_files(Path(folder), spec.digests, contents)
            require_here(spec, environment)
            (self._stage,) = load_stage(spec, Path(folder), [devices.parse(place)])
        self._stored = stored
        self._states: dict[int, Any] = {}
        self._keys = count()
        self._is_open = False

    def run(self, request: tuple[Sequence[Any], Sequence[int]]) -> list[Any]:
        """Compute outputs for inputs, with keys for states, and the keys of states to free."""
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
        """The state that is stored under a key."""
        return array_of(self._states[key])

    def unload(self) -> None:
        """Free the memory of the stage and its states."""
        self._stage.close()
        del self._stage
        self._states.clear()


class RayReplica(Stage):
    """Implements Stage by an actor, which pins its own thread; several threads may call it at once.

    ``environment`` is that of the export, ``contents`` has Ray's references to the files of
    ``spec``. Ray reserves ``cpus`` for the actor; with 0 an idle actor is used if there is one.
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
        # The bytes of the tensors of one call in the larger of both directions.
        self._size = max(sum(port.nbytes for port in side) for side in (spec.inputs, spec.outputs))
        self._actor: Any = take(StageActor, place, cpus)  # None once the stage is closed
        # None until the stage is loaded, and once it is closed.
        self._submit: Callable[[Any], Any] | None = None
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._sent = self._received = 0
        # The keys of states that nothing refers to any more; the next request frees them.
        self.unused: deque[int] = deque()

    def load(self, name: str, stored: Collection[int]) -> None:
        """Begin to load the stage, called ``name``; the actor keeps the outputs ``stored``."""
        self.name = f"{name} on {self._place}"
        self._loading = self._actor.handle.load.remote(
            self._spec, self._environment, str(self._place.cores), stored, *self._contents
        )

    def await_load(self) -> None:
        """Wait until the stage is loaded. Raises MachineError where the node cannot run it."""
        answer(self._loading, self.name)
        self._submit = self._actor.submitter(self._size)

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. Raises StageError where it fails, is gone or does not answer in time."""
        inputs = [each.key if isinstance(each, RemoteState) else array_of(each) for each in values]
        try:
            with self._sending:
                if self._submit is None:
                    raise StageError("the replica is closed")
                unused = [self.unused.popleft() for _ in range(len(self.unused))]
                self._sent += 1
                get = self._submit((inputs, unused))
                self._receiving.acquire()  # in the order of the requests
            try:
                outputs = get(timeout=devices.SILENCE_S)
                # Copied, because the next result overwrites the buffer.
                outputs = [
                    RemoteState(self, each) if isinstance(each, int) else aligned_copy(each)
                    for each in outputs
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
            state = self._actor.handle.state.remote(key)
            return aligned_copy(self._ray.get(state, timeout=devices.SILENCE_S))
        except Exception as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """End the actor, or leave it to the next candidate there. Idempotent."""
        with self._sending:
            actor, self._actor = self._actor, None  # its next user may have states with these keys
            submit, self._submit = self._submit, None
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
        if self._submit is None:  # also after an earlier call has hung
            return StageError(f"{self.name} is closed")
        if isinstance(error, (kinds.GetTimeoutError, kinds.RayChannelTimeoutError)):
            self._submit = None  # later calls fail at once
            return StageError(f"{self.name} has not answered for {devices.SILENCE_S:g} s; it hangs")
        if isinstance(error, kinds.RayTaskError):
            original: Exception = error.cause  # pyright: ignore[reportAttributeAccessIssue]
            return StageError(f"{self.name}: {type(original).__name__}: {line_of(original)}")
        cause = re.search(r"because (its [^.]+)", str(error))
        return StageError(f"{self.name} is gone: {cause[1] if cause else 'its node is lost'}")


class RemoteState:
    """A state that an actor stores as long as this object exists."""

    def __init__(self, owner: RayReplica, key: int) -> None:
        self._owner, self.key = owner, key

    def numpy(self) -> Any:
        """The state in this process's memory."""
        return self._owner.state(self.key)

    def __del__(self) -> None:
        self._owner.unused.append(self.key)


def remote_stage(runtime: Runtime, spec: StageSpec, device: RayCores) -> RayReplica:
    """Create a replica on a node of a planned stage that ``runtime`` computes.

    Candidates are compared on the same cores, so Ray reserves no cores for them.
    """
    with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
        file = Path(folder) / f"stage{runtime.suffix}"
        spec = write_stage(runtime, spec, [device], file)
        digests = spec.digests
        contents = {name: put(file.with_name(name), digests[name]) for name in digests}
    return RayReplica(spec, {}, contents, only_place(device, connected().nodes()))


def pipeline_of(
    wiring: Wiring,
    rows: Iterable[Sequence[Stage]],
    depth: int = 2,
    trace: bool = False,
    batch: int = 1,
) -> Pipeline:
    """Create the pipeline of replicas here and on the nodes of a cluster; ``rows`` creates them.

    It owns the stages, which an error closes. Raises MachineError where a node cannot run one.
    """
    stages: list[Sequence[Stage]] = []
    try:
        for index, row in enumerate(rows):
            stages.append(row)
            stored = _only_states(wiring, index)
            for number, replica in enumerate(row):
                if isinstance(replica, RayReplica):
                    replica.load(replica_name(index, number, len(row)), stored)
        remotes = [replica for replica in chain(*stages) if isinstance(replica, RayReplica)]
        for replica in remotes:
            replica.await_load()
        # Only a replica on a node may be called by two threads at once.
        remote = [all(isinstance(replica, RayReplica) for replica in row) for row in stages]
        lanes = [LANES if is_remote else 1 for is_remote in remote]
        pipeline = Pipeline(wiring, stages, depth, trace, lanes, batch)
    except BaseException:
        for replica in chain(*stages):
            replica.close()
        raise
    if remotes:
        # Its threads end the actors, even where nobody uses or closes the pipeline.
        pipeline.start()
    return pipeline


def _only_states(wiring: Wiring, stage: int) -> set[int]:
    """The outputs of a stage, by position, that only its own later items read."""
    sources = {connection.source for connection in wiring.connections}
    states = [output for _, output in wiring.stages[stage].state_places]
    return {output for output in states if (stage, output) not in sources}


def _lasting(result: Any, inputs: Sequence[Any]) -> Any:
    """A result, copied if it shares the memory of an input, which the next input overwrites."""
    array = array_of(result)
    is_input = any(np.may_share_memory(array, each) for each in inputs if not isinstance(each, int))
    return aligned_copy(array) if is_input else result
