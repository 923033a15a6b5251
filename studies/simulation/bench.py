"""Simulated hardware: a study on it takes a second and needs no compiler.

The known costs take the place of a profile. The true costs, hidden from the search, are the known
times multiplied by a lognormal factor for each op, and slowed down by contention between devices;
every measured stage time has noise of its own. All numbers follow from the seed and the deployment,
so an interrupted study continues with the same numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from autosplit.cuts import members
from autosplit.deployment import Deployment, Option, Row, Stage
from autosplit.errors import ConfigError, Infeasible, StageError
from autosplit.graph import FusedGraph, Op, build
from autosplit.hardware.bench.interface import Bench, BenchDescription
from autosplit.hardware.measurement.results import (
    Baseline,
    LinkCost,
    LoadTest,
    Measurement,
    Profile,
    Spread,
)
from autosplit.hardware.profiling.cost_table import cost_table
from autosplit.planner import CostModel, Plan, Question, evaluate, partition
from autosplit.study.config.study_file import StudyConfig

NAME = "simulated"  # of the runtime
THREAD_SHARE = 0.7  # of a core, which each further thread of a replica adds
OP_BYTES = 1e6  # of an op of a simulated chain


@dataclass(frozen=True)
class Hardware:
    """How the true costs differ from the known ones, which are those of a chain of ``ops`` ops.

    ``error``, ``noise`` and ``contention`` (for each further busy device) are relative.
    ``delay``: seconds that a measurement takes, for tests of interruptions. ``speeds``: the speed
    of each kind of cores, relative to the known costs.
    """

    error: float = 0.35
    noise: float = 0.02
    contention: float = 0.0
    delay: float = 0.0
    seed: int = 0
    ops: int = 60
    speeds: Sequence[float] = ()

    def bench(self, config: StudyConfig, **_: Any) -> SimulatedBench:
        """The bench of a study, in place of the one that its file asks for."""
        graph, costs = chain_of(self.ops, self.seed)
        costs = replace(costs, sizes=(OP_BYTES,) * self.ops)
        if config.cores is None:
            devices = config.devices or [f"cores:{i}" for i in range(config.most_stages)]
            question = on_devices(costs, devices, config.stages == "auto")
            return SimulatedBench(graph, costs, question, devices, self)
        costs = limited(with_threads(costs, config.rows, self.speeds), config.memory or ())
        counts = {str(kind): len(cores) for kind, cores in enumerate(config.core_kinds)}
        return SimulatedBench(graph, costs, Question.of_cores(counts), config.bench_devices, self)


class SimulatedBench(Bench):
    """Implements Bench over known costs, in ms, of the ops of ``graph``.

    ``question``: the devices, and the deployments on them that are measured.
    """

    def __init__(
        self,
        graph: FusedGraph,
        costs: CostModel,
        question: Question,
        devices: Sequence[str],
        hardware: Hardware,
    ) -> None:
        rows = [replace(r, row=replace(r.row, runtime=NAME)) for r in costs.rows]
        self.costs, self.question = replace(costs, rows=tuple(rows)), question
        self._graph, self._device_names, self.hardware = graph, tuple(devices), hardware
        self.true = _hidden(self.costs, self.hardware)

    @cached_property
    def description(self) -> BenchDescription:
        """See Bench."""
        costs, devices = self.costs, self._device_names
        known = repr((costs.names, costs.predecessors, costs.rows, costs.kinds, *costs.states))
        identity = {
            "model": hashlib.sha256(known.encode()).hexdigest(),
            "devices": " ".join(devices),
            "simulation": repr(replace(self.hardware, delay=0.0)),
        }
        return BenchDescription(self._graph, devices, identity, (NAME,), {NAME: ()}, {}, False)

    def cost_table(self, *_: Any, **limits: Any) -> tuple[CostModel, Sequence[str]]:
        """The known costs, with the limit of memory; their kinds in order, or the only one."""
        kinds = kinds_of(self.costs, self._device_names)
        return limited(self.costs, limits.get("memory") or ()), kinds

    def profile(self) -> Sequence[Profile]:
        """The known time of every op on each device."""
        pairs = zip(self._device_names, cycle(self.costs.rows), strict=False)
        zeros = (0.0,) * len(self.costs.names)
        return [Profile(name, row.times, zeros, NAME) for name, row in pairs]

    def links(self) -> Sequence[LinkCost]:
        """No links: ``cost_table`` has the transfers."""
        return ()

    def measure(self, deployment: Deployment) -> Measurement:
        """The true time of each stage, with noise.

        Raises StageError if a device cannot run an op.
        """
        return self._measured(deployment, "measure", self.hardware.noise)

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """See Bench. A longer measurement has a quarter of the noise."""
        noise = self.hardware.noise / 4
        measurements = [self._measured(c, "compare", noise) for c in candidates]
        return measurements, {b.name: b for b in self.baselines() if b.name in baselines}

    def baselines(self, *_: Any, **__: Any) -> Sequence[Baseline]:
        """The whole model on one device, with all threads, and as replicas."""
        ops = tuple(range(len(self.costs.names)))
        first, most = next(iter(self.question.devices.items()))
        rows = [costs.row for costs in self.costs.rows if costs.row.kind == first]
        options = {"one device": Option(rows[0]), "replicas": Option(rows[0], most)}
        if len(rows) > 1:
            options["all threads"] = Option(rows[-1])
        names, baselines = self._device_names, list[Baseline]()
        devices = list(zip(kinds_of(self.costs, names), names, strict=True))
        for name, option in options.items():
            whole = Deployment((Stage(ops, (option,)),))
            if self.question.cores:
                whole = whole.on_cores({first: range(most)})
            else:
                whole = whole.on_devices(devices, in_order=False)
            plan, (stage,) = self.truth(whole.stages), whole.stages
            figures = exact(plan.period), exact(plan.latency), option.replicas, NAME
            baselines.append(Baseline(name, *figures, stage.devices, plan.loads))
        return baselines

    def under_load(self, *_: Any, **__: Any) -> LoadTest:
        """Raises ConfigError: there are no items."""
        raise ConfigError("simulated hardware runs no items under load; use a real runtime")

    def export(self, *_: Any, **__: Any) -> Path:
        """Raises ConfigError: there is nothing to export."""
        raise ConfigError("simulated hardware has no stages to export; use a real runtime")

    def close(self) -> None:
        """See Bench."""

    def truth(self, stages: Sequence[Stage]) -> Plan:
        """The true costs of a deployment; for tests and comparisons, never for a search."""
        options = [option for stage in stages for option in stage.options]
        busy = sum(option.replicas * self.question.takes(option.row) for option in options)
        return evaluate(self.true_costs(busy), stages)

    def optimum(self) -> Plan:
        """The best deployment under the true costs, for tests and comparisons too.

        Raises Infeasible where none fits.
        """
        counts, plans = self.question.devices, list[Plan]()
        numbers = [tuple(counts.values())]
        if self.question.stages is None and not self.question.order and self.hardware.contention:
            # Fewer devices slow each other down less.
            numbers = list(product(*(range(most + 1) for most in counts.values())))[1:]
        for used in numbers:
            devices = {kind: count for kind, count in zip(counts, used, strict=True) if count}
            with contextlib.suppress(Infeasible):
                question = replace(self.question, devices=devices)
                plan = partition(self.true_costs(sum(used)), question)
                plans.append(self.truth(plan.stages))
        if not plans:
            raise Infeasible(f"no deployment of '{self.costs.name}' fits")
        return min(plans, key=lambda plan: plan.period)

    def true_costs(self, busy: int) -> CostModel:
        """The true costs where some devices are busy."""
        slow = 1 + self.hardware.contention * (busy - 1)
        rows = [replace(r, times=tuple(t * slow for t in r.times)) for r in self.true.rows]
        return replace(self.true, rows=tuple(rows))

    def _measured(self, deployment: Deployment, purpose: str, noise: float) -> Measurement:
        time.sleep(self.hardware.delay)
        # The numbers do not depend on the devices.
        pairs = ((s.ops, [replace(o, devices=()) for o in s.options]) for s in deployment.stages)
        stages = tuple(Stage(ops, tuple(options)) for ops, options in pairs)
        plan = self.truth(stages)
        if plan.period == math.inf:
            broken = deployment.stages[plan.periods.index(math.inf)]
            raise StageError(f"device '{broken.devices[0]}' cannot run an op of its stage")
        # Python's own hash of a text differs from process to process.
        digest = hashlib.sha256(repr((purpose, stages)).encode()).digest()
        entropy = np.frombuffer(digest[:16], dtype=np.uint32).tolist()
        rng = np.random.default_rng((self.hardware.seed, *entropy))
        # Noise of a wide spread must not make a time negative.
        factors = np.maximum(0.1, 1 + noise * rng.normal(size=len(stages)))
        loads = tuple((np.array(plan.loads) * factors).tolist())
        period = float((np.array(plan.periods) * factors).max())
        latency, half = sum(loads), 2 * noise * period
        return Measurement(
            Spread(period, period - half, period + half),
            Spread(latency, latency - half, latency + half),
            loads,
            0.0,
        )


def on_devices(costs: CostModel, devices: Sequence[str], is_auto: bool = False) -> Question:
    """The question of one stage per device; the devices have the kinds of the costs in order.

    ``is_auto``: the question of any deployment on some of them.
    """
    kinds = kinds_of(costs, devices)
    if not is_auto:
        return Question.along(kinds)
    return Question({kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}, replicas=True)


def kinds_of(costs: CostModel, devices: Sequence[str]) -> list[str]:
    """The kind of each device: those of the costs in their order, or the only one."""
    return [kind.name for kind, _ in zip(cycle(costs.kinds), devices, strict=False)]


def limited(costs: CostModel, memory: Sequence[float]) -> CostModel:
    """The costs with a memory limit for each kind of devices, one for all kinds, or none."""
    pairs = zip(costs.kinds, cycle(memory or [math.inf]), strict=False)
    limits = [replace(kind, memory=min(kind.memory, limit)) for kind, limit in pairs]
    return replace(costs, kinds=tuple(limits))


def with_threads(
    costs: CostModel, pairs: Sequence[tuple[str, int]], speeds: Sequence[float] = ()
) -> CostModel:
    """Costs of one thread, extended to a row for each pair (kind of cores, number of threads).

    ``speeds``: the speed of each kind of cores.
    """
    known, rows = costs.rows[0], []
    for kind, threads in pairs:
        speed = (speeds[int(kind)] if speeds else 1.0) * (1 + (threads - 1) * THREAD_SHARE)
        times = tuple(time / speed for time in known.times)
        rows.append(replace(known, row=Row(kind, known.row.runtime, threads), times=times))
    kinds = [replace(costs.kinds[0], name=kind) for kind in dict(pairs)]
    return replace(costs, rows=tuple(rows), kinds=tuple(kinds))


def chain_of(ops: int, seed: int) -> tuple[FusedGraph, CostModel]:
    """A chain of ops, and its known costs: their times are lognormal with a median of 1 ms."""
    # Random stream 0 is that of the hidden costs.
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
    return graph, costs_of(graph, times)


def costs_of(graph: FusedGraph, times: Sequence[float]) -> CostModel:
    """Costs of ops on one kind of devices; moving tensors costs nothing."""
    return cost_table(graph, [Profile("", tuple(times), (0.0,) * len(times))])


def graph_of(costs: CostModel) -> FusedGraph:
    """The ops of a cost model as a graph: each makes a number, which its successors read."""
    ops = []
    for i, name in enumerate(costs.names):
        inputs = tuple(f"{costs.names[p]}:out" for p in members(costs.predecessors[i]))
        sizes = int(costs.sizes[i]), costs.flops[i]
        ops.append(Op(name, name, (name,), inputs, (f"{name}:out",), *sizes))
    tensors = {op.outputs[0]: ((1,), "float32", 4) for op in ops}
    read = {tensor for op in ops for tensor in op.inputs}
    return build(costs.name, ops, tensors, (), [name for name in tensors if name not in read])


def _hidden(costs: CostModel, hardware: Hardware) -> CostModel:
    """The true costs. The errors of an op in different rows share half of their variance."""
    rng = np.random.default_rng((hardware.seed, 0))
    known = np.array([row.times for row in costs.rows])
    if len({row.row.threads for row in costs.rows}) == 1:
        errors = hardware.error * rng.normal(size=len(costs.names))[None]
    else:
        shape = (len(costs.rows) + 1, len(costs.names))
        drawn = hardware.error * math.sqrt(0.5) * rng.normal(size=shape)
        errors = drawn[0] + drawn[1:]
    times = known * np.exp(errors)
    pairs = zip(costs.rows, times.tolist(), strict=True)
    return replace(costs, rows=tuple(replace(r, times=tuple(of_row)) for r, of_row in pairs))


def exact(value: float) -> Spread:
    """A value without spread."""
    return Spread(value, value, value)


def simulated(hardware: Hardware) -> Any:
    """A context in which every study runs on simulated hardware."""
    return patch("autosplit.study.loop.benches.open_bench", hardware.bench)
