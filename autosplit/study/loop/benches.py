"""The bench that a study file names: this machine, or simulated hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.deploy import worker
from autosplit.errors import MachineError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.runtimes.registry import AUTO, TVM
from autosplit.planner.problem import Question
from autosplit.study.config.sections import SimulatedHardware
from autosplit.study.config.study_file import StudyConfig

if TYPE_CHECKING:
    from autosplit.hardware.bench.simulated import SimulatedBench


_CHAIN_BYTES = 1e6  # of an op of a simulated chain


def open_bench(config: StudyConfig, *, measures: bool = True, trust_kernels: bool = False) -> Bench:
    """Open the bench of a study. Raises ConfigError, ModelError or MachineError.

    One that only exports, and so never ``measures``, needs none of the cores of the study.
    ``trust_kernels`` is never a key of a study, which may come from elsewhere.
    """
    if config.runtime == "simulated":
        return _simulated(config)
    return _real(config, measures, trust_kernels)


def check_linker(config: StudyConfig, note: Callable[[str], None]) -> None:
    """Say before the trials, not after them, that nothing here can link an export of TVM's stages.

    Raises MachineError where the study file asks for an export.
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


def _real(config: StudyConfig, measures: bool = True, trust_kernels: bool = False) -> Bench:
    from autosplit.hardware.bench.isolated import IsolatedBench
    from autosplit.hardware.bench.worker import BenchSetting
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.zoo import catalog

    if isinstance(config.cores, int):
        usable = sum(map(len, config.core_kinds))
        if usable < config.cores:
            raise MachineError(
                f"cores is {config.cores}, but this process may use {usable}; give fewer"
            )
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
        runtime=TVM if config.runtime == "simulated" else config.runtime,
        regions=tuple(region.model_dump() for region in config.regions),
        states={state.input: state.output for state in config.states},
        streams=config.streams,
        batches=config.batch if isinstance(config.batch, str) else tuple(config.batch),
        budget=Budget(**config.measure.model_dump()),
        measures=measures,
    )
    return IsolatedBench(setting, worker.open_bench)


def _simulated(config: StudyConfig) -> SimulatedBench:
    """Simulated hardware over a graph file, over the profile of a real model, or over a chain."""
    from autosplit.hardware.bench import simulated
    from autosplit.hardware.profiling.cost_table import cost_table
    from autosplit.hardware.profiling.graph_file import read_graph

    section = config.simulated or SimulatedHardware()
    options = section.model_dump(exclude={"graph", "ops", "thread_share", "speeds"})
    devices = config.devices or [f"cores:{i}" for i in range(config.most_stages)]
    one_core = config.model_copy(update={"cores": None, "stages": 1})
    if section.graph:
        costs = read_graph(Path(section.graph))
        graph = simulated.graph_of(costs)
    elif config.model or config.zoo:
        # What more threads save is simulated, so that there may be more cores than here.
        real = _real(config if config.cores is None else one_core)
        try:
            graph, devices = real.graph, list(real.devices)
            costs = cost_table(graph, real.profile(), real.links(), real.keep_together)
        finally:
            real.close()
    else:
        graph, costs = simulated.chain_of(section.ops, section.seed)
        costs = replace(costs, sizes=(_CHAIN_BYTES,) * section.ops)
    costs = replace(costs, streams=config.streams)
    simulation = simulated.Simulation(**options)
    if config.cores is None:
        is_auto = config.stages == "auto"
        question = simulated.on_devices(costs, devices, is_auto)
        return simulated.SimulatedBench(graph, costs, question, devices, simulation)
    sizes = list(map(len, config.core_kinds))
    share = 0.7 if section.thread_share is None else section.thread_share
    costs = simulated.with_threads(costs, sizes, share, section.speeds or ())
    costs = simulated.limited(costs, config.memory or ())
    question = Question.of_cores({str(kind): count for kind, count in enumerate(sizes)})
    return simulated.SimulatedBench(graph, costs, question, config.bench_devices, simulation)
