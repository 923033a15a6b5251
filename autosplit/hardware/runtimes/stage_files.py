"""Writing and loading the files of a stage and its replicas."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autosplit import phases
from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.files import sha256
from autosplit.hardware.codegen.target import architecture, spelled, target_of
from autosplit.hardware.devices import processor
from autosplit.hardware.devices.device import Device
from autosplit.hardware.devices.session import within
from autosplit.hardware.execution.stage_spec import OnnxFile, Replica, StageSpec
from autosplit.hardware.runtimes.interface import Runtime, Stage
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, OPENVINO_BFLOAT16, TVM
from autosplit.versions import require_pair

LOAD_S = 1800.0  # limit for loading the replicas of a stage; a large model takes minutes


def runtime_class(name: str) -> type[Runtime]:
    """The class of a runtime, which is created from a StageSource."""
    if name == TVM:
        from autosplit.hardware.runtimes.tvm.runtime import TvmRuntime

        return TvmRuntime
    if name == ONNXRUNTIME:
        from autosplit.hardware.runtimes.onnxruntime.runtime import OnnxruntimeRuntime

        return OnnxruntimeRuntime
    from autosplit.hardware.runtimes.openvino import runtime as openvino

    if name == OPENVINO_BFLOAT16:
        return openvino.OpenvinoBfloat16Runtime
    return openvino.OpenvinoRuntime


def require_here(spec: StageSpec, environment: Mapping[str, str]) -> None:
    """Raises MachineError where this machine cannot run the code of the first replica of a stage.

    ``environment`` is that of the export.
    """
    if spec.runtime != TVM:
        return
    # With an ffi package of another version TVM may crash the process when it loads a library.
    require_pair()
    here = platform.machine()
    target = target_of(spec.replicas[0].target or environment.get("target"))
    host = target.host or target
    # A target names its architecture only where it differs from that of the exporting machine.
    made_for = environment.get("architecture", here)
    if host.attrs.get("mtriple"):
        made_for = architecture(host)
    if made_for != here:
        problem = f"the split was exported for {made_for}, this machine is {here}; export it here"
        raise MachineError(problem)
    missing = processor.missing_features(host)
    if missing:
        raise MachineError(
            f"the split was exported for {target.attrs.get('mcpu', target.kind.name)}, this "
            f"processor lacks {', '.join(missing)}; "
            "export it on this machine or for an older processor"
        )


def load_stage(spec: StageSpec, folder: Path, places: Sequence[Device]) -> list[Stage]:
    """Load a stage on each of the devices ``places``; its files are in ``folder``.

    Raises ConfigError or MachineError where it does not load.
    """
    phases.report(f"loading {spec.file}")
    try:
        runtime = runtime_class(spec.runtime)
        load = partial(runtime.load_stages, folder / spec.file, spec, places)
        return within(LOAD_S, load, "it hangs")
    except (ConfigError, MachineError):
        raise
    except Exception as error:
        reason = line_of(error, last=True)
        name = {TVM: "TVM"}.get(spec.runtime, spec.runtime)
        problem = f"'{spec.file}' does not load with this {name}: {reason}; see `autosplit doctor`"
        raise MachineError(problem) from error


def write_stage(
    runtime: Runtime,
    spec: StageSpec,
    places: Sequence[Device],
    file: Path,
    usual: str | None = None,
) -> StageSpec:
    """Write a planned stage for one replica on each of ``places``; returns it with its files.

    Replicas with the same target share a file. A target is recorded unless it is ``usual``.
    """
    files: dict[str | None, Path] = {}
    replicas, weights = [], None
    for place in places:
        is_compiled = runtime.name == TVM
        target = spelled(runtime.source.kernels.target_on(place)) if is_compiled else None
        if target not in files:
            number = f"_{len(files)}" if files else ""
            files[target] = file.with_name(f"{file.stem}{number}{file.suffix}")
            weights = runtime.write(spec, files[target], place) or weights
        other = files[target] if files[target] != file else None
        digest = sha256(other) if other else None
        named = target if target != usual else None
        replicas.append(Replica(str(place), other.name if other else None, digest, named))
    return replace(
        spec,
        device=replicas[0].device,
        file=file.name,
        sha256=sha256(file),
        replicas=tuple(replicas),
        runtime=runtime.name,
        onnx=OnnxFile.of(file, weights) if runtime.suffix == ".onnx" else None,
    )
