"""A bench on this machine and the servers it reaches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import cycle, takewhile
from statistics import median

from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, MachineError, StageError, line_of
from autosplit.graph import FusedGraph
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.devices import rpc
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.isolation.worker import ReportPhase
from autosplit.hardware.measurement import disturbance, measure
from autosplit.hardware.measurement.baselines import BRIEFER, UnsplitRun, unsplit_runs
from autosplit.hardware.measurement.measure import Budget, compare_interleaved
from autosplit.hardware.measurement.real_time import measure_real_time
from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    RealTime,
    Spread,
    spread,
)
from autosplit.hardware.measurement.sequences import STEPS, Expected
from autosplit.hardware.profiling.cost_model import cost_model
from autosplit.hardware.runtimes.registry import AUTO, ready_made
from autosplit.planner import CostModel

_LOOK = 8  # results of replicas at least between two looks at their interval


def ignore_phase(phase: str, stages: Mapping[str, int] | None = None) -> None:
    """A ReportPhase that reports to nobody."""


class LocalBench:
    """Implements Bench for a model whose stage i runs on ``places[i]``.

    Servers are reserved for one job at a time, so that several studies can share them. A server
    that does not answer is waited for: for the first job ``wait_s``, later RETURN_S. Raises
    MachineError if it does not come back. The items of ``streams`` come in turn.
    """

    def __init__(
        self,
        model: CompiledModel,
        places: Sequence[Device],
        budget: Budget | None = None,
        items: int = 3,
        report_phase: ReportPhase = ignore_phase,
        wait_s: float = 0.0,
        streams: int = 1,
    ) -> None:
        self.model = model
        self.places = tuple(places)
        self.budget = budget or Budget()
        # Without states all items are alike, whichever stream they are of.
        self._streams = streams if model.graph.states else 1
        self._report_phase = report_phase
        self._wait_s = wait_s
        self._items = model.items(STEPS if model.graph.states else items)
        model.check(self.places)
        with self.reached():
            self._targets = {str(d): spelled(model.kernels.target_on(d)) for d in self.places}
        # Every server has answered once: one that is away from now on may return.
        self._wait_s = rpc.RETURN_S

    @property
    def graph(self) -> FusedGraph:
        """See Bench."""
        return self.model.graph

    @property
    def devices(self) -> tuple[str, ...]:
        """See Bench."""
        return tuple(map(str, self.places))

    @property
    def runtimes(self) -> tuple[str, ...]:
        """See Bench."""
        return tuple(self.model.runtimes)

    @property
    def keep_together(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """See Bench."""
        return {name: r.keep_together for name, r in self.model.runtimes.items()}

    @property
    def regions(self) -> Mapping[str, Sequence[int]]:
        """See Bench."""
        return self.model.lowered.regions

    def untuned_share(self) -> float:
        """See Bench."""
        with self.reached():
            self._report_phase("compiling kernels")
            return min(r.untuned(self.places[0]) for r in self.model.runtimes.values())

    @property
    def identity(self) -> Mapping[str, str]:
        """See Bench."""
        shared_target = spelled(self.model.target)
        other_targets = [
            f"{device} {target}"
            for device, target in sorted(self._targets.items())
            if target != shared_target
        ]
        identity = {**self.model.identity}
        if other_targets:
            identity["targets"] = " ".join(other_targets)
        identity["backend"] = " ".join(self.runtimes)  # the key in stored studies
        identity["devices"] = " ".join(self.devices)
        return identity

    @cached_property
    def expected(self) -> Expected:
        """What the reference computes for the items that candidates are verified with."""
        return self.model.expect(self._items)

    def profile(self) -> Sequence[Profile]:
        """See Bench. Devices with the same spelling are profiled once.

        With runtime ``auto`` one whose outputs differ is left out.
        """
        with self.reached():
            if self.model.runtime_name != AUTO:
                self._report_phase("comparing outputs")
                refusal = self._refusal(self.model.runtime_name)
                if refusal:
                    raise StageError(refusal)
            self._report_phase("profiling")
            profiles = self.model.profiles(self.places)
            if self.model.runtime_name != AUTO:
                return profiles
            self._report_phase("comparing runtimes with the reference")
            possible = dict.fromkeys(p.runtime for p in profiles if p.is_possible)
            refusals = {runtime: self._refusal(runtime) for runtime in possible}
        return [p.without_times(refusals.get(p.runtime) or p.note) for p in profiles]

    def links(self) -> Sequence[LinkCost]:
        """See Bench. Devices with the same spelling are measured once."""
        with self.reached():
            self._report_phase("measuring links")
            return self.model.links(self.places)

    def cost_model(self, profile: Sequence[Profile], links: Sequence[LinkCost]) -> CostModel:
        """See Bench."""
        return cost_model(self.graph, profile, links, self.keep_together)

    def measure(self, deployment: Deployment) -> Measurement:
        """See Bench. Outputs are compared first: a candidate that is wrong has no period."""
        self._report_phase("waiting for devices")
        with self.reached(in_trial=True), self._pipeline(deployment) as pipeline:
            pipeline.start()
            self._report_phase("running", pipeline.threads)
            accuracy = self._verify(pipeline)
            start = disturbance.Counters.now()
            period, busy = measure.period_and_busy(
                pipeline, self._items, self.budget, self._streams
            )
            latency = measure.latency(pipeline, self._items, self.budget)
            reasons = disturbance.since(start).reasons + disturbance.signs(period, latency)
        return Measurement(period, latency, tuple(map(sum, busy)), accuracy, reasons)

    def baselines(self) -> Sequence[Baseline]:
        """See Bench. Only a runtime that was asked for by name may not fail.

        There are many baselines, so each is measured briefly.
        """
        seconds, share = self.budget.seconds / BRIEFER, self.budget.share * BRIEFER**0.5
        brief = replace(self.budget, seconds=seconds, share=share)
        baselines = []
        for run in self.unsplit_runs():
            try:
                with self.reached(), contextlib.ExitStack() as stack:
                    pipelines = self._open_unsplit(stack, run)
                    turns = _Turns(pipelines, self._items, self._streams)
                    period, latency = turns(brief), turns.latency
            except MachineError:
                raise
            except AutosplitError:
                if run.runtime == self.model.runtime_name:
                    raise
                continue
            baselines.append(Baseline(run.name, period, latency, len(run.devices)))
        return baselines

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """See Bench."""
        runs = [run for run in self.unsplit_runs() if run.name in baselines]
        accuracies: list[Accuracy] = []
        with self.reached(), contextlib.ExitStack() as stack:
            turns: list[_Turns] = []
            for deployment in candidates:
                pipeline = stack.enter_context(self._pipeline(deployment))
                accuracies.append(self._verify(pipeline))
                turns.append(_Turns([pipeline], self._items, self._streams))
            for run in runs:
                unsplit = self._open_unsplit(stack, run)
                turns.append(_Turns(unsplit, self._items, self._streams))
            self._report_phase("comparing interleaved")
            start = disturbance.Counters.now()
            periods = compare_interleaved(turns, self.budget, len(candidates))
            reasons = disturbance.since(start).reasons
        measurements = []
        for period, turn, accuracy in zip(periods, turns, accuracies, strict=False):
            disturbances = reasons + disturbance.signs(period, turn.latency)
            figures = period, turn.latency, turn.stage_ms, accuracy, disturbances
            measurements.append(Measurement(*figures))
        compared, count = {}, len(candidates)
        for run, period, turn in zip(runs, periods[count:], turns[count:], strict=True):
            compared[run.name] = Baseline(run.name, period, turn.latency, len(run.devices))
        return measurements, compared

    def real_time(self, deployment: Deployment, rate: float, period: Spread) -> RealTime:
        """See Bench."""
        with self.reached(), self._pipeline(deployment) as pipeline:
            # This warms it up, too.
            self._verify(pipeline)
            self._report_phase(f"running {rate:g} items/s", pipeline.threads)
            seconds, streams = self.budget.seconds, self._streams
            return measure_real_time(pipeline, self._items, rate, seconds, period, streams)

    def unsplit_runs(self) -> Sequence[UnsplitRun]:
        """The baselines in every runtime, each on the devices where it can run the whole model.

        TVM is left out unless it computes stages: its kernels take long to compile.
        """
        runs: list[UnsplitRun] = []
        for name in dict.fromkeys([*self.model.runtimes, *ready_made()]):
            runtime = self.model.runtime_of(name)
            devices = [d for d in self.places if runtime.can_run(d)]
            runs += unsplit_runs(name, devices, runtime.has_hint)
        if self.model.graph.states:
            # A copy of the model holds whole streams, which a runtime's own copies do not.
            runs = [run.of_streams(self._streams) for run in runs if not run.by_hint]
        return list(dict.fromkeys(runs))

    @contextlib.contextmanager
    def reached(self, in_trial: bool = False) -> Iterator[None]:
        """Reserve the servers of the stages.

        A server that is lost fails a trial; in any other job it is a MachineError.
        """
        with rpc.reached(self.places, self._wait_s) as connections:
            try:
                yield
            except StageError as error:
                lost = [c.device for c in connections if not c.is_alive]
                if in_trial or not lost:
                    raise
                raise MachineError(
                    f"device '{lost[0]}' was lost ({line_of(error)}); start its server again"
                ) from error

    def close(self) -> None:
        """See Bench. Pipelines are closed after each job, so nothing is left."""

    def _refusal(self, runtime: str) -> str:
        """Why stages cannot have a runtime; empty where its outputs of the model are right."""
        supported = filter(self.model.runtime_of(runtime).can_run, self.places)
        device = next(supported, None)
        if device is None:  # no device runs the whole model
            return ""
        try:
            (pipeline,) = self.model.whole(runtime, device)
            with pipeline:
                self._verify(pipeline)
        except MachineError:
            raise
        except AutosplitError as error:
            return str(error)
        return ""

    def _pipeline(self, deployment: Deployment) -> Pipeline:
        self._report_phase("compiling kernels")
        for name in dict.fromkeys(deployment.runtimes):
            self.model.runtime_of(name).prepare(self.places)
        self._report_phase("building")
        return self.model.pipeline(deployment, trace=True)

    def _open_unsplit(self, stack: contextlib.ExitStack, run: UnsplitRun) -> list[Pipeline]:
        """Verified pipelines with the copies of the model."""
        self._report_phase(f"measuring {run.name}")
        self.model.runtime_of(run.runtime).prepare(run.devices)
        whole = self.model.whole(run.runtime, *run.devices, by_hint=run.by_hint, trace=True)
        pipelines = list(map(stack.enter_context, whole))
        for pipeline in pipelines:
            self._verify(pipeline)
        return pipelines

    def _verify(self, pipeline: Pipeline) -> Accuracy:
        # The reference goes first: an item that it refuses could crash a kernel.
        expected = self.expected
        return self.model.require_equal(pipeline, expected)


class _Turns:
    """A contender: pipelines side by side, with all figures of its turns beside the periods."""

    def __init__(self, pipelines: Sequence[Pipeline], items: Sequence[Item], streams: int) -> None:
        self._pipelines, self._items, self._streams = pipelines, items, streams
        self._stage_ms: list[tuple[float, ...]] = []
        self._latencies: list[float] = []

    def __call__(self, budget: Budget) -> Spread:
        """The period of one turn."""
        first = self._pipelines[0]
        if len(self._pipelines) == 1:
            period, busy = measure.period_and_busy(first, self._items, budget, self._streams)
            self._stage_ms.append(tuple(map(sum, busy)))
        else:
            period = side_by_side(self._pipelines, self._items, budget)
        self._latencies += measure.latency(first, self._items, budget).samples
        return period

    @property
    def latency(self) -> Spread:
        """The latency over all turns."""
        return spread(self._latencies)

    @property
    def stage_ms(self) -> tuple[float, ...]:
        """The median over all turns of the time of an item in each stage; of one pipeline."""
        return tuple(map(median, zip(*self._stage_ms, strict=True)))


def side_by_side(pipelines: Sequence[Pipeline], items: Sequence[Item], budget: Budget) -> Spread:
    """The period in ms of pipelines that run at the same time: between any two of their results.

    They end together, after the time of the budget or when its interval is narrow enough.
    Raises StageError if a stage of any of them fails.
    """
    # A pipeline that began alone would have the memory's whole bandwidth for a while.
    start = threading.Barrier(len(pipelines))
    deadline = time.perf_counter() + budget.seconds
    known = threading.Event()
    first = [len(p.submitted) for p in pipelines]
    begin = [len(p.events) for p in pipelines]
    next_look = budget.items
    results = [0 for _ in pipelines]

    def samples() -> list[float]:
        ends = []
        for pipeline, skip, skipped, count in zip(pipelines, begin, first, results, strict=True):
            # The first item of each pipeline fills it.
            events = pipeline.events[skip:]
            ends.append(measure.completions(events, skipped + 1, skipped + count))
        # Later than this, some pipelines have finished and the others run faster.
        last = min(times[-1] if times else 0.0 for times in ends)
        completions = sorted(t for times in ends for t in times if t <= last)
        return measure.gaps(completions, len(pipelines))

    def drive(number: int) -> None:
        nonlocal next_look

        def may_enter(_: Item) -> bool:
            is_over = known.is_set() or time.perf_counter() >= deadline
            return results[number] < budget.items or not is_over

        start.wait()
        for _ in pipelines[number].map(takewhile(may_enter, cycle(items))):
            results[number] += 1
            if budget.share and number == 0 and results[0] >= next_look:
                # A look costs time in proportion to the results, and the stages need that time.
                next_look = results[0] + max(_LOOK, results[0] // 4)
                if measure.is_known(samples(), budget):
                    known.set()

    with ThreadPoolExecutor(len(pipelines)) as threads:
        list(threads.map(drive, range(len(pipelines))))  # raises the first error
    return spread(samples())
