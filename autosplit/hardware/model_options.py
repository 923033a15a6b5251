"""Checks of a model's options, and the options with which another machine reads the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.errors import ConfigError
from autosplit.frontend.importing import model_files
from autosplit.hardware.cluster.nodes import TUNING
from autosplit.hardware.codegen.schedules import RECORDS, WORKLOADS, require
from autosplit.hardware.codegen.target import spelled, target_of
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import RayCores
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES, TVM
from autosplit.lowering.external.backend import Backend

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel


def check_options(
    runtime: str, tuning: Path | None, backends: Sequence[Backend], tolerance: float | None
) -> None:
    """Raise ConfigError for an unknown runtime, an option it lacks, or an invalid tolerance."""
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise ConfigError(f"tolerance is {tolerance}; give a number above 0")
    if runtime not in (*RUNTIMES, AUTO):
        raise ConfigError(f"runtime '{runtime}' is unknown; use {' or '.join((*RUNTIMES, AUTO))}")
    if runtime not in (TVM, AUTO) and (tuning or backends):
        option = f"tuning '{tuning}'" if tuning else f"external backend '{backends[0].name}'"
        problem = f"{option} is for TVM, but the stages run in {runtime}; remove one of the two"
        raise ConfigError(problem)
    if tuning:
        require(tuning)


def device_targets(targets: Mapping[str, str]) -> dict[str, str]:
    """The targets by the canonical spelling of each device.

    Raises ConfigError for a misspelt device or target.
    """
    by_device = {str(devices.parse(name, anywhere=True)): text for name, text in targets.items()}
    for text in by_device.values():
        target_of(text)
    return by_device


def options_there(model: CompiledModel, device: RayCores) -> tuple[dict[str, Any], dict[str, Path]]:
    """The options, as JSON types, and the files with which a device's node reads the same model.

    Raises ConfigError for a model object, which has no file, and for external backends.
    """
    if model.path is None:
        raise ConfigError(f"device '{device}' needs a model file, not an object; save the model")
    if model.lowered.composites:
        raise ConfigError(f"external backends do not run on device '{device}'; write cores:0")
    options = {
        "shapes": dict(model.shapes),
        "target": spelled(model.kernels.target),
        "targets": {str(device.cores): spelled(model.kernels.target_on(device))},
        "runtime": model.runtime_name,
        "states": {state.input: state.output for state in model.graph.states},
        "trust_kernels": model.trust_kernels,
        "batch": model.batch,
    }
    files = model_files(model.path)
    if tuning := model.kernels.tuning:
        files |= {f"{TUNING}/{name}": tuning / name for name in (WORKLOADS, RECORDS)}
    return options, files
