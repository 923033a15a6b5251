"""Simulated hardware: a study on it takes a second and needs no compiler.

The known costs take the place of a profile. The true costs, hidden from the search, are the known
times multiplied by a lognormal factor for each op, plus an overhead for each stage, and slowed down
by contention between stages; every measured stage time has noise of its own. All numbers follow
from the seed and the split, so an interrupted study continues with the same numbers.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.cuts.stages import Stages, used
from autosplit.deployment import Deployment, resources_of
from autosplit.errors import ConfigError, StageError
from autosplit.graph import FusedGraph, Op, build
from autosplit.hardware.bench.interface import Bench, BenchDescription
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    RealTime,
    SplitResults,
    Spread,
)
from autosplit.planner import CostModel, Plan, evaluate
from autosplit.planner.problem.deployment import shares, useful_replicas

_CORE_SHARE = 0.7  # of a core, which each further core adds to an unsplit run


@dataclass(frozen=True)
class Simulation:
    """How the true costs differ from the known ones.

    ``error``, ``noise`` and ``contention`` (for each further stage) are relative. ``overhead`` is
    in ms a stage, ``delay`` in seconds a measurement, for tests of interruptions.
    """

    error: float = 0.35
    noise: float = 0.02
    contention: float = 0.0
    overhead: float = 0.0
    delay: float = 0.0
    seed: int = 0


class SimulatedBench(Bench):
    """Implements Bench over known costs, in ms, of the ops of ``graph``."""

    def __init__(
        self,
        graph: FusedGraph,
        costs: CostModel,
        devices: Sequence[str],
        simulation: Simulation | None = None,
    ) -> None:
        if costs.devices not in (None, len(devices)):
            raise ConfigError(
                f"'{costs.name}' has times for {costs.devices} devices, "
                f"{len(devices)} are configured; configure as many"
            )
        self.costs, self.simulation = costs, simulation or Simulation()
        self._graph, self._device_names = graph, tuple(devices)
        self.true = _hidden(costs, self.simulation, len(devices))

    @cached_property
    def description(self) -> BenchDescription:
        """See Bench."""
        costs, devices = self.costs, self._device_names
        parts = costs.names, costs.predecessors, costs.times, costs.send, costs.receive
        known = repr((*parts, *costs.states))
        identity = {
            "model": hashlib.sha256(known.encode()).hexdigest(),
            "devices": " ".join(devices),
            "simulation": repr(self.simulation),
        }
        together: dict[str, Sequence[Sequence[int]]] = {"simulated": ()}
        return BenchDescription(self._graph, devices, identity, ("simulated",), together, {})

    def cost_model(self, profile: Sequence[Profile], links: Sequence[LinkCost]) -> CostModel:
        """The known costs with their transfers."""
        return self.costs

    def profile(self) -> Sequence[Profile]:
        """The known time of every op on each device."""
        rows = self.costs.times
        profiles = []
        for index, device in enumerate(self.devices):
            times = rows[min(index, len(rows) - 1)]  # one row holds for all devices
            profiles.append(Profile(device, times, (0.0,) * len(times)))
        return profiles

    def links(self) -> Sequence[LinkCost]:
        """None: ``cost_model`` has the transfers."""
        return ()

    def measure(self, deployment: Deployment) -> Measurement:
        """The true time of each stage, with noise.

        Raises StageError if a device cannot run an op.
        """
        if self.simulation.delay:
            time.sleep(self.simulation.delay)
        return self._measured(deployment, "measure", self.simulation.noise)

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """See Bench. A longer measurement has a quarter of the noise."""
        noise = self.simulation.noise / 4
        # This string is a part of the seed, so it must not change.
        measurements = [self._measured(c, "duel", noise) for c in candidates]
        return measurements, {b.name: b for b in self.baselines() if b.name in baselines}

    def baselines(self) -> Sequence[Baseline]:
        """One core, all cores at a share of the ideal, and replicas, from the true costs."""
        cores = len(self.devices)
        # An op that the device cannot run has an infinite time.
        one_core = math.fsum(t for t in self.true.times[0] if t < math.inf)
        all_cores = one_core / (1 + _CORE_SHARE * (cores - 1))
        replica, whole = one_core * self._contention, [range(len(self.costs.names))]
        copies = useful_replicas(cores, self.costs.streams) if self.costs.stateful else cores
        (divisor,) = shares(self.costs, whole, [copies])
        replicated = exact(replica / divisor), exact(replica), copies
        together = Cores(tuple(range(cores)))
        return [
            self._baseline("one core", self.devices[:1], exact(one_core), exact(one_core)),
            self._baseline("all cores", [str(together)], exact(all_cores), exact(all_cores)),
            self._baseline("replicas", self.devices[:copies], *replicated),
        ]

    def _baseline(
        self, name: str, devices: Sequence[str], period: Spread, latency: Spread, copies: int = 1
    ) -> Baseline:
        figures = name, period, latency, copies, "simulated", tuple(devices)
        return Baseline(*figures, stage_ms=(latency.median,))

    def real_time(self, deployment: Deployment, rate: float, period: Spread) -> RealTime:
        """Raises ConfigError: there are no items."""
        raise ConfigError(
            "simulated hardware runs no items in real time; run the study on a real runtime"
        )

    def export(
        self, deployment: Deployment, folder: Path, results: SplitResults, format: str, onnx: bool
    ) -> Path:
        """Raises ConfigError: there is nothing to export."""
        raise ConfigError(
            "simulated hardware has no stages to export; run the study on a real runtime"
        )

    def close(self) -> None:
        """See Bench."""

    def truth(self, stages: Stages) -> Plan:
        """The true costs of a split; for tests and comparisons, never for a search."""
        return evaluate(self.true_of(sum(map(bool, stages))), stages, allow_empty=True)

    def true_of(self, used: int) -> CostModel:
        """The true costs with ``used`` stages, which slow each other down; ``true`` with all."""
        if used == len(self.devices):
            return self.true
        share = (1 + self.simulation.contention * (used - 1)) / self._contention
        times = np.array(self.true.times) * share
        return replace(self.true, times=tuple(map(tuple, times.tolist())))

    @property
    def _contention(self) -> float:
        return 1 + self.simulation.contention * (len(self.devices) - 1)

    def _along_devices(self, deployment: Deployment) -> Stages:
        """The ops of each device; none for one that is unused."""
        stages: list[tuple[int, ...]] = [()] * len(self.devices)
        place = -1
        for stage in deployment.stages:
            # Devices may have one name; stages are on them in their order.
            (device,) = stage.devices
            place = self.devices.index(device, place + 1)
            stages[place] = stage.ops
        return tuple(stages)

    def _measured(self, deployment: Deployment, purpose: str, noise: float) -> Measurement:
        loads = self._noisy(deployment, purpose, noise)
        period, latency = _period(self.costs, deployment, loads), sum(loads)
        half = 2 * noise * period
        return Measurement(
            Spread(period, period - half, period + half),
            Spread(latency, latency - half, latency + half),
            loads,
            Accuracy(True, 0.0, 0.0, 1),
        )

    def _noisy(self, deployment: Deployment, purpose: str, noise: float) -> tuple[float, ...]:
        stages = self._along_devices(deployment)
        loads = self.truth(stages).loads
        if math.inf in loads:
            raise StageError(
                f"device '{self.devices[loads.index(math.inf)]}' cannot run an op of its stage"
            )
        return tuple(used(stages, self._with_noise(loads, noise, purpose, stages)))

    def _with_noise(self, loads: Sequence[float], noise: float, *parts: Any) -> tuple[float, ...]:
        """The loads as measured; ``parts`` say what is measured and what for."""
        rng = _generator(self.simulation.seed, *parts)
        # Noise of a wide spread must not make a time negative.
        factors = np.maximum(0.1, 1 + noise * rng.normal(size=len(loads)))
        return tuple((np.array(loads) * factors).tolist())


def chain_of(ops: int, seed: int) -> tuple[FusedGraph, CostModel]:
    """A chain of ops, and its known costs: their times are lognormal about 1 ms."""
    # The stream of the hidden costs has number 0.
    rng = np.random.default_rng((seed, 1))
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
    return graph, CostModel.from_graph(graph, [times])


def graph_of(costs: CostModel) -> FusedGraph:
    """The ops of a cost model as a graph, with a tensor of bytes for each that the model moves.

    An op whose results are never moved has an empty tensor as its result, which is an output.
    """
    outputs_of: dict[int, list[str]] = {}
    inputs_of: dict[int, list[str]] = {}
    tensors: dict[str, tuple[tuple[int, ...], str, int]] = {}
    graph_inputs = []
    for tensor in costs.tensors:
        name = f"{tensor.name}:out"
        tensors[name] = ((int(tensor.bytes),), "uint8", int(tensor.bytes))
        if tensor.producer is None:
            graph_inputs.append(name)
        else:
            outputs_of.setdefault(tensor.producer, []).append(name)
        for reader in tensor.consumers:
            inputs_of.setdefault(reader, []).append(name)
    graph_outputs = []
    ops = []
    for i, name in enumerate(costs.names):
        if i not in outputs_of:
            result = f"{name}:result"
            outputs_of[i] = [result]
            graph_outputs.append(result)
            tensors[result] = ((0,), "uint8", 0)
        inputs, outputs = tuple(inputs_of.get(i, ())), tuple(outputs_of[i])
        ops.append(Op(name, name, (name,), inputs, outputs, int(costs.sizes[i]), costs.flops[i]))
    return build(costs.name, ops, tensors, graph_inputs, graph_outputs)


def _hidden(costs: CostModel, simulation: Simulation, devices: int) -> CostModel:
    rng = np.random.default_rng((simulation.seed, 0))
    slow = 1 + simulation.contention * (devices - 1)
    factors = np.exp(simulation.error * rng.normal(size=len(costs.names))) * slow
    times = tuple(tuple((np.array(row) * factors).tolist()) for row in costs.times)
    return replace(
        costs, times=times, overheads=tuple(o + simulation.overhead for o in costs.overheads)
    )


def _period(costs: CostModel, deployment: Deployment, loads: Sequence[float]) -> float:
    periods: list[float] = []
    on_core: dict[str, float] = {}
    divisors = shares(costs, deployment.split, deployment.replicas)
    for stage, load, divisor in zip(deployment.stages, loads, divisors, strict=True):
        periods.append(load / divisor)
        for device in stage.devices:
            # A core computes one stage at a time.
            for core in resources_of(device):
                on_core[core] = on_core.get(core, 0.0) + periods[-1]
    return max([*periods, *on_core.values()])


def _generator(seed: int, *parts: Any) -> np.random.Generator:
    # Python's own hash of a text differs from process to process.
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return np.random.default_rng((seed, *np.frombuffer(digest[:16], dtype=np.uint32).tolist()))


def exact(value: float) -> Spread:
    """A value without spread."""
    return Spread(value, value, value)
