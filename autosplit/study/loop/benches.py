"""The bench that a study file names: this machine, or simulated hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.deploy import worker
from autosplit.hardware.bench.interface import Bench
from autosplit.study.config.sections import SimulatedHardware
from autosplit.study.config.study_file import StudyConfig

if TYPE_CHECKING:
    from autosplit.hardware.bench.simulated import SimulatedBench


def open_bench(config: StudyConfig) -> Bench:
    """Open the bench of a study. Raises ConfigError, ModelError or MachineError."""
    return _simulated(config) if config.runtime == "simulated" else _real(config)


def _real(config: StudyConfig) -> Bench:
    from autosplit.hardware.bench.isolated import IsolatedBench
    from autosplit.hardware.bench.worker import BenchSetting
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.hardware.runtimes.registry import TVM
    from autosplit.zoo import catalog

    model = Path(config.model) if config.model else catalog.cached(str(config.zoo))
    setting = BenchSetting(
        model,
        config.most_stages,
        devices=tuple(config.devices or ()),
        shapes={name: tuple(shape) for name, shape in config.shapes.items()},
        target=config.target,
        targets=config.targets,
        tuning=Path(config.tuning) if config.tuning else None,
        runtime=TVM if config.runtime == "simulated" else config.runtime,
        regions=tuple(region.model_dump() for region in config.regions),
        states={state.input: state.output for state in config.states},
        budget=Budget(**config.measure.model_dump()),
    )
    return IsolatedBench(setting, worker.open_bench)


def _simulated(config: StudyConfig) -> SimulatedBench:
    """Simulated hardware over a graph file, over the profile of a real model, or over a chain."""
    from autosplit.hardware.bench import simulated
    from autosplit.hardware.profiling.cost_model import cost_model

    section = config.simulated or SimulatedHardware()
    simulation = simulated.Simulation(**section.model_dump(exclude={"graph", "ops"}))
    devices = config.devices or [f"cores:{i}" for i in range(config.most_stages)]
    if section.graph:
        return simulated.from_file(Path(section.graph), devices, simulation)
    if config.model or config.zoo:
        real = _real(config)
        try:
            costs = cost_model(real.graph, real.profile(), real.links())
            return simulated.SimulatedBench(real.graph, costs, real.devices, simulation)
        finally:
            real.close()
    return simulated.chain(section.ops, devices, simulation)
