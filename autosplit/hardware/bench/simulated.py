"""Hardware that exists only in numbers: a study on it takes a second and no compiler, and the best split can be known.

The known costs are what a profile would say. The true ones, hidden from the search, are the known times a factor per
op that is lognormal, plus an overhead a stage, slowed by contention between the stages; each measured stage time has
noise of its own. All of it follows from the seed and the split alone, so an interrupted study goes on with the same
numbers.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import ConfigError, StageError
from autosplit.graph import FusedGraph, Op, build
from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    Spread,
)
from autosplit.hardware.profiling.graph_file import read_graph
from autosplit.planner import CostModel, Plan, evaluate

_CORE_SHARE = 0.7  # what a further core adds to an unsplit run


@dataclass(frozen=True)
class Simulation:
    """How far the true costs are from the known ones: relative ``error``, ``noise`` and ``contention`` a further stage.

    ``overhead`` in ms a stage, ``delay`` in seconds a measurement, which is what a test of interruptions needs.
    """

    error: float = 0.35
    noise: float = 0.02
    contention: float = 0.0
    overhead: float = 0.0
    delay: float = 0.0
    seed: int = 0


class SimulatedBench:
    """A Bench over known costs (a CostModel in ms of the same ops as ``graph``)."""

    def __init__(
        self,
        graph: FusedGraph,
        costs: CostModel,
        devices: Sequence[str],
        simulation: Simulation | None = None,
    ) -> None:
        if costs.devices not in (None, len(devices)):
            raise ConfigError(
                f"'{costs.name}' has times for {costs.devices} devices, {len(devices)} are given; give as many"
            )
        self.graph, self.costs, self.devices = graph, costs, tuple(devices)
        self.simulation = simulation or Simulation()
        self.keep_together: Sequence[Sequence[int]] = ()
        self.true = _hidden(costs, self.simulation, len(devices))
        known = repr((costs.names, costs.predecessors, costs.times, costs.send, costs.receive))
        self.identity: Mapping[str, str] = {
            "model": hashlib.sha256(known.encode()).hexdigest(),
            "devices": " ".join(self.devices),
            "simulation": repr(self.simulation),
        }

    def cost_model(self, profile: Sequence[Profile]) -> CostModel:
        """The known costs with their transfers."""
        return self.costs

    def profile(self) -> Sequence[Profile]:
        """The known time of every op on each device."""
        rows = self.costs.times
        return [
            Profile(device, row := rows[d if len(rows) > 1 else 0], (0.0,) * len(row))
            for d, device in enumerate(self.devices)
        ]

    def links(self) -> Sequence[LinkCost]:
        """None: ``cost_model`` has the transfers."""
        return ()

    def measure(self, stages: Stages) -> Measurement:
        """The true time of each stage, with noise. Raises StageError where a device cannot run an op."""
        if self.simulation.delay:
            time.sleep(self.simulation.delay)
        loads = self._noisy(stages, "measure", self.simulation.noise)
        period = max(loads)
        half = 2 * self.simulation.noise * period
        return Measurement(
            Spread(period, period - half, period + half),
            Spread(sum(loads), sum(loads) - half, sum(loads) + half),
            loads,
            Accuracy(True, 0.0, 0.0, 1),
        )

    def duel(self, candidates: Sequence[Stages]) -> tuple[Sequence[Spread], Sequence[Spread]]:
        """The periods of candidates, measured longer and side by side: a quarter of the noise; and of the baselines."""
        noise = self.simulation.noise / 4
        periods = [max(self._noisy(stages, "duel", noise)) for stages in candidates]
        spreads = [Spread(p, p * (1 - 2 * noise), p * (1 + 2 * noise)) for p in periods]
        return spreads, [b.period_ms for b in self.baselines()]

    def baselines(self) -> Sequence[Baseline]:
        """One core, all cores at a share of the ideal, and a replica a core, all from the true costs."""
        whole, k = math.fsum(t for t in self.true.times[0] if t < math.inf), len(self.devices)
        shared = whole / (1 + _CORE_SHARE * (k - 1))
        apart = whole * self._contention
        return [
            Baseline("one core", _exact(whole), _exact(whole)),
            Baseline("all cores", _exact(shared), _exact(shared)),
            Baseline("replicas", _exact(apart / k), _exact(apart), copies=k),
        ]

    def close(self) -> None:
        """Nothing is held."""

    def truth(self, stages: Stages) -> Plan:
        """What a split truly costs; for tests and comparisons, never for a search."""
        return evaluate(self.true_of(sum(map(bool, stages))), stages, allow_empty=True)

    def true_of(self, used: int) -> CostModel:
        """The true costs where ``used`` stages run, which slow each other down; ``true`` where all do."""
        if used == len(self.devices):
            return self.true
        share = (1 + self.simulation.contention * (used - 1)) / self._contention
        return replace(
            self.true, times=tuple(tuple(t * share for t in row) for row in self.true.times)
        )

    @property
    def _contention(self) -> float:
        return 1 + self.simulation.contention * (len(self.devices) - 1)

    def _noisy(self, stages: Stages, purpose: str, noise: float) -> tuple[float, ...]:
        loads = self.truth(stages).loads
        if math.inf in loads:
            raise StageError(
                f"device '{self.devices[loads.index(math.inf)]}' cannot run an op of its stage"
            )
        rng = _generator(self.simulation.seed, purpose, stages)
        factors = np.maximum(0.1, 1 + noise * rng.normal(size=len(loads)))
        return tuple((np.array(loads) * factors).tolist())


def from_file(path: Path, devices: Sequence[str], simulation: Simulation) -> SimulatedBench:
    """A bench over a graph file. Raises GraphError where it cannot be read or is malformed."""
    costs = read_graph(path)
    return SimulatedBench(graph_of(costs), costs, devices, simulation)


def chain(ops: int, devices: Sequence[str], simulation: Simulation) -> SimulatedBench:
    """A bench over a chain of ops whose known times are lognormal about 1 ms."""
    rng = np.random.default_rng((simulation.seed, 1))
    times = tuple(rng.lognormal(0.0, 0.7, ops).tolist())
    names = tuple(f"op{i}" for i in range(ops))
    tensors = {f"t{i}": ((1,), "float32", 4) for i in range(ops + 1)}
    graph = build(
        "chain",
        (Op(name, name, (name,), (f"t{i}",), (f"t{i + 1}",)) for i, name in enumerate(names)),
        tensors,
        ("t0",),
        (f"t{ops}",),
    )
    return SimulatedBench(graph, CostModel.from_graph(graph, [times]), devices, simulation)


def graph_of(costs: CostModel) -> FusedGraph:
    """The ops of a cost model as a graph: a tensor of bytes for each that the model moves, the unread as outputs."""
    made: dict[int, list[str]] = {}
    read: dict[int, list[str]] = {}
    shapes: dict[str, tuple[tuple[int, ...], str, int]] = {}
    inputs = []
    for tensor in costs.tensors:
        name = f"{tensor.name}:out"
        shapes[name] = ((int(tensor.bytes),), "uint8", int(tensor.bytes))
        inputs += [name] if tensor.producer is None else []
        if tensor.producer is not None:
            made.setdefault(tensor.producer, []).append(name)
        for reader in tensor.consumers:
            read.setdefault(reader, []).append(name)
    outputs = []
    for i, name in enumerate(costs.names):
        if i not in made:
            made[i] = [f"{name}:result"]
            outputs.append(made[i][0])
            shapes[made[i][0]] = ((0,), "uint8", 0)
    ops = [
        Op(
            name,
            name,
            (name,),
            tuple(read.get(i, ())),
            tuple(made[i]),
            int(costs.sizes[i]),
            costs.flops[i],
        )
        for i, name in enumerate(costs.names)
    ]
    return build(costs.name, ops, shapes, inputs, outputs)


def _hidden(costs: CostModel, simulation: Simulation, devices: int) -> CostModel:
    rng = np.random.default_rng((simulation.seed, 0))
    slow = 1 + simulation.contention * (devices - 1)
    factors = np.exp(simulation.error * rng.normal(size=len(costs.names))) * slow
    times = tuple(tuple((np.array(row) * factors).tolist()) for row in costs.times)
    return replace(
        costs, times=times, overheads=tuple(o + simulation.overhead for o in costs.overheads)
    )


def _generator(seed: int, *parts: Any) -> np.random.Generator:
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return np.random.default_rng((seed, *np.frombuffer(digest[:16], dtype=np.uint32).tolist()))


def _exact(value: float) -> Spread:
    return Spread(value, value, value)
