"""Running an exported split, which needs no model file, no study and no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.arrays import read_arrays
from autosplit.deploy.export_folder import checked
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.deploy.stages import load_replicas, place_replicas
from autosplit.errors import ConfigError, explained
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.interface import closed_on_error


class LoadedPipeline(Pipeline):
    """The pipeline of an export on this machine; ``with``, or the first item, loads its stages.

    ``document`` is the manifest in ``folder``, ``places`` are the devices of each stage.
    """

    def __init__(
        self,
        document: Manifest,
        folder: Path,
        devices: Sequence[str] = (),
        depth: int = 2,
        trace: bool = False,
    ) -> None:
        # The current folder may be another one when the stages are loaded.
        self.document, self.folder = document, folder.absolute()
        self._options = depth, trace
        self._whole = _wiring(document, folder)  # for a whole batch
        self.places = place_replicas(document, devices)
        # Pairs: a file that two stages name has to match the digests of both.
        digests = {pair for spec in document.replicas for pair in spec.digests.items()}
        for name, digest in sorted(digests):
            checked(folder, name, digest)
        self._digests = dict(digests)
        load = partial(load_replicas, document, self.folder, self.places)
        counts = tuple(map(len, self.places))
        super().__init__(self._whole, load, depth, trace, batch=document.batch, counts=counts)

    def on_ray(self, placement: Sequence[str] = (), address: str | None = None) -> Pipeline:
        """Return the pipeline of the export on a Ray cluster, and close this one.

        Stages that were not loaded yet are not loaded on this machine.

        Args:
            placement: The place of each replica, ``ray:NODE/cores:0-3``; by default they take the
                nodes in turn.
            address: Of the cluster; by default that of this process or machine, or a new one here.

        Returns:
            The pipeline, with an actor for each replica.

        Raises:
            ConfigError: A misspelt place; an export with variants.
            MachineError: Ray is missing or connected to another cluster, no cluster answers, a
                place is not there, or a node cannot run its stage.

        Example:
            with autosplit.load("out").on_ray(["ray:left/cores:0", "ray:right"]) as pipeline:
                outputs = pipeline.run(items)
        """
        from autosplit.hardware.cluster.connection import connected, put
        from autosplit.hardware.cluster.pipeline import RayReplica, pipeline_of
        from autosplit.hardware.devices.ray_nodes import assign

        if self.document.model.variants:
            raise ConfigError("an export with variants does not run on Ray; use `load` alone")
        document, specs, ray = self.document, self.document.replicas, connected(address)
        places = assign(placement, [spec.device for spec in specs], ray.nodes())
        self.close()
        contents = {name: put(self.folder / name, digest) for name, digest in self._digests.items()}
        actors = (
            RayReplica(spec, document.environment, contents, place, len(place.cores.numbers))
            for spec, place in zip(specs, places, strict=True)
        )
        remotes = iter(closed_on_error(actors))
        stages = [[next(remotes) for _ in stage.replicas] for stage in document.stages]
        remote = pipeline_of(self._whole, stages, *self._options, document.batch)
        return remote.with_delay(self.delay_ms)


def load(
    folder: str | Path,
    devices: Sequence[str] = (),
    depth: int = 2,
    trace: bool = False,
    delay_ms: float | None = None,
) -> LoadedPipeline:
    """Load the pipeline of an export. An export contains code: load only those you trust.

    The files are checked now. The stages are loaded by ``with``, or by the first item.

    Args:
        folder: The exported folder, or a manifest.
        devices: One a replica; by default those of the export or, where this machine lacks one of
            those cores, the cores that it has. A stage for a server is sent there.
        depth: Items inside for each replica, see ``Pipeline``.
        trace: Whether the times of every stage are recorded, in ``events``.
        delay_ms: The longest wait to fill a batch, see ``Pipeline.with_delay``; by default that of
            the study, where it measured under load.

    Returns:
        The pipeline, to be closed or used in ``with``.

    Raises:
        ConfigError: A damaged or miswired folder.
        MachineError: A device that is not there; and, when the stages are loaded, a stage of
            another architecture or processor, a server that is not there, or a file that does not
            load.

    Example:
        with autosplit.load("out") as pipeline:
            outputs = pipeline.run(model.items(8))
    """
    file = manifest_file.locate(Path(folder))
    document = manifest_file.read(Path(folder))  # which names the folder in its errors
    pipeline = LoadedPipeline(document, file.parent, devices, depth, trace)
    if delay_ms is None and document.load and document.batch > 1:
        delay_ms = document.load.delay_ms
    return pipeline.with_delay(delay_ms)


def _wiring(document: Manifest, folder: Path) -> Wiring:
    """The wiring of an export with the initial values of its states.

    Raises ConfigError where it does not fit, and for arrays that are not those of a state.
    """
    wiring = wired(document)
    arrays = read_arrays(folder, document.initial) if document.initial else {}
    with explained(ConfigError, f"a state in '{folder}' has no arrays; export the split again"):
        zeros = wiring.first_states
    for name, array in arrays.items():
        zero = zeros.get(name)
        if zero is None or (array.shape, array.dtype) != (zero.shape, zero.dtype):
            raise ConfigError(
                f"'{name}' in '{folder}' begins at {array.dtype}{list(array.shape)}, which is no "
                "state of the model; export the split again"
            )
    return replace(wiring, initial=arrays)
