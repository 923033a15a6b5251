"""The pipeline of an export on a Ray cluster."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import secrets
import socket
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.deploy.cluster.actor import ReplicaPlan, StageActor
from autosplit.deploy.cluster.replica import RayReplica
from autosplit.deploy.manifest import Manifest, ReplicaPart, StagePart
from autosplit.deploy.private_copy import copy_checked
from autosplit.deploy.stages import run_files
from autosplit.errors import AutosplitError, MachineError, line_of
from autosplit.extras import require
from autosplit.hardware.devices.ray_nodes import RayPlace, assign, cpus
from autosplit.hardware.execution.engine import replica_name
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring

REACH_S = 10.0  # for the head of a cluster to accept a connection
START_S = 300.0  # for an actor to be started and to load its stage
NOTICE_S = 10.0  # for Ray to say which actor ended, once a channel broke
LANES = 2  # one item of a replica is computed while the tensors of the next one arrive


def run_on_ray(
    document: Manifest,
    folder: Path,
    wiring: Wiring,
    placement: Sequence[str] = (),
    address: str | None = None,
    depth: int = 2,
    trace: bool = False,
) -> Pipeline:
    """An actor for each replica at its place, and the pipeline of all.

    ``address`` is the cluster's; without one it is the cluster that this process or machine
    belongs to, or a new one on this machine. Raises MachineError where Ray is missing, no cluster
    answers, a place is not there or a node cannot run its stage, ConfigError for a misspelt place.
    """
    ray = _connected(address)
    parts = [(stage, replica) for stage in document.stages for replica in stage.replicas]
    places = assign(placement, [replica.device for _, replica in parts], ray.nodes())
    actors: list[Any] = []
    watch = Watch(ray)
    try:
        for place in places:
            actors.append(_start(ray, place))
        replicas = _load(ray, document, folder, wiring, actors, places, watch)
    except BaseException:
        for actor in actors:
            ray.kill(actor)
        raise
    watch.begin(dict(zip([a.live.remote() for a in actors], replicas, strict=True)))
    rest = iter(replicas)
    stages = [[next(rest) for _ in stage.replicas] for stage in document.stages]
    pipeline = Pipeline(wiring, stages, depth, trace, lanes=LANES)
    # The threads end the actors, also those of a pipeline that nobody used or closed.
    pipeline.start()
    # Registered last it comes first: what Ray does at exit would look like a loss.
    atexit.register(_close, weakref.ref(pipeline))
    return pipeline


def _close(pipeline: weakref.ref[Pipeline]) -> None:
    still_open = pipeline()
    if still_open is not None:
        still_open.close()


class Watch:
    """Notices the end of an actor, and says whose it was."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._replicas: Mapping[Any, RayReplica] = {}
        self._is_closed = threading.Event()
        self._noticed = threading.Event()
        self._loss = ""

    def begin(self, replicas: Mapping[Any, RayReplica]) -> None:
        """Watch over actors, each by a call that ends with it."""
        self._replicas = replicas
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def loss(self) -> str:
        """Which actor ended, empty where Ray does not say so in time."""
        if not self._is_closed.is_set():
            self._noticed.wait(NOTICE_S)
        return self._loss

    def close(self) -> None:
        """The actors end on purpose from here on."""
        self._is_closed.set()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # of many kinds, once Ray itself is shut down
            ended: list[Any] = []
            # Once Ray is shut down a call would connect it again.
            while not ended and not self._is_closed.is_set() and self._ray.is_initialized():
                ended, _ = self._ray.wait(list(self._replicas), timeout=0.5)
            if not self._ray.is_initialized():
                self._loss = "Ray was shut down"
            elif not self._is_closed.is_set():
                self._loss = f"{self._replicas[ended[0]].name} is gone: {self._reason(ended[0])}"
        self._noticed.set()
        # A node that lost its power closes no channel.
        for replica in self._replicas.values():
            replica.disconnect()

    def _reason(self, call: Any) -> str:
        try:
            self._ray.get(call)
        except Exception as error:
            cause = re.search(r"because ([^.]+)", str(error))
            if cause:
                return cause[1]
        # Ray calls a node dead some seconds later.
        return "its node does not answer"


def _connected(address: str | None) -> Any:
    ray = require("ray", "ray")
    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS")
    host, _, port = (address or "").rpartition(":")
    try:
        if port.isdecimal() and "://" not in host:
            # Ray itself tries for minutes.
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises errors of many kinds
        raise MachineError(
            f"no Ray cluster at '{address or 'this machine'}' ({line_of(error)}); start one with "
            "`ray start --head`, or give its address as HOST:6379"
        ) from error
    return ray


def _start(ray: Any, place: RayPlace) -> Any:
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(place.node, soft=False)
    # One thread stays in ``live``.
    options = {"num_cpus": cpus(place), "max_concurrency": 2, "scheduling_strategy": affinity}
    return ray.remote(StageActor).options(**options).remote()


def _load(
    ray: Any,
    document: Manifest,
    folder: Path,
    wiring: Wiring,
    actors: Sequence[Any],
    places: Sequence[RayPlace],
    watch: Watch,
) -> list[RayReplica]:
    """Send each replica its files, all at once; returns the pipeline's side of the actors."""
    key = secrets.token_bytes(32)
    rest = iter(zip(actors, places, strict=True))
    loads = []
    for stage in document.stages:
        contents = _contents(ray, folder, stage)
        returned, stored = returned_and_stored(wiring, stage.index)
        for number, replica in enumerate(stage.replicas):
            actor, place = next(rest)
            part = _alone(document, stage, replica)
            names = [name for name, _ in run_files(part.stages[0])]
            text = part.model_dump_json(by_alias=True).encode()
            plan = ReplicaPlan(text, place.device, key, tuple(names), returned, stored)
            call = actor.load.remote(plan, *(contents[name] for name in names))
            name = f"{replica_name(stage.index, number, len(stage.replicas))} on {place}"
            loads.append((call, name, actor, (returned, len(stage.outputs))))
    replicas = []
    for call, name, actor, outputs in loads:
        address = _loaded(ray, call, name)

        def end(actor: Any = actor) -> None:
            watch.close()
            if ray.is_initialized():
                ray.kill(actor)

        replicas.append(RayReplica(name, address, key, outputs, watch.loss, end))
    return replicas


def _loaded(ray: Any, call: Any, name: str) -> Any:
    try:
        return ray.get(call, timeout=START_S)
    except ray.exceptions.GetTimeoutError as error:
        raise MachineError(
            f"{name} is not loaded after {START_S:.0f} s; see `ray status` for who has its CPUs"
        ) from error
    except ray.exceptions.RayError as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else None
        if isinstance(cause, AutosplitError):
            raise type(cause)(f"{name}: {cause}") from error
        raise MachineError(
            f"{name} does not load: {line_of(error, last=True)}; see `ray status`, and install "
            "the same autosplit there"
        ) from error


def _contents(ray: Any, folder: Path, stage: StagePart) -> dict[str, Any]:
    """The checked files of a stage in Ray's object store."""
    with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as private:
        copies = {
            name: copy_checked(folder, name, d, Path(private)) for name, d in run_files(stage)
        }
        # Arrays, because Ray does not copy them once more.
        return {name: ray.put(np.fromfile(file, np.uint8)) for name, file in copies.items()}


def _alone(document: Manifest, stage: StagePart, replica: ReplicaPart) -> Manifest:
    """A manifest of one replica."""
    alone = stage.model_copy(update={"replicas": (replica,)})
    return document.model_copy(update={"stages": (alone,)})


def returned_and_stored(wiring: Wiring, stage: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The outputs of a stage that the caller gets, and those that actors read, by position."""
    returned, stored = [], [state.output for state in wiring.states if state.stage == stage]
    for connection in wiring.connections:
        if isinstance(connection.source, tuple) and connection.source[0] == stage:
            returned += [connection.source[1]] * bool(connection.outputs)
            stored += [connection.source[1]] * bool(connection.stages)
    return tuple(sorted(set(returned))), tuple(sorted(set(stored)))
