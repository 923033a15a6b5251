"""Pipelines with stages in actors of a Ray cluster."""

from __future__ import annotations

import atexit
import secrets
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from autosplit.files import sha256
from autosplit.hardware.cluster.actor import ReplicaPlan, StageActor
from autosplit.hardware.cluster.connection import answer, connected, place_of, put, start_actor
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.cluster.watch import Watch
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.devices.device import RayCores
from autosplit.hardware.devices.ray_nodes import RayPlace
from autosplit.hardware.execution.engine import replica_name
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import StagePorts, Wiring
from autosplit.hardware.runtimes.interface import Runtime, Stage
from autosplit.hardware.runtimes.stage_file import StageFile
from autosplit.versions import VERSION

LANES = 2  # one item of a replica is computed while the tensors of the next one arrive


@dataclass(frozen=True)
class RemoteStage:
    """A replica for a node, with Ray's references to its files; Ray reserves ``cpus`` for it."""

    file: StageFile
    contents: Mapping[str, Any]
    place: RayPlace
    cpus: int = 0


def remote_stage(runtime: Runtime, name: str, ports: StagePorts, device: RayCores) -> RemoteStage:
    """The stage that ``runtime`` of that name makes of some ops, for a node.

    Candidates that are compared are on the same cores, so Ray reserves none of them.
    """
    target = spelled(runtime.source.kernels.target_on(device))
    with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
        file = Path(folder) / f"stage{runtime.suffix}"
        weights = runtime.write(ports, file, device)
        files = [weights, file] if weights else [file]
        digests = {each.name: sha256(each) for each in files}
        contents = {each.name: put(each) for each in files}
    part = StageFile(name, file.name, digests, ports.inputs, ports.outputs, target)
    return RemoteStage(part, contents, place_of(device))


def pipeline_of(
    wiring: Wiring,
    stages: Sequence[Sequence[Stage | RemoteStage]],
    depth: int = 2,
    trace: bool = False,
    batch: int = 1,
) -> Pipeline:
    """The pipeline of replicas here and on the nodes of a cluster.

    Raises MachineError where a node cannot run its stage. It owns the stages from here on.
    """
    remotes = [part for part in chain(*stages) if isinstance(part, RemoteStage)]
    actors: list[Any] = []
    try:
        for part in remotes:
            actors.append(start_actor(StageActor, part.place, part.cpus))
        replicas = _loaded(wiring, stages, actors) if remotes else iter(())
    except BaseException:
        _discard(stages, actors)
        raise
    mixed: list[list[Stage]] = []
    for row in stages:
        mixed.append([next(replicas) if isinstance(p, RemoteStage) else p for p in row])
    # Only a replica elsewhere may be called by two threads at once.
    lanes = [LANES if all(isinstance(p, RemoteStage) for p in row) else 1 for row in stages]
    pipeline = Pipeline(wiring, mixed, depth, trace, lanes, batch)
    if remotes:
        # The threads end the actors, also those of a pipeline that nobody used or closed.
        pipeline.start()
        # Exit handlers run in reverse order: after Ray's, the actors would seem to be lost.
        atexit.register(_close, weakref.ref(pipeline))
    return pipeline


def _close(pipeline: weakref.ref[Pipeline]) -> None:
    still_open = pipeline()
    if still_open is not None:
        still_open.close()


def _discard(stages: Sequence[Sequence[Stage | RemoteStage]], actors: Sequence[Any]) -> None:
    for actor in actors:
        connected().kill(actor)
    for part in chain(*stages):
        if not isinstance(part, RemoteStage):
            part.close()


def _loaded(
    wiring: Wiring, stages: Sequence[Sequence[Stage | RemoteStage]], actors: Sequence[Any]
) -> Iterator[RayReplica]:
    """Send each replica its files, all at once; the pipeline's side of the actors, watched over."""
    ray, key, rest, loads = connected(), secrets.token_bytes(32), iter(actors), []
    watch = Watch(ray)
    for index, row in enumerate(stages):
        uses = uses_of_outputs(wiring, index)
        for number, part in enumerate(row):
            if not isinstance(part, RemoteStage):
                continue
            actor, device = next(rest), part.place.device
            plan = ReplicaPlan(VERSION, part.file, device, key, *uses)
            call = actor.load.remote(plan, *(part.contents[name] for name in part.file.digests))
            name = f"{replica_name(index, number, len(row))} on {part.place}"
            loads.append((call, name, actor, (uses[0], len(part.file.outputs))))
    replicas = []
    for call, name, actor, outputs in loads:
        address = answer(call, name)

        def end(actor: Any = actor) -> None:
            watch.close()
            if ray.is_initialized():
                ray.kill(actor)

        replicas.append(RayReplica(name, address, key, outputs, watch.loss, end))
    watch.begin(dict(zip([actor.live.remote() for actor in actors], replicas, strict=True)))
    return iter(replicas)


def uses_of_outputs(wiring: Wiring, stage: int) -> tuple[tuple[int, ...], ...]:
    """The outputs of a stage for the caller, for other stages, and only for states, by position."""
    returned, passed = set(), set()
    states = {state.output for state in wiring.states if state.stage == stage}
    for connection in wiring.connections:
        if isinstance(connection.source, tuple) and connection.source[0] == stage:
            returned |= {connection.source[1]} if connection.outputs else set()
            passed |= {connection.source[1]} if connection.stages else set()
    return tuple(sorted(returned)), tuple(sorted(passed)), tuple(sorted(states - passed))
