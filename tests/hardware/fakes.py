"""Fake stages that compute with numpy, and graphs for them: pipelines without a compiler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.graph import FusedGraph, Op, build
from autosplit.hardware.devices.device import Cores, available
from autosplit.hardware.devices.session import within
from autosplit.hardware.execution.engine import StageEvent
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring, wire
from autosplit.lowering.states import match_states

# Seconds. A busy machine takes long to start servers; a passing test waits only while it must.
PATIENCE_S = 120.0


def graph(ops: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str]) -> FusedGraph:
    """A graph of ops (output tensor, input tensors); each tensor is two float64."""
    nodes = [Op(f"op_{out}", "k", (out,), tuple(reads), (out,)) for out, reads in ops]
    shapes = dict.fromkeys((*inputs, *(out for out, _ in ops)), ((2,), "float64", 16))
    return build("fake", nodes, shapes, inputs, outputs)


def compute(name: str, values: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Compute the op that makes ``name``; the result depends on it, each input and its place."""
    weight = float(sum(name.encode()))
    start = np.zeros_like(values[0]) if values else np.zeros(2)
    return sum(((i + 2) * v for i, v in enumerate(values)), start) * 0.5 + weight


def sequential(graph: FusedGraph, item: dict[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    """What the unsplit graph computes."""
    known = dict(item)
    for op in graph.ops:
        known[op.outputs[0]] = compute(op.outputs[0], [known[t] for t in op.inputs])
    return {o: known[o] for o in outputs}


def plain(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Results as lists of numbers, to compare."""
    return [{name: array.tolist() for name, array in result.items()} for result in results]


def computed(graph: FusedGraph, items: Iterable[Any], outputs: Sequence[str]) -> list[Any]:
    """The outputs of the unsplit graph for items, as lists of numbers."""
    return plain(sequential(graph, item, outputs) for item in items)


class FakeStage:
    """Runs the ops of a stage with numpy; ``before`` is called first with the number of each item.

    Like a real stage, it may overwrite the states it is given.
    """

    def __init__(
        self, graph: FusedGraph, ports: Any, before: Callable[[int], object] | None = None
    ) -> None:
        self._graph, self._ports, self.before = graph, ports, before
        self.seen: list[tuple[Any, ...]] = []
        self.thread: int | None = None
        self.closed = 0

    def open(self) -> None:
        self.thread = threading.get_ident()

    def close(self) -> None:
        self.closed += 1

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        if self.before:
            self.before(len(self.seen))
        self.seen.append(tuple(values))
        known = dict(zip((p.name for p in self._ports.inputs), values, strict=True))
        for name in (op.name for op in self._ports.ops):
            op = self._graph.ops[self._graph.index[name]]
            known[op.outputs[0]] = compute(op.outputs[0], [known[t] for t in op.inputs])
        results = [known[p.name] for p in self._ports.outputs]
        for place, output in self._ports.state_places:
            values[place][...] = results[output]
            results[output] = values[place]
        return results


class PinnedStage(FakeStage):
    """A stage on a core that others share; it notes which threads run it."""

    def open(self) -> None:
        Cores(available()[:1]).bind()
        self.threads: list[str] = []

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        self.threads.append(threading.current_thread().name)
        return super().run(values)


def fake_pipeline(
    graph: FusedGraph,
    stages: Sequence[Sequence[int]],
    outputs: Sequence[str],
    depth: int = 2,
    trace: bool = False,
    before: dict[int, Callable[[int], object]] | None = None,
    replicas: Sequence[int] = (),
    states: Mapping[str, str] | None = None,
    batch: int = 1,
    kind: type[FakeStage] = FakeStage,
) -> tuple[Pipeline, list[FakeStage]]:
    """A pipeline of fake stages, one replica each by default, and the list of all replicas."""
    pairs = [(o, o) for o in outputs]
    graph = replace(graph, states=match_states(graph, pairs, states or {}))
    larger = {n: replace(t, shape=(batch * t.shape[0],)) for n, t in graph.tensors.items()}
    wiring = wire(replace(graph, tensors=larger), stages, pairs)
    fakes: list[list[FakeStage]] = []
    for stage, ports in enumerate(wiring.stages):
        count = replicas[stage] if replicas else 1
        fakes.append([kind(graph, ports, (before or {}).get(stage)) for _ in range(count)])
    pipeline = Pipeline(wiring, fakes, depth, trace, batch=batch)
    return pipeline, [fake for copies in fakes for fake in copies]


CHAIN = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b"])], ["x"], ["c"])


def chain(**options: Any) -> tuple[Pipeline, list[FakeStage]]:
    """A pipeline of three stages, each with one op that reads the previous, and their replicas."""
    return fake_pipeline(CHAIN, [[0], [1], [2]], ["c"], **options)


class Scripted:
    """A simulated pipeline with a clock ``now``: stage 1 takes ``takes(i)`` ms, others 0.25 ms."""

    def __init__(self, takes: Callable[[int], float], stages: int = 3) -> None:
        self.batch, self.replicas = 1, (1,) * stages
        self.wiring = Wiring((), (), (), ())
        self.capacity = 2 * stages
        self.takes, self.most_inside, self.threads = takes, 0, {"1f": "1"}
        self.events: list[StageEvent] = []
        self.submitted: list[float] = []
        self.now, self._free = 0.0, [0.0] * stages
        self._ends: list[float] = []  # of the items inside

    def map_streams(self, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for _ in items:
            if len(self._ends) == self.capacity:
                yield self._result()
            self._submit()
        while self._ends:
            yield self._result()

    def _submit(self) -> None:
        number, ready = len(self.submitted), self.now
        self.submitted.append(ready)
        for stage, free in enumerate(self._free):
            start = max(ready, free)
            ready = self._free[stage] = start + (self.takes(number) if stage == 1 else 0.25) / 1e3
            self.events.append(StageEvent(stage, number, start, ready))
        self._ends.append(ready)
        self.most_inside = max(self.most_inside, len(self._ends))

    def _result(self) -> dict[str, Any]:
        self.now = self._ends.pop(0)
        return {}


def items(count: int, inputs: Sequence[str] = ("x",)) -> list[dict[str, Any]]:
    """Items that all differ."""
    return [
        {name: np.array([i + 1.0, -float(k)]) for k, name in enumerate(inputs)}
        for i in range(count)
    ]


def in_time(work: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """The result of ``work``, run in a thread; raises TimeoutError if that takes too long."""
    return within(seconds, work)


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once ``condition`` holds; fail if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "never happens"
        time.sleep(0.002)
