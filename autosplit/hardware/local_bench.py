"""A bench on this machine's cores: candidates built, judged by the original model, measured."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.graph import FusedGraph
from autosplit.hardware import measure
from autosplit.hardware.bench import Stages
from autosplit.hardware.devices import Cores
from autosplit.hardware.duel import Contender, duel
from autosplit.hardware.measure import Budget
from autosplit.hardware.model import Model
from autosplit.hardware.pipeline import Item, Pipeline
from autosplit.hardware.reference import compare, require_equal
from autosplit.hardware.results import Accuracy, Baseline, Measurement, Profile, Spread
from autosplit.hardware.stats import spread
from autosplit.hardware.worker import Tell


class LocalBench:
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
    def together(self) -> Sequence[Sequence[int]]:
        """See Bench."""
        return self.model.runner.together

    @property
    def identity(self) -> Mapping[str, str]:
        """See Bench."""
        return {**self.model.identity, "backend": self.model.backend, "devices": " ".join(self.devices)}

    @cached_property
    def expected(self) -> list[dict[str, np.ndarray[Any, Any]]]:
        """What the judge computes for the items that candidates are judged by."""
        return self.model.expected(self._items)

    def profile(self) -> Sequence[Profile]:
        """See Bench; equal devices are profiled once."""
        self._compile()
        self._tell("profiling")
        profiles = {c: self.model.profile(c) for c in dict.fromkeys(self.cores)}
        return [profiles[c] for c in self.cores]

    def measure(self, stages: Stages) -> Measurement:
        """See Bench. The outputs are compared first; a wrong one is a StageError and no number counts."""
        self._compile()
        self._tell("building")
        with self.model.pipeline(stages, self.cores, trace=True) as pipeline:
            pipeline.start()
            self._tell("running", pipeline.threads)
            accuracy = self._judged(pipeline)
            period, busy = measure.period_and_stages(pipeline, self._items, self.budget)
            return Measurement(period, measure.latency(pipeline, self._items, self.budget), busy, accuracy)

    def baselines(self) -> Sequence[Baseline]:
        """See Bench. Without a second core, one core is all there is."""
        found = []
        for name, cores in self._ways():
            with contextlib.ExitStack() as stack:
                pipelines = self._open_whole(stack, cores)
                period = self._together(pipelines)(self.budget)
                latencies = [measure.latency(p, self._items, self.budget) for p in pipelines]
                found.append(Baseline(name, period, latencies[0], len(pipelines)))
        return found

    def duel(self, candidates: Sequence[Stages]) -> tuple[Sequence[Spread], Sequence[Spread]]:
        """The periods of candidates and of the baselines, measured in turns; both in their order."""
        with contextlib.ExitStack() as stack:
            contenders: list[Contender] = []
            for stages in candidates:
                pipeline = stack.enter_context(self.model.pipeline(stages, self.cores, trace=True))
                self._judged(pipeline)
                contenders.append(partial(_alone, pipeline, self._items))
            contenders += [self._together(self._open_whole(stack, cores)) for _, cores in self._ways()]
            self._tell("comparing in turns")
            spreads = duel(contenders, self.budget)
        return spreads[: len(candidates)], spreads[len(candidates) :]

    def export(self, stages: Stages, folder: Path, **known: Any) -> Path:
        """Write a split with what is known of it; see ``report.export.export``."""
        from autosplit.report.export import export

        return export(self.model, stages, self.cores, folder, **known)

    def close(self) -> None:
        """See Bench; pipelines are closed after each measurement, so nothing is left."""

    def _compile(self) -> None:
        self._tell("compiling kernels")
        self.model.runner.prepare()

    def _ways(self) -> Sequence[tuple[str, Sequence[Cores]]]:
        """The ways without splitting, on the cores the stages have: their names, and the cores of each copy of the model."""
        cores = tuple(sorted({number for device in self.cores for number in device.numbers}))
        one: tuple[str, Sequence[Cores]] = ("one core", [Cores(cores[:1])])
        if len(cores) == 1:
            return [one]
        return [one, ("all cores", [Cores(cores)]), ("replicas", [Cores((core,)) for core in cores])]

    def _open_whole(self, stack: contextlib.ExitStack, copies: Sequence[Cores]) -> list[Pipeline]:
        """One unsplit model a copy, each checked."""
        self._compile()
        pipelines = [stack.enter_context(self.model.unsplit(cores, trace=True)) for cores in copies]
        for pipeline in pipelines:
            self._judged(pipeline)
        return pipelines

    def _judged(self, pipeline: Pipeline) -> Accuracy:
        """How far a pipeline is from the judge, which goes first: an item that it refuses could crash a kernel."""
        expected = self.expected
        return require_equal(compare(pipeline.run(self._items), expected))

    def _together(self, pipelines: Sequence[Pipeline]) -> Contender:
        one = len(pipelines) == 1
        return partial(_alone, pipelines[0], self._items) if one else partial(_side_by_side, pipelines, self._items)


def _alone(pipeline: Pipeline, items: Sequence[Item], budget: Budget) -> Spread:
    return measure.period_and_stages(pipeline, items, budget)[0]


def _side_by_side(pipelines: Sequence[Pipeline], items: Sequence[Item], budget: Budget) -> Spread:
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
