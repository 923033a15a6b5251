from collections.abc import Sequence

import numpy as np
import pytest

from autosplit.graph import FusedGraph, Op, build
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import open_study, silent
from autosplit.study.space import Space
from autosplit.study.storage import storage_url
from studies.simulation.bench import SimulatedBench, Simulation, chain_of, costs_of, on_devices


def branchy(blocks: int, branches: int, seed: int = 0) -> tuple[FusedGraph, list[float]]:
    """A chain of blocks, each an op, parallel branches of two ops, and an op that joins them."""
    ops: list[Op] = []
    last = "in"
    for b in range(blocks):
        ops.append(Op(f"fork{b}", "k", (), (last,), (f"f{b}",)))
        for i in range(branches):
            ops.append(Op(f"left{b}_{i}", "k", (), (f"f{b}",), (f"l{b}_{i}",)))
            ops.append(Op(f"right{b}_{i}", "k", (), (f"l{b}_{i}",), (f"r{b}_{i}",)))
        ops.append(Op(f"join{b}", "k", (), tuple(f"r{b}_{i}" for i in range(branches)), (f"j{b}",)))
        last = f"j{b}"
    tensors = ["in", *(t for op in ops for t in op.outputs)]
    graph = build("branchy", ops, dict.fromkeys(tensors, ((4,), "float32", 16)), ("in",), (last,))
    return graph, np.random.default_rng(seed).lognormal(0, 0.7, len(ops)).tolist()


def devices(stages: int) -> list[str]:
    return [f"cores:{i}" for i in range(stages)]


def chain(ops: int, devices: Sequence[str], simulation: Simulation) -> SimulatedBench:
    """A bench over a chain of ops, a stage on each device."""
    graph, costs = chain_of(ops, simulation.seed)
    return SimulatedBench(graph, costs, on_devices(costs, devices), devices, simulation)


def space_of(bench: SimulatedBench) -> Space:
    """The candidates of a study on a bench, without what a study file limits."""
    names = [kind.name for kind in bench.costs.kinds]
    kinds = [names[n % len(names)] for n in range(len(bench.description.devices))]
    return Space(
        bench.costs, bench.question, tuple(zip(kinds, bench.description.devices, strict=True))
    )


@pytest.fixture
def chain_bench():
    def make(ops=20, stages=3, **simulation):
        return chain(ops, devices(stages), Simulation(**simulation))

    return make


@pytest.fixture
def branchy_bench():
    def make(blocks=3, branches=3, stages=3, **simulation):
        graph, times = branchy(blocks, branches, simulation.get("seed", 0))
        costs, names = costs_of(graph, times), devices(stages)
        question = on_devices(costs, names)
        return SimulatedBench(graph, costs, question, names, Simulation(**simulation))

    return make


@pytest.fixture
def new_study(tmp_path):
    """Open a study over a bench in a database of the test's own."""

    def open_it(bench, force=False, name="s", notify=silent, **search):
        config = StudyConfig.model_validate(
            {
                "name": name,
                "model": "net.onnx",
                "stages": len(bench.description.devices),
                "search": search,
            }
        )
        return open_study(
            config, bench, storage_url("s", str(tmp_path / "s.db")), notify, force=force
        )

    return open_it
