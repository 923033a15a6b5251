"""The pipeline of an export on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from autosplit.deploy.export_folder import checked
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.stages import stage_file
from autosplit.hardware.cluster.connection import connected, put
from autosplit.hardware.cluster.pipeline import pipeline_of
from autosplit.hardware.cluster.replica import RayReplica
from autosplit.hardware.devices.ray_nodes import assign, cpus
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring


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
    ray = connected(address)
    parts = [(stage, replica) for stage in document.stages for replica in stage.replicas]
    places = assign(placement, [replica.device for _, replica in parts], ray.nodes())
    files = [stage_file(document, stage, replica) for stage, replica in parts]
    contents: dict[str, Any] = {}
    for name, digest in chain(*(file.digests.items() for file in files)):
        if name not in contents:
            contents[name] = put(checked(folder, name, digest), digest)
    remotes = iter(
        [RayReplica(f, contents, p, cpus(p)) for f, p in zip(files, places, strict=True)]
    )
    stages = [[next(remotes) for _ in stage.replicas] for stage in document.stages]
    return pipeline_of(wiring, stages, depth, trace, document.batch)
