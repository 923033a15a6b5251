"""The running pipeline of an exported split, without model file, study and compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.arrays import read_arrays
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.deploy.stages import load_replicas, place_replicas
from autosplit.errors import ConfigError
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring


class LoadedPipeline(Pipeline):
    """The pipeline of an export on this machine."""

    def __init__(
        self,
        document: Manifest,
        folder: Path,
        devices: Sequence[str] = (),
        depth: int = 2,
        trace: bool = False,
    ) -> None:
        self._export = document, folder
        self._options = depth, trace
        self._wiring = wiring_of(document, folder)
        replicas = load_replicas(document, folder, place_replicas(document, devices))
        super().__init__(self._wiring, replicas, depth, trace, batch=document.batch)

    def on_ray(self, placement: Sequence[str] = (), address: str | None = None) -> Pipeline:
        """Close this pipeline, and return that of the export on a Ray cluster.

        ``placement`` has the place of each replica, ``ray:NODE/cores:0-3``; by default they take
        the nodes in turn. ``address`` is that of the cluster, by default the one that Ray finds.
        """
        from autosplit.deploy.on_ray import run_on_ray

        self.close()
        return run_on_ray(*self._export, self._wiring, placement, address, *self._options)


def load(
    folder: str | Path,
    devices: Sequence[str] = (),
    depth: int = 2,
    trace: bool = False,
    delay_ms: float | None = None,
) -> LoadedPipeline:
    """The pipeline of an export. An export is code: load only what you would run.

    Args:
        folder: The exported folder, or a manifest.
        devices: One a replica; by default those it was exported for, and where this machine lacks
            one of those cores, the cores there are. A stage for a server is sent there.
        depth: Items that wait between neighbouring stages.
        trace: Whether the times of every stage are recorded, in ``events``.
        delay_ms: The longest wait to fill a batch, see ``Pipeline.with_delay``.

    Returns:
        The pipeline, to be closed or used in ``with``.

    Raises:
        ConfigError: A damaged or miswired folder.
        MachineError: A stage of another architecture or processor, a server that is not there, or a
            file that does not load.

    Example:
        with autosplit.load("out") as pipeline:
            outputs = pipeline.run(model.items(8))
    """
    file = manifest_file.locate(Path(folder))
    pipeline = LoadedPipeline(manifest_file.read(file), file.parent, devices, depth, trace)
    return pipeline.with_delay(delay_ms)


def on_ray(
    folder: str | Path,
    placement: Sequence[str] = (),
    address: str | None = None,
    depth: int = 2,
    trace: bool = False,
) -> Pipeline:
    """The pipeline of an export on a Ray cluster; nothing is loaded in this process.

    ``placement`` has the place of each replica, ``ray:NODE/cores:0-3``; by default they take the
    nodes in turn. ``address`` and the errors are those of ``run_on_ray``.
    """
    from autosplit.deploy.on_ray import run_on_ray

    file = manifest_file.locate(Path(folder))
    document = manifest_file.read(file)
    wiring = wiring_of(document, file.parent)
    return run_on_ray(document, file.parent, wiring, placement, address, depth, trace)


def wiring_of(document: Manifest, folder: Path) -> Wiring:
    """The wiring of an export with what its states begin with.

    Raises ConfigError where it does not fit, and for arrays that are not those of a state.
    """
    wiring = wired(document)
    arrays = read_arrays(folder, document.initial) if document.initial else {}
    ports = {state.port.name: state.port for state in wiring.states}
    for name, array in arrays.items():
        port = ports.get(name)
        if port is None or (array.shape, str(array.dtype)) != (port.shape, port.dtype):
            raise ConfigError(
                f"'{name}' in '{folder}' begins at {array.dtype}{list(array.shape)}, which is no "
                "state of the model; export the split again"
            )
    states = [replace(state, initial=arrays.get(state.port.name)) for state in wiring.states]
    return replace(wiring, states=tuple(states))
