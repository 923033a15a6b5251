"""Pipelines with stages in actors of a Ray cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from autosplit.hardware.cluster.connection import place_of, put
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.devices.device import RayCores
from autosplit.hardware.execution.engine import replica_name
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.interface import Runtime, Stage
from autosplit.hardware.runtimes.stage_files import write_stage

LANES = 2  # while one item of a replica is computed the tensors of the next one arrive


def remote_stage(runtime: Runtime, spec: StageSpec, device: RayCores) -> RayReplica:
    """A planned stage that ``runtime`` computes, on a node.

    Candidates that are compared are on the same cores, so Ray reserves none of them.
    """
    with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as folder:
        file = Path(folder) / f"stage{runtime.suffix}"
        spec = write_stage(runtime, spec, [device], file)
        files = spec.digests.items()
        contents = {name: put(file.with_name(name), digest) for name, digest in files}
    return RayReplica(spec, {}, contents, place_of(device))


def pipeline_of(
    wiring: Wiring,
    stages: Sequence[Sequence[Stage]],
    depth: int = 2,
    trace: bool = False,
    batch: int = 1,
) -> Pipeline:
    """The pipeline of replicas here and on the nodes of a cluster.

    Raises MachineError where a node cannot run its stage. It owns the stages from here on.
    """
    remotes = [replica for replica in chain(*stages) if isinstance(replica, RayReplica)]
    try:
        for index, row in enumerate(stages):
            stored = _only_states(wiring, index)
            for number, replica in enumerate(row):
                if isinstance(replica, RayReplica):
                    replica.load(replica_name(index, number, len(row)), stored)
        for replica in remotes:
            replica.await_load()
        # Only a replica elsewhere may be called by two threads at once.
        remote = [all(isinstance(replica, RayReplica) for replica in row) for row in stages]
        lanes = [LANES if is_remote else 1 for is_remote in remote]
        pipeline = Pipeline(wiring, stages, depth, trace, lanes, batch)
    except BaseException:
        for replica in chain(*stages):
            replica.close()
        raise
    if remotes:
        # The threads end the actors, also those of a pipeline that nobody used or closed.
        pipeline.start()
    return pipeline


def _only_states(wiring: Wiring, stage: int) -> set[int]:
    """The outputs of a stage, by position, that only its own later items read."""
    sources = {connection.source for connection in wiring.connections}
    states = [output for _, output in wiring.stages[stage].state_places]
    return {output for output in states if (stage, output) not in sources}
