"""A bench on this machine and the servers it reaches: candidates built, judged by the original model, measured."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import cycle
from typing import Any

import numpy as np

from autosplit.cuts.stages import Stages
from autosplit.errors import MachineError, StageError, line_of
from autosplit.graph import FusedGraph
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.devices import rpc
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.isolation.worker import Tell
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.baselines import Way, ways
from autosplit.hardware.measurement.interleaved import Contender, duel
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.parity import compare, require_equal
from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    Spread,
)
from autosplit.hardware.measurement.statistics import spread


class LocalBench:
    """Implements Bench for a model whose stage i runs on ``places[i]``.

    Servers are held while a job needs them and no longer, so that several studies can share them. One that does not answer
    is waited for, at first for ``wait_s``. Raises MachineError where it stays away.
    """

    def __init__(
        self,
        model: CompiledModel,
        places: Sequence[Device],
        budget: Budget | None = None,
        items: int = 3,
        tell: Tell = lambda phase, stages=None: None,
        wait_s: float = 0.0,
    ) -> None:
        self.model = model
        self._tell = tell
        self.places = tuple(places)
        self._wait_s = wait_s
        self.budget = budget or Budget()
        self._items = model.items(items)
        model.runtime.check(self.places)
        with self.reached():
            self._targets = {str(d): spelled(model.kernels.target_on(d)) for d in self.places}
        self._wait_s = rpc.RETURN_S

    @property
    def graph(self) -> FusedGraph:
        """The graph of the model."""
        return self.model.graph

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices along the pipeline, spelled."""
        return tuple(map(str, self.places))

    @property
    def keep_together(self) -> Sequence[Sequence[int]]:
        """See Bench."""
        return self.model.runtime.keep_together

    @property
    def regions(self) -> Mapping[str, Sequence[int]]:
        """By the name of an external backend the ops that it runs."""
        return self.model.lowered.regions

    @property
    def untuned(self) -> float:
        """See Runtime.untuned; that of the first device."""
        return self.model.runtime.untuned(self.places[0])

    @property
    def identity(self) -> Mapping[str, str]:
        """See Bench."""
        own = {
            d: target for d, target in self._targets.items() if target != spelled(self.model.target)
        }
        targets = (
            {"targets": " ".join(f"{d} {target}" for d, target in sorted(own.items()))}
            if own
            else {}
        )
        return {
            **self.model.identity,
            **targets,
            "backend": self.model.runtime_name,  # the key of stored studies
            "devices": " ".join(self.devices),
        }

    @cached_property
    def expected(self) -> list[dict[str, np.ndarray[Any, Any]]]:
        """What the judge computes for the items that candidates are judged by: for each its outputs by name."""
        return self.model.expected(self._items)

    def profile(self) -> Sequence[Profile]:
        """See Bench; equal devices are profiled once."""
        with self.reached():
            self._compile()
            self._tell("profiling")
            profiles = {str(d): self.model.profile(d) for d in _each(self.places)}
        return [profiles[name] for name in self.devices]

    def links(self) -> Sequence[LinkCost]:
        """See Bench; equal devices are measured once."""
        with self.reached():
            self._tell("measuring links")
            links = {str(d): self.model.link(d) for d in _each(self.places)}
        return [links[name] for name in self.devices]

    def measure(self, stages: Stages) -> Measurement:
        """See Bench. The outputs are compared first; a wrong one is a StageError and no number counts."""
        self._tell("waiting for devices")
        with self.reached(in_trial=True), self._pipeline(stages) as pipeline:
            pipeline.start()
            self._tell("running", pipeline.threads)
            accuracy = self._judged(pipeline)
            period, busy = measure.period_and_stages(pipeline, self._items, self.budget)
            times = iter(busy)
            busy = tuple(next(times) if ops else 0.0 for ops in stages)
            return Measurement(
                period, measure.latency(pipeline, self._items, self.budget), busy, accuracy
            )

    def baselines(self) -> Sequence[Baseline]:
        """See Bench. Without a second core or device, one core is all there is."""
        found = []
        for name, copies in self._ways():
            with self.reached(), contextlib.ExitStack() as stack:
                pipelines = self._open_whole(stack, copies)
                period = self._together(pipelines)(self.budget)
                latencies = [measure.latency(p, self._items, self.budget) for p in pipelines]
                found.append(Baseline(name, period, latencies[0], len(pipelines)))
        return found

    def duel(self, candidates: Sequence[Stages]) -> tuple[Sequence[Spread], Sequence[Spread]]:
        """The periods of candidates and of the baselines, measured in turns; both in their order."""
        with self.reached(), contextlib.ExitStack() as stack:
            contenders: list[Contender] = []
            for stages in candidates:
                pipeline = stack.enter_context(self._pipeline(stages))
                self._judged(pipeline)
                contenders.append(partial(_alone, pipeline, self._items))
            contenders += [
                self._together(self._open_whole(stack, copies)) for _, copies in self._ways()
            ]
            self._tell("comparing in turns")
            spreads = duel(contenders, self.budget)
        return spreads[: len(candidates)], spreads[len(candidates) :]

    @contextlib.contextmanager
    def reached(self, in_trial: bool = False) -> Iterator[None]:
        """Hold the servers that stages are on. One that is lost fails a trial; elsewhere it is a MachineError."""
        with rpc.reached(self.places, self._wait_s) as held:
            try:
                yield
            except StageError as error:
                gone = [] if in_trial else [c.device for c in held if not c.is_alive]
                if not gone:
                    raise
                raise MachineError(
                    f"device '{gone[0]}' was lost ({line_of(error)}); start its server again"
                ) from error

    def close(self) -> None:
        """See Bench; pipelines are closed after each measurement, so nothing is left."""

    def _compile(self) -> None:
        self._tell("compiling kernels")
        self.model.runtime.prepare(self.places)

    def _pipeline(self, stages: Stages) -> Pipeline:
        self._compile()
        self._tell("building")
        return self.model.pipeline(stages, self.places, trace=True)

    def _ways(self) -> Sequence[Way]:
        """The ways without splitting, on devices that can run all of the model."""
        return ways([d for d in self.places if self.model.runtime.can_run(d)])

    def _open_whole(self, stack: contextlib.ExitStack, copies: Sequence[Device]) -> list[Pipeline]:
        """One unsplit model a copy, each checked."""
        self._compile()
        pipelines = [
            stack.enter_context(self.model.unsplit(device, trace=True)) for device in copies
        ]
        for pipeline in pipelines:
            self._judged(pipeline)
        return pipelines

    def _judged(self, pipeline: Pipeline) -> Accuracy:
        """How far a pipeline is from the judge, which goes first: an item that it refuses could crash a kernel."""
        expected = self.expected
        return require_equal(
            compare(pipeline.run(self._items), expected, self.model.lowered.dtypes)
        )

    def _together(self, pipelines: Sequence[Pipeline]) -> Contender:
        one = len(pipelines) == 1
        return (
            partial(_alone, pipelines[0], self._items)
            if one
            else partial(_side_by_side, pipelines, self._items)
        )


def _each(devices: Sequence[Device]) -> Sequence[Device]:
    """Devices of one spelling once: servers of one key are alike."""
    return list({str(d): d for d in reversed(devices)}.values())


def _alone(pipeline: Pipeline, items: Sequence[Item], budget: Budget) -> Spread:
    return measure.period_and_stages(pipeline, items, budget)[0]


def _side_by_side(pipelines: Sequence[Pipeline], items: Sequence[Item], budget: Budget) -> Spread:
    """The period in ms of several pipelines that work side by side: the time between any two results of all of them.

    Raises StageError where a stage of any of them fails.
    """
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
    with ThreadPoolExecutor(len(pipelines)) as copies:
        list(copies.map(drive, pipelines))  # the first error is raised here
    ends = [
        measure.completions(p.events, f + 1, len(p.submitted))
        for p, f in zip(pipelines, first, strict=True)
    ]
    last = min(e[-1] for e in ends)  # after this, not all of them work any more
    return spread(measure.gaps(sorted(t for e in ends for t in e if t <= last), len(pipelines)))
