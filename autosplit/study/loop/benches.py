"""The bench that a study file asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autosplit.deploy.export import open_worker
from autosplit.errors import MachineError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.runtimes.registry import AUTO, TVM
from autosplit.study.config.study_file import StudyConfig


def check_linker(config: StudyConfig, note: Callable[[str], None]) -> None:
    """Tell the user before the trials if this machine cannot link an export of TVM's stages.

    Raises MachineError instead if the study file asks for an export.
    """
    # Another architecture has a linker of its own, which the export looks for.
    if config.runtime not in (AUTO, TVM) or config.target or config.targets:
        return
    try:
        toolchain.compiler()
    except MachineError as error:
        if config.export:
            raise MachineError(f"cannot export to '{config.export}': {error}") from None
        note(f"TVM's stages cannot be exported here: {error}")


def open_bench(config: StudyConfig, *, measures: bool = True, trust_kernels: bool = False) -> Bench:
    """Open the bench of a study. Raises ConfigError, ModelError or MachineError.

    Without ``measures``, for an export only, the bench needs none of the cores of the study.
    ``trust_kernels`` is not a key of the study file, because that may come from elsewhere.
    """
    from autosplit.hardware.bench.isolated import BenchSetting, IsolatedBench
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.zoo import catalog

    if isinstance(config.cores, int):
        usable = sum(map(len, config.core_kinds))
        if usable < config.cores:
            problem = f"cores is {config.cores}, but this process may use {usable}; give fewer"
            raise MachineError(problem)
    model = Path(config.model) if config.model else catalog.cached(str(config.zoo))
    setting = BenchSetting(
        model,
        len(config.bench_devices) or config.most_stages,
        devices=config.bench_devices,
        shapes={name: tuple(shape) for name, shape in config.shapes.items()},
        target=config.target,
        targets=config.targets,
        tuning=Path(config.tuning) if config.tuning else None,
        tolerance=config.tolerance,
        trust_kernels=trust_kernels,
        runtime=config.runtime,
        regions=tuple(region.model_dump() for region in config.regions),
        states=config.states
        if isinstance(config.states, str)
        else {state.input: state.output for state in config.states},
        streams=config.streams,
        batches=config.batch if isinstance(config.batch, str) else tuple(config.batch),
        budget=Budget(**config.measure.model_dump()),
        measures=measures,
    )
    return IsolatedBench(setting, open_worker)
