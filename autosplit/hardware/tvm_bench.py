"""A bench on this machine's cores: candidates linked from compiled kernels, judged by onnxruntime, measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.graph import FusedGraph
from autosplit.hardware import measure
from autosplit.hardware.bench import Stages
from autosplit.hardware.devices import Cores, available
from autosplit.hardware.measure import Budget
from autosplit.hardware.model import Model
from autosplit.hardware.pipeline import Pipeline
from autosplit.hardware.reference import compare, require_equal
from autosplit.hardware.results import Baseline, Measurement, Profile, Spread
from autosplit.hardware.stats import spread
from autosplit.hardware.worker import Tell


class TvmBench:
    """Implements Bench for a model whose stage i runs on ``cores[i]``."""

    def __init__(
        self,
        model: Model,
        cores: Sequence[Cores],
        budget: Budget | None = None,
        items: int = 3,
        tell: Tell = lambda phase, stages=None: None,
    ) -> None:
        self.model = model
        self._tell = tell
        self.cores = tuple(cores)
        self.budget = budget or Budget()
        self._items = model.items(items)

    @property
    def graph(self) -> FusedGraph:
        """The graph of the model."""
        return self.model.graph

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices along the pipeline, spelled."""
        return tuple(map(str, self.cores))

    @property
    def identity(self) -> Mapping[str, str]:
        """See Bench."""
        return {**self.model.identity, "backend": "tvm", "devices": " ".join(self.devices)}

    @cached_property
    def expected(self) -> list[dict[str, np.ndarray[Any, Any]]]:
        """What onnxruntime computes for the items that candidates are judged by."""
        return self.model.expected(self._items)

    def profile(self) -> Sequence[Profile]:
        """See Bench; equal devices are profiled once."""
        self._compile()
        self._tell("profiling")
        profiles = {c: self.model.profile(c) for c in dict.fromkeys(self.cores)}
        return [profiles[c] for c in self.cores]

    def measure(self, stages: Stages) -> Measurement:
        """See Bench. The outputs are compared first; a wrong one is a StageError and no number counts."""
        return self._measure(stages, self.cores)

    def baselines(self) -> Sequence[Baseline]:
        """See Bench. Without a second core, one core is all there is."""
        whole = (tuple(range(len(self.graph.ops))),)
        cores = available()
        found = [self._unsplit("one core", whole, Cores(cores[:1]))]
        if len(cores) > 1:
            found += [self._unsplit("all cores", whole, Cores(cores)), self._replicas(whole, cores)]
        return found

    def export(self, stages: Stages, folder: Path, **known: Any) -> Path:
        """Write a split with what is known of it; see ``report.export.export``."""
        from autosplit.report.export import export

        return export(self.model, stages, self.cores, folder, **known)

    def close(self) -> None:
        """See Bench; pipelines are closed after each measurement, so nothing is left."""

    def _compile(self) -> None:
        self._tell("compiling kernels")
        self.model.kernels  # noqa: B018  compiles what the cache does not hold

    def _measure(self, stages: Stages, cores: Sequence[Cores]) -> Measurement:
        self._compile()
        self._tell("building")
        with self.model.pipeline(stages, cores, trace=True) as pipeline:
            pipeline.start()
            self._tell("running", pipeline.threads)
            accuracy = require_equal(compare(pipeline.run(self._items), self.expected))
            period, busy = measure.period_and_stages(pipeline, self._items, self.budget)
            return Measurement(period, measure.latency(pipeline, self._items, self.budget), busy, accuracy)

    def _unsplit(self, name: str, whole: Stages, cores: Cores) -> Baseline:
        found = self._measure(whole, [cores])
        return Baseline(name, found.period_ms, found.latency_ms)

    def _replicas(self, whole: Stages, cores: Sequence[int]) -> Baseline:
        pipelines = [self.model.pipeline(whole, [Cores((core,))], trace=True) for core in cores]
        try:
            for pipeline in pipelines:
                require_equal(compare(pipeline.run(self._items), self.expected))
            gaps = _together(pipelines, self._items, self.budget)
            latencies = [measure.latency(p, self._items, self.budget).median for p in pipelines]
        finally:
            for pipeline in pipelines:
                pipeline.close()
        return Baseline("replicas", gaps, spread(latencies), copies=len(pipelines))


def _together(pipelines: Sequence[Pipeline], items: Sequence[Any], budget: Budget) -> Spread:
    """The period in ms of several pipelines that work side by side: the time between any two results of all of them."""
    start = threading.Barrier(len(pipelines))
    deadline = time.perf_counter() + budget.seconds

    def drive(pipeline: Pipeline) -> None:
        stream = cycle(items)
        results = pipeline.results()
        start.wait()
        pipeline.submit(next(stream))
        done = 0
        while done < budget.items or time.perf_counter() < deadline:
            pipeline.submit(next(stream))
            next(results)
            done += 1
        next(results)

    first = [len(p.submitted) for p in pipelines]
    threads = [threading.Thread(target=drive, args=(p,)) for p in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = [measure.completions(p.events, f + 1, len(p.submitted)) for p, f in zip(pipelines, first, strict=True)]
    last = min(e[-1] for e in ends)  # after this, not all of them work any more
    return spread(measure.gaps(sorted(t for e in ends for t in e if t <= last)))
