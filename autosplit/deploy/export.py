"""Writing a split as a folder that runs elsewhere: ``split.json`` and a file for each stage.

A stage of TVM is written as ONNX too where its boundary exists in the original ONNX graph.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit import phases
from autosplit.deploy import manifest as m
from autosplit.deploy import manifest_file
from autosplit.deploy.arrays import write_arrays, write_reference
from autosplit.deploy.export_folder import replace_export, require_replaceable
from autosplit.deploy.load import LoadedPipeline
from autosplit.deploy.stages import absent_device
from autosplit.deploy.targets.formats import NATIVE, require_format, write_program
from autosplit.deployment import Deployment, Stage
from autosplit.errors import ConfigError, MismatchError
from autosplit.files import require_other, require_path
from autosplit.frontend.importing import digest
from autosplit.hardware.bench import isolated
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.devices import device
from autosplit.hardware.execution.batches import of_items
from autosplit.hardware.execution.stage_spec import OnnxFile, StageSpec
from autosplit.hardware.execution.wiring import Wiring, part
from autosplit.hardware.isolation.worker import Handler
from autosplit.hardware.measurement.results import SplitResults
from autosplit.hardware.measurement.sequences import SEED
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.submodels import NoSubmodel, OnnxModel, read_original
from autosplit.hardware.runtimes.registry import AUTO, TVM
from autosplit.hardware.runtimes.stage_files import write_stage
from autosplit.versions import environment

_NOT_ASKED = "the export was written with --no-onnx"

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench
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

    The written files are compared with the reference before they replace anything. Where their
    outputs differ, runtime ``auto`` leaves out the runtimes that computed them and tries the next.
    Raises MismatchError where none is left, ConfigError for an invalid folder name or a stage that
    the format cannot run, MachineError where the disk refuses, the reference is not installed or
    nothing here can link a stage file.
    """
    for path in filter(None, (folder, model.path)):
        require_path(path)
    require_replaceable(folder)
    require_format(format)
    model = model.at_batch(deployment.batch)
    left_out: dict[str, str] = {}
    while True:
        try:
            _write(model, deployment, folder, results, format, onnx, left_out)
            return folder / m.NAME
        except MismatchError as error:
            # A runtime that was measured or chosen by name is not replaced by another one.
            if model.runtime_name != AUTO or results.measured:
                raise
            failed = set(deployment.runtimes) - {model.reference.name} or {model.reference.name}
            left_out |= dict.fromkeys(failed, str(error))
            following = _fastest_runtime(model, deployment, left_out)
            if following is None:
                raise
            deployment = deployment.with_runtimes(dict.fromkeys(left_out, following))
            results = replace(results, predicted=None)


def open_worker(setting: Mapping[str, Any]) -> Handler:
    """The handler of a study's worker; see ``hardware.bench.isolated.open_bench``."""
    return isolated.open_bench(setting, {"export": write_measured})


def write_measured(bench: LocalBench, deployment: Deployment, **target: Any) -> Path:
    """Write a deployment with the compiled kernels of its bench; see Bench."""
    with bench.reached():
        return write_split(bench.model, deployment, **target)


def _fastest_runtime(
    model: CompiledModel, deployment: Deployment, left_out: Container[str]
) -> str | None:
    """The fastest runtime for the whole model that is not left out; None where there is none."""
    place = device.parse(deployment.stages[0].devices[0], anywhere=True)
    times = {
        profile.runtime: math.fsum(profile.op_ms)
        for profile in model.profiles([place])
        if profile.runtime not in left_out
    }
    fastest = min(times, key=times.__getitem__, default=None)
    return fastest if fastest and times[fastest] < math.inf else None


def _write(
    model: CompiledModel,
    deployment: Deployment,
    folder: Path,
    results: SplitResults,
    format: str,
    onnx: bool,
    left_out: Mapping[str, str],
) -> None:
    """Write a deployment, compare what was written, and replace the export in ``folder``."""
    # First, since the reference may refuse the model or its items.
    expected = model.reference_outputs
    wiring, initial = model.wiring(deployment.split, deployment.runtimes), model.lowered.initial
    of_item = of_items(wiring, model.batch)
    submodels = _submodels(model, deployment.runtimes) if onnx else _NOT_ASKED
    with replace_export(folder) as (new, suffix):
        parts = []
        for index, stage in enumerate(deployment.stages):
            phases.report(f"writing stage {index + 1}/{len(wiring.stages)}")
            file = new / f"stage{index}{suffix}{model.runtime_of(stage.runtime).suffix}"
            parts.append(_write_stage(model, wiring.stages[index], stage, file, submodels))
        document = m.Manifest(
            batch=deployment.batch,
            model=m.ModelPart(
                name=model.graph.name,
                sha256=model.sha256,
                inputs=of_item.inputs,
                outputs=of_item.outputs,
                file=str(model.path.absolute()) if model.path else None,
                integers_below=dict(model.lowered.integers_below),
                states={state.input: state.output for state in model.graph.states},
                steps=wiring.steps,
                variants=dict(wiring.variants),
            ),
            stages=tuple(parts),
            **m.results_parts(results),
            **_common_parts(model, wiring),
            reference=write_reference(expected, new / f"reference{suffix}.npz"),
            initial=write_arrays(initial, new / f"states{suffix}.npz") if initial else None,
        )
        comparison = _compared(model, document, new, left_out)
        program = write_program(document, new, format)
        complete = document.model_copy(update={"comparison": comparison, "program": program})
        manifest_file.write(complete, new / m.NAME)


def _compared(
    model: CompiledModel, document: m.Manifest, folder: Path, left_out: Mapping[str, str]
) -> m.ComparisonPart:
    """Compare written files with the reference.

    Raises MismatchError where outputs differ. Files for another processor, a GPU or a server that
    is not here are not compared.
    """
    part = m.ComparisonPart(
        reference=model.reference.name,
        items=len(model.reference_outputs.items),
        seed=SEED,
        tolerance=model.allowed_error,
        left_out=dict(left_out),
    )
    if absent := absent_device(document):
        return part.model_copy(update={"absent": absent})
    phases.report("comparing the written files")
    with LoadedPipeline(document, folder) as pipeline:
        accuracy = model.require_equal(pipeline, [stage.runtime for stage in document.stages])
    errors = {"max_abs_error": accuracy.max_abs_error, "max_rel_error": accuracy.max_rel_error}
    return part.model_copy(update=errors)


def write_part(model: CompiledModel, ops: Sequence[int], file: Path) -> Path:
    """Write the convex set ``ops`` of a model as the library ``file``; returns the manifest.

    The manifest, that of a split with one stage, has the suffix .json and the ONNX submodel, if
    there is one, .onnx. Raises ConfigError for a name that one of those needs, or under which there
    is another file, MachineError where the disk refuses or nothing here can link.
    """
    require_path(file)
    suffix = model.runtime.suffix
    if file.suffix in (".json", "") or (file.suffix == ".onnx") != (suffix == ".onnx"):
        raise ConfigError(
            f"the part cannot be written to '{file}', whose name its manifest needs; "
            f"name it {file.stem}{suffix}"
        )
    for each in (file, file.with_suffix(".json"), file.with_suffix(".onnx")):
        require_other(each, model.path)
        # Where the library itself is not there, what has its name is somebody's own.
        if each.exists() and not file.exists():
            raise ConfigError(f"'{each}' was not written by `extract`; call the part otherwise")
    wiring = part(model.graph, ops, model.lowered.outputs)
    # The device only decides the target: the part runs wherever it is loaded.
    runtime, place = model.runtime_in_use, str(device.along(1)[0])
    deployed = Stage.on(ops, runtime, (place,))
    stage = _write_stage(model, wiring.stages[0], deployed, file, _submodels(model, (runtime,)))
    submodel = file.with_suffix(".onnx") if stage.onnx else None
    document = m.Manifest(
        model=m.ModelPart(
            name=f"{model.graph.name}/{file.stem}",
            # ``verify`` compares with the ONNX submodel: the whole model has other outputs.
            sha256=digest(submodel) if submodel else model.sha256,
            inputs=wiring.inputs,
            outputs=wiring.outputs,
            file=str(submodel.resolve()) if submodel else None,
        ),
        stages=(stage,),
        **_common_parts(model, wiring),
    )
    manifest_file.write(document, file.with_suffix(".json"))
    return file.with_suffix(".json")


def _common_parts(model: CompiledModel, wiring: Wiring) -> dict[str, Any]:
    tensors = model.graph.tensors
    connections = [m.ConnectionPart.of(c, tensors[c.tensor].bytes) for c in wiring.connections]
    target = {"target": spelled(model.kernels.target)}
    return {"connections": tuple(connections), "environment": environment() | target}


def _submodels(model: CompiledModel, runtimes: Sequence[str]) -> OnnxModel | str:
    """The ONNX model from which stages of TVM are also written as ONNX; or why there is none."""
    original = read_original(model.stage_source) if TVM in runtimes else None
    return original or "the model was not read from an ONNX file"


def _write_stage(
    model: CompiledModel, spec: StageSpec, stage: Stage, file: Path, submodels: OnnxModel | str
) -> StageSpec:
    """Write one stage, and its ONNX submodel beside it; returns their entry in the manifest."""
    places = [device.parse(name, anywhere=True) for name in stage.devices]
    runtime = model.runtime_of(stage.runtime)
    usual = spelled(model.kernels.target)
    spec = write_stage(runtime, spec, places, file, usual)
    if spec.onnx:
        return spec
    if isinstance(submodels, str):
        return replace(spec, onnx_absent=submodels)
    submodel = file.with_suffix(".onnx")
    try:
        weights = model_file.write(submodels.submodel(spec, submodel.stem), submodel)
    except NoSubmodel as reason:
        return replace(spec, onnx_absent=str(reason))
    return replace(spec, onnx=OnnxFile.of(submodel, weights))
