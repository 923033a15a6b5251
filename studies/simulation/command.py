"""The command line of autosplit on simulated hardware, which the first arguments describe.

    python -m studies.simulation ops=30 noise=0.01 run STUDY.toml

The model of the study file is not read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from autosplit.cli import main as autosplit
from autosplit.planner.problem import Question
from autosplit.serialization import load
from autosplit.study.config.study_file import StudyConfig
from studies.simulation.bench import (
    SimulatedBench,
    Simulation,
    chain_of,
    limited,
    on_devices,
    with_threads,
)

OP_BYTES = 1e6  # of an op of a simulated chain


@dataclass(frozen=True)
class Hardware(Simulation):
    """What is simulated: a chain of ``ops`` ops.

    ``thread_share``: of a core, which each further thread of a replica adds; ``speeds``: of each
    kind of cores, relative to the known costs.
    """

    ops: int = 60
    thread_share: float = 0.7
    speeds: Sequence[float] = ()


def open_bench(config: StudyConfig, hardware: Hardware, **_: Any) -> SimulatedBench:
    """The bench of a study on simulated hardware, in place of the one that its file asks for."""
    graph, costs = chain_of(hardware.ops, hardware.seed)
    costs = replace(costs, sizes=(OP_BYTES,) * hardware.ops)
    if config.cores is None:
        devices = config.devices or [f"cores:{i}" for i in range(config.most_stages)]
        question = on_devices(costs, devices, config.stages == "auto")
        return SimulatedBench(graph, costs, question, devices, hardware)
    costs = with_threads(costs, config.rows, hardware.thread_share, hardware.speeds)
    costs = limited(costs, config.memory or ())
    counts = {str(kind): len(cores) for kind, cores in enumerate(config.core_kinds)}
    question = Question.of_cores(counts)
    return SimulatedBench(graph, costs, question, config.bench_devices, hardware)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; its exit code."""
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest and "=" in rest[0]:
        key, _, value = rest.pop(0).partition("=")
        values[key] = json.loads(value)
    with simulated(load(Hardware, values)):
        return autosplit(rest)


def simulated(hardware: Hardware) -> Any:
    """A context in which every study runs on simulated hardware."""
    opened = partial(open_bench, hardware=hardware)
    return patch("autosplit.study.loop.benches.open_bench", opened)
