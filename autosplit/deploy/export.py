"""A split as a folder that runs elsewhere: ``split.json``, and for each stage a file that loads.

A stage of TVM is written as ONNX too where its boundary exists in the original ONNX graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit import phases
from autosplit.deploy import manifest as m
from autosplit.deploy import manifest_file
from autosplit.deploy.arrays import write_arrays
from autosplit.deploy.export_folder import replace_export
from autosplit.deploy.targets.formats import NATIVE, require_format
from autosplit.deploy.targets.program import add_program
from autosplit.deployment import DeployedStage, Deployment, cores_of
from autosplit.errors import ConfigError, MachineError
from autosplit.files import require_path, sha256
from autosplit.frontend.importing import digest
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.devices import device
from autosplit.hardware.execution.wiring import StagePorts, StageState, part
from autosplit.hardware.measurement.results import SplitResults
from autosplit.hardware.measurement.sequences import STEPS, Expected
from autosplit.hardware.runtimes.onnx import model_file, submodels
from autosplit.hardware.runtimes.registry import TVM
from autosplit.versions import environment

_MOST_BYTES = 64_000_000  # of the states that are recorded for ``verify``

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel


def write_split(
    model: CompiledModel,
    deployment: Deployment,
    folder: Path,
    results: SplitResults,
    format: str = NATIVE,
    onnx: bool = True,
) -> Path:
    """Write a deployment into ``folder`` in place of the export there; returns its ``split.json``.

    ``format`` names the program that goes with it. Without ``onnx`` the stages of TVM are written
    for TVM alone.

    A split that was not measured, and so not compared with the model, is compared first where its
    devices are cores of this machine. Raises StageError where its outputs differ from the model's,
    ConfigError for a folder that cannot be named or a format that lacks a stage, MachineError where
    the disk refuses or nothing here can link a stage file.
    """
    require_path(folder)
    require_format(format)
    # Before anything is written: a split that computes something else leaves no files.
    expected = _expected(model)
    if expected and not results.measured:
        _require_equal(model, deployment, expected)
    wiring, initial = model.wiring(deployment.split), model.lowered.initial
    # Read once for all stages: the file can have gigabytes.
    original = _original_onnx(model, deployment.runtimes) if onnx else None
    with replace_export(folder) as new:
        parts = []
        for index, (ports, stage) in enumerate(zip(wiring.stages, deployment.stages, strict=True)):
            phases.report(f"writing stage {index + 1}/{len(wiring.stages)}")
            files = new.numbered(f"stage{index}", model.runtimes[stage.runtime].suffix)
            part_of_stage = _write_stage(model, ports, stage, files, index, original, onnx)
            states = tuple(_state_part(s, ports) for s in wiring.states if s.stage == index)
            parts.append(part_of_stage.model_copy(update={"states": states}))
        document = m.Manifest(
            model=m.ModelPart(
                name=model.graph.name,
                sha256=model.sha256,
                inputs=m.tensor_ports(wiring.inputs),
                outputs=m.tensor_ports(wiring.outputs),
                file=str(model.path.resolve()) if model.path else None,
                dtypes=tuple(sorted(model.dtypes)),
                integers_below=dict(model.lowered.integers_below),
                states={state.input: state.output for state in model.graph.states},
            ),
            stages=tuple(parts),
            connections=tuple(map(m.ConnectionPart.of, wiring.connections)),
            **m.results_parts(results),
            environment=environment() | {"target": spelled(model.target)},
            reference=_write_reference(expected, new.file("reference", ".npz")),
            initial=write_arrays(initial, new.file("states", ".npz")) if initial else None,
        )
        manifest_file.write(document, new.folder / m.NAME)
        add_program(new.folder, format)
    return folder / m.NAME


def write_part(model: CompiledModel, ops: Sequence[int], file: Path) -> Path:
    """Write the convex set ``ops`` of a model as the library ``file``; returns the manifest.

    The manifest, that of a split with one stage, has the suffix .json and the ONNX submodel, if
    there is one, .onnx. Raises ConfigError for a file name that one of those needs, MachineError
    where the disk refuses or nothing here can link.
    """
    require_path(file)
    suffix = model.runtime.suffix
    if file.suffix in (".json", "") or (file.suffix == ".onnx") != (suffix == ".onnx"):
        raise ConfigError(
            f"the part cannot be written to '{file}', whose name its manifest needs; "
            f"name it {file.stem}{suffix}"
        )
    wiring = part(model.graph, ops, model.lowered.outputs)
    # Only its target counts: the part runs wherever it is loaded.
    runtime, place = model.runtime_in_use, str(device.along(1)[0])
    original = _original_onnx(model, (runtime,))
    deployed = DeployedStage(tuple(ops), runtime, (place,))
    stage = _write_stage(model, wiring.stages[0], deployed, iter([file]), 0, original)
    document = m.Manifest(
        model=m.ModelPart(
            name=f"{model.graph.name}/{file.stem}",
            # ``verify`` compares with the ONNX submodel: the whole model has other outputs.
            sha256=digest(file.with_suffix(".onnx")) if stage.onnx else model.sha256,
            inputs=m.tensor_ports(wiring.inputs),
            outputs=m.tensor_ports(wiring.outputs),
            file=str(file.with_suffix(".onnx").resolve()) if stage.onnx else None,
            dtypes=tuple(sorted(model.dtypes)),
        ),
        stages=(stage,),
        connections=tuple(map(m.ConnectionPart.of, wiring.connections)),
        environment=environment() | {"target": spelled(model.target)},
    )
    manifest_file.write(document, file.with_suffix(".json"))
    return file.with_suffix(".json")


def _original_onnx(model: CompiledModel, runtimes: Sequence[str]) -> submodels.OnnxModel | None:
    """The ONNX model that stages of TVM are cut out of as well, None where there is none."""
    return submodels.read_original(model.stage_source) if TVM in runtimes else None


def _write_stage(
    model: CompiledModel,
    ports: StagePorts,
    stage: DeployedStage,
    files: Iterator[Path],
    index: int,
    original: submodels.OnnxModel | None,
    with_onnx: bool = True,
) -> m.StagePart:
    """Write one stage, and its ONNX submodel beside it; returns their entry in the manifest.

    The replicas that have one target share a file.
    """
    runtime, file = model.runtimes[stage.runtime], next(files)
    places = [device.parse(name, anywhere=True) for name in stage.devices]
    targets = [spelled(model.kernels.target_on(place)) for place in places]
    weights = runtime.write(ports, file, places[0])
    file_of = {targets[0]: file}
    replicas = []
    for place, target in zip(places, targets, strict=True):
        if target not in file_of:
            file_of[target] = next(files)
            runtime.write(ports, file_of[target], place)
        other = file_of[target] if file_of[target] != file else None
        part = m.ReplicaPart(
            device=str(place),
            file=other.name if other else None,
            sha256=sha256(other) if other else None,
            target=None if target == spelled(model.target) else target,
        )
        replicas.append(part)
    onnx, onnx_absent = None, None
    if runtime.suffix == ".onnx":
        onnx = _onnx_part(file, weights)
    elif with_onnx:
        onnx, onnx_absent = _write_submodel(original, ports, file.with_suffix(".onnx"))
    else:
        onnx_absent = "the export was asked for without (--no-onnx)"
    ops = [model.graph.ops[op] for op in ports.ops]
    return m.StagePart(
        index=index,
        device=replicas[0].device,
        file=file.name,
        sha256=sha256(file),
        replicas=tuple(replicas),
        ops=tuple(m.OpPart(name=op.name, sources=op.sources) for op in ops),
        inputs=m.tensor_ports(ports.inputs),
        outputs=m.tensor_ports(ports.outputs),
        runtime=stage.runtime,
        shared=stage.shared,
        onnx=onnx,
        onnx_absent=onnx_absent,
    )


def _write_submodel(
    original: submodels.OnnxModel | None, ports: StagePorts, file: Path
) -> tuple[m.OnnxPart | None, str | None]:
    """Write the ONNX submodel of a stage; returns its entry, or None and why there is none."""
    if original is None:
        return None, "the model was not read from an ONNX file"
    try:
        submodel = original.submodel(ports, file.stem)
    except submodels.NoSubmodel as reason:
        return None, str(reason)
    return _onnx_part(file, model_file.write(submodel, file)), None


def _state_part(state: StageState, ports: StagePorts) -> m.StatePart:
    port = state.port
    after = ports.outputs[state.output].name
    return m.StatePart(input=port.name, output=after, shape=port.shape, dtype=port.dtype)


def _onnx_part(file: Path, weights: Path | None) -> m.OnnxPart:
    return m.OnnxPart(
        file=file.name,
        sha256=sha256(file),
        data=weights.name if weights else None,
        data_sha256=sha256(weights) if weights else None,
    )


def _expected(model: CompiledModel) -> Expected | None:
    """What the reference computes; None where the package that it needs is missing."""
    # Other items than those that candidates are verified with, which have seed 0.
    items = model.items(STEPS if model.graph.states else 2, seed=1)
    try:
        return model.expect(items)
    except MachineError:
        return None


def _require_equal(model: CompiledModel, deployment: Deployment, expected: Expected) -> None:
    # Servers and GPUs need not be there to write files for them.
    if not all(cores_of(name) for stage in deployment.stages for name in stage.devices):
        return
    try:
        pipeline = model.pipeline(deployment)
    except MachineError:  # cores of another machine, or code for another processor
        return
    with pipeline:
        model.require_equal(pipeline, expected)


def _write_reference(expected: Expected | None, file: Path) -> m.ArraysPart | None:
    """Write items and reference outputs, which ``verify`` takes where the model is not there."""
    if expected is None:
        return None
    arrays: dict[str, Any] = {}
    known = sum(array.nbytes for states in expected.states for array in states.values())
    for number, states in enumerate(expected.states[1:] if known <= _MOST_BYTES else ()):
        arrays |= {f"{number}/after/{name}": array for name, array in states.items()}
    for number, (inputs, outputs) in enumerate(zip(expected.items, expected.along, strict=True)):
        arrays |= {f"{number}/in/{name}": array for name, array in inputs.items()}
        arrays |= {f"{number}/out/{name}": array for name, array in outputs.items()}
    return write_arrays(arrays, file)
