"""A bench on this machine and the servers it reaches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median

from autosplit import phases
from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, MachineError, StageError, line_of
from autosplit.hardware.batches import batched_profiles, mismatch
from autosplit.hardware.bench.interface import BenchDescription
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.devices import rpc
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import disturbance, measure
from autosplit.hardware.measurement.baselines import BRIEFER, UnsplitRun, unsplit_runs
from autosplit.hardware.measurement.measure import Budget, compare_interleaved
from autosplit.hardware.measurement.open_loop import load_test
from autosplit.hardware.measurement.results import (
    Baseline,
    LinkCost,
    LoadTest,
    Measurement,
    Profile,
    Spread,
    spread,
)
from autosplit.hardware.runtimes.registry import AUTO, ready_made
from autosplit.planner.workload import Workload


class LocalBench:
    """Implements Bench, except for ``export``, for a model whose stage i runs on ``places[i]``.

    Servers are reserved for one job at a time, so that several studies can share them. A server
    that does not answer is waited for: ``wait_s`` seconds for the first job, RETURN_S later. Raises
    MachineError if it does not come back. The items of ``streams`` streams alternate. ``batches``
    are those of ``batched_profiles``.
    """

    def __init__(
        self,
        model: CompiledModel,
        places: Sequence[Device],
        budget: Budget | None = None,
        wait_s: float = 0.0,
        streams: int = 1,
        batches: Sequence[int] | str = (1,),
    ) -> None:
        self.model = model
        self._batches = batches
        self.places = tuple(places)
        self.budget = budget or Budget()
        # Without states the stream of an item makes no difference.
        self._streams = streams if model.graph.states else 1
        self._wait_s = wait_s
        model.check(self.places)
        with self.reached():
            self._targets = {str(d): spelled(model.kernels.target_on(d)) for d in self.places}
        # Every server has answered once, so one that is lost later may come back.
        self._wait_s = rpc.RETURN_S

    @cached_property
    def description(self) -> BenchDescription:
        """See Bench."""
        runtimes, usual = self.model.runtimes, spelled(self.model.kernels.target)
        places, identity = tuple(map(str, self.places)), {**self.model.identity}
        others = {device: t for device, t in sorted(self._targets.items()) if t != usual}
        if others:
            identity["targets"] = " ".join(f"{device} {t}" for device, t in others.items())
        identity["backend"] = " ".join(runtimes)  # the key in stored studies
        identity["devices"] = " ".join(places)
        return BenchDescription(
            graph=self.model.graph,
            devices=places,
            identity=identity,
            runtimes=tuple(runtimes),
            keep_together={name: runtime.keep_together for name, runtime in runtimes.items()},
            regions=self.model.lowered.regions,
        )

    def profile(self) -> Sequence[Profile]:
        """See Bench. With runtime ``auto`` a runtime whose outputs differ is left out."""
        with self.reached():
            name = self.model.runtime_name
            if name != AUTO and (difference := mismatch(self.model, name, self.places)):
                raise StageError(difference)
            phases.report("profiling")
            return self._profiles

    def links(self) -> Sequence[LinkCost]:
        """See Bench. Devices with the same spelling are measured once."""
        with self.reached():
            phases.report("measuring links")
            return self.model.links(self.places)

    def measure(self, deployment: Deployment) -> Measurement:
        """See Bench. Outputs are compared first; a candidate with wrong outputs is not timed."""
        phases.report("waiting for devices")
        with self.reached(in_trial=True), self._turns(deployment) as turns:
            start = disturbance.Counters.now()
            period = turns(self.budget)
            return turns.measurement(period, disturbance.since(start).reasons)

    def baselines(self, names: Sequence[str] | None = None) -> Sequence[Baseline]:
        """See Bench. A runtime that fails is skipped, unless it was requested by name.

        There are many baselines, so each is measured briefly.
        """
        seconds, share = self.budget.seconds / BRIEFER, self.budget.share * BRIEFER**0.5
        brief = replace(self.budget, seconds=seconds, share=share)
        baselines = []
        for run in self.unsplit_runs(names):
            try:
                with self.reached(), self._turns(run) as turns:
                    start = disturbance.Counters.now()
                    measurement = turns.measurement(turns(brief))
                    reasons = disturbance.since(start).reasons
            except AutosplitError as error:
                if isinstance(error, MachineError) or run.runtime == self.model.runtime_name:
                    raise
                continue
            # A brief measurement has a wide interval on a calm machine too, which is no sign.
            baselines.append(run.measured(replace(measurement, disturbances=reasons)))
        return baselines

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """See Bench."""
        runs = self.unsplit_runs(baselines)
        with self.reached(), contextlib.ExitStack() as stack:
            contenders: list[Deployment | UnsplitRun] = [*candidates, *runs]
            turns = [stack.enter_context(self._turns(contender)) for contender in contenders]
            start = disturbance.Counters.now()
            periods = compare_interleaved(turns, self.budget)
            reasons = disturbance.since(start).reasons
        measured = [t.measurement(p, reasons) for t, p in zip(turns, periods, strict=True)]
        count = len(candidates)
        compared = [run.measured(m) for run, m in zip(runs, measured[count:], strict=True)]
        return measured[:count], {baseline.name: baseline for baseline in compared}

    def under_load(
        self, deployment: Deployment, workload: Workload, period: Spread, least: float = 0.0
    ) -> LoadTest:
        """See Bench."""
        # The comparison of outputs also warms the pipeline up.
        with self.reached(), self._turns(deployment) as turns:
            seconds, capacity = self.budget.seconds, measure.MS / period.median
            what = turns.items, workload, seconds, capacity, self._streams, least
            return load_test(turns.pipeline, *what)

    def unsplit_runs(self, names: Sequence[str] | None = None) -> Sequence[UnsplitRun]:
        """The baselines, or those called ``names``, on the devices that can run the whole model.

        TVM is left out unless it computes stages: its kernels take long to compile.
        """
        runs: list[UnsplitRun] = []
        for name in dict.fromkeys([*self.model.runtimes, *ready_made()]):
            runtime = self.model.runtime_of(name)
            devices = [d for d in self.places if runtime.can_run(d)]
            runs += unsplit_runs(name, devices, runtime.has_hint, self._batches_of(name))
        if self.model.graph.states:
            # A copy of the model holds whole streams, which a runtime's own copies do not.
            runs = [run.of_streams(self._streams) for run in runs if not run.by_hint]
        return [run for run in dict.fromkeys(runs) if names is None or run.name in names]

    @cached_property
    def _profiles(self) -> Sequence[Profile]:
        return batched_profiles(self.model, self.places, self._batches)

    def _batches_of(self, runtime: str) -> list[int]:
        """Batch 1, and the batch at which a runtime takes least time for an item of the model."""
        if self._batches == (1,) or runtime not in self.model.runtimes:
            return [1]
        of_runtime = [p for p in self._profiles if p.runtime == runtime]
        fastest = min(of_runtime, key=lambda profile: profile.whole_ms, default=None)
        return sorted({1, fastest.batch if fastest else 1})

    @contextlib.contextmanager
    def reached(self, in_trial: bool = False) -> Iterator[None]:
        """Reserve the servers of the stages.

        If a server is lost, a trial fails with StageError, and any other job with MachineError.
        """
        with rpc.reached(self.places, self._wait_s) as connections:
            try:
                yield
            except StageError as error:
                lost = [c.device for c in connections if not c.is_alive]
                if in_trial or not lost:
                    raise
                problem = f"device '{lost[0]}' was lost ({line_of(error)}); start its server again"
                raise MachineError(problem) from error

    @contextlib.contextmanager
    def _turns(self, contender: Deployment | UnsplitRun) -> Iterator[_Turns]:
        """Build a pipeline, compare its outputs with the reference, and yield it for measuring."""
        # The reference goes first: an item that it refuses could crash a kernel.
        items = self.model.reference_outputs.items
        with self._pipeline(contender) as pipeline:
            phases.report("running", pipeline.threads)
            accuracy = self.model.require_equal(pipeline, contender.runtimes)
            yield _Turns(pipeline, items, self._streams, accuracy.max_rel_error)

    def _pipeline(self, contender: Deployment | UnsplitRun) -> Pipeline:
        model = self.model.at_batch(contender.batch)
        if isinstance(contender, UnsplitRun):
            phases.report(f"measuring {contender.name}")
            name, devices = contender.runtime, contender.devices
            return model.whole(name, *devices, by_hint=contender.by_hint, trace=True)
        phases.report("compiling kernels")
        for name in dict.fromkeys(contender.runtimes):
            model.runtime_of(name).prepare(self.places)
        phases.report("building")
        return model.pipeline(contender, trace=True)


class _Turns:
    """A verified pipeline that is measured in turns, with the latencies and stage times of all."""

    def __init__(
        self, pipeline: Pipeline, items: Sequence[Item], streams: int, max_rel_error: float
    ) -> None:
        self.pipeline, self.items, self._streams = pipeline, items, streams
        self._max_rel_error = max_rel_error
        self._stage_ms: list[tuple[float, ...]] = []
        self._latencies: list[float] = []

    def __call__(self, budget: Budget) -> Spread:
        """Measure one turn and return its period in ms."""
        phases.report("running", self.pipeline.threads)
        turn = self.pipeline, self.items, budget
        period, busy = measure.period_and_busy(*turn, self._streams)
        self._stage_ms.append(tuple(map(sum, busy)))
        self._latencies += measure.latency(*turn).samples
        return period

    def measurement(self, period: Spread, disturbances: tuple[str, ...] = ()) -> Measurement:
        """The measurement over all turns, with the given period."""
        latency = spread(self._latencies)
        # The median over all turns of the time of an item in each stage.
        stage_ms = tuple(map(median, zip(*self._stage_ms, strict=True)))
        reasons = disturbances + disturbance.signs(period, latency)
        return Measurement(period, latency, stage_ms, self._max_rel_error, reasons)
