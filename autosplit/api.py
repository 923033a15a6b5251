"""The public API: load a model, split it by hand or by plan, run it, export it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, cycle
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from autosplit import cuts, planner
from autosplit.cuts.stages import Stages
from autosplit.deploy.export import write_part, write_split
from autosplit.deployment import Deployment, Option, Row, Stage
from autosplit.errors import ConfigError, MachineError, SplitError
from autosplit.graph import FusedGraph, ops_named
from autosplit.hardware.batches import AUTO_BATCHES, batched_profiles
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.devices.rpc import reached
from autosplit.hardware.execution.batches import MOST as MOST_BATCH
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring, part
from autosplit.hardware.measurement.results import Profile, SplitResults
from autosplit.hardware.profiling.cost_table import cost_table, place_regions, slowed
from autosplit.lowering import convex
from autosplit.planner import CostModel
from autosplit.study.space import useful_threads

SINGLE = (1,)  # batches: items are computed one by one
Batches = int | Sequence[int] | Literal["auto"]
SEARCH_S = 10.0  # the time limit of the search for a plan, which returns the best one so far


class Model(CompiledModel):
    """A model ready to be split; ``graph`` holds its fused ops."""

    def __repr__(self) -> str:
        """A short text: the fields hold whole graphs and kernels."""
        return f"<Model '{self.graph.name}' of {len(self.graph.ops)} ops>"

    def split(self, after: Sequence[Iterable[str]], replicas: Sequence[int] = ()) -> Split:
        """Split by hand.

        A cut is the smallest downset that contains the named ops and the previous cut, and that
        separates no ops that share a state.

        Args:
            after: For each cut, from input to output, a list of the ops, nodes or modules that must
                lie before it. A string instead of a list is one name.
            replicas: The number of replicas of each stage; one by default.

        Returns:
            The split, which runs (``pipeline``) and can be written (``export``).

        Raises:
            SplitError: An unknown name, an empty stage, a cut that does not contain the previous
                one, a cut between ops that are fused, or a wrong number of replicas.

        Example:
            split = model.split(after=[["first"], ["halves", "hinted"]])
        """
        after = [[after]] if isinstance(after, str) else after
        if replicas and (len(replicas) != len(after) + 1 or min(replicas) < 1):
            raise SplitError(
                f"replicas are {', '.join(map(str, replicas))}; give each of the {len(after) + 1} "
                "stages a number from 1"
            )
        downsets: list[int] = []
        states = list(map(cuts.bitset, self.graph.ops_of_states))
        for number, names in enumerate(after, 1):
            # A string is one name; iterating over it would give its letters.
            names = [names] if isinstance(names, str) else list(names)
            downset = cuts.closure(self.graph, self._ops(names))
            # A state is kept in one stage.
            downset = cuts.with_whole_groups(self.graph, downset, states)
            previous = downsets[-1] if downsets else 0
            # The new cut lies inside the previous one: no new stage would begin there.
            if previous & ~downset and not downset & ~previous:
                last = self.graph.ops[max(cuts.members(previous & ~downset))].name
                raise SplitError(
                    f"cut {number} (after {', '.join(names) or 'nothing'}) lies before cut "
                    f"{number - 1}: it does not contain op '{last}'; "
                    "list the cuts from input to output"
                )
            # Cuts are nested: each contains the previous one.
            downsets.append(previous | downset)
            self._require_whole_groups(number, downsets[-1])
        return Split(self, cuts.stages(self.graph, downsets), replicas=tuple(replicas))

    def extract(
        self, ops: Iterable[str] = (), *, first: Iterable[str] = (), last: Iterable[str] = ()
    ) -> Part:
        """Extract a part of the model, a convex set of ops, that runs by itself.

        Args:
            ops: Names of ops or source nodes of the part.
            first: Names where paths begin; the part includes all ops on paths to ``last``.
            last: Names where these paths end.

        Returns:
            The part, which runs (``pipeline``) and can be written (``export``).

        Raises:
            SplitError: An unknown name, no path from first to last, or a path that leaves the set
                and returns.

        Example:
            part = model.extract(first=["hinted"], last=["late"])
        """
        chosen, start, end = self._ops(ops), self._ops(first), self._ops(last)
        if start or end:
            chosen += convex.between(self.graph, start, end)
        return Part(self, convex.require_convex(self.graph, chosen))

    def _ops(self, names: Iterable[str]) -> list[int]:
        ops: list[int] = []
        for name in [names] if isinstance(names, str) else names:
            ops += ops_named(self.graph, name)
        return ops

    def _require_whole_groups(self, number: int, downset: int) -> None:
        """Raises SplitError for a cut that, in every runtime, separates ops that run as one."""
        messages: list[str] = []
        for name, runtime in self.runtimes.items():
            groups = list(map(cuts.bitset, runtime.keep_together))
            separated = _separated(self.graph, name, groups, downset)
            if not separated:
                return
            messages.append(f"cut {number}: {separated}")
        raise SplitError(messages[0])


@dataclass(frozen=True)
class Part:
    """A convex set of a model's ops that runs by itself, from its own inputs to its outputs."""

    model: Model
    ops: tuple[int, ...]

    @property
    def wiring(self) -> Wiring:
        """The inputs and outputs of the part, as a pipeline of one stage."""
        return part(self.model.graph, self.ops, self.model.lowered.outputs)

    def pipeline(self, on: str | None = None) -> Pipeline:
        """Link the part into a pipeline of one stage.

        Args:
            on: The device; the first core by default.

        Returns:
            The pipeline, to be closed or used in ``with``.

        Raises:
            ConfigError: A misspelt device.
            MachineError: A device that does not exist.

        Example:
            with part.pipeline(on="cores:0") as pipeline:
                print([port.name for port in pipeline.wiring.inputs])
        """
        (place,) = device.along(1, (on,) if on else ())
        runtime = self.model.runtime_in_use
        deployment = Deployment.of_split([self.ops], [str(place)], [runtime])
        return self.model.run_on(self.wiring, deployment)

    def export(self, file: str | Path) -> Path:
        """Write the part as a library with a manifest and, where possible, as an ONNX model.

        Args:
            file: The path of the library.

        Returns:
            The path of the manifest, which ``autosplit.load`` takes.

        Raises:
            ConfigError: The file name is needed by the manifest, or another file has it.
            MachineError: A file cannot be written, or no linker is installed.

        Example:
            part.export("part.so")
        """
        return write_part(self.model, self.ops, Path(file))


@dataclass(frozen=True)
class Split:
    """A model divided into stages, each a tuple of op indices, and how the stages run.

    ``predicted_ms`` is the planned period. ``devices`` has one device for each replica of the first
    stage, then of the next. ``runtimes`` has the runtime of each stage; if it is empty, each stage
    gets the one that computes it fastest by the measured profile. ``replicas`` has the number of
    replicas of each stage, one by default. Stages compute ``batch`` items at once; the pipeline
    takes and returns single items. ``streams`` is how many streams share a model with states.
    """

    model: Model
    stages: Stages
    predicted_ms: float | None = None
    devices: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    replicas: tuple[int, ...] = ()
    batch: int = 1
    streams: int = 1

    @classmethod
    def of(
        cls, model: Model, deployment: Deployment, period: float | None = None, streams: int = 1
    ) -> Split:
        """The split of a model that a deployment describes, with its planned period in ms."""
        devices = tuple(chain.from_iterable(stage.devices for stage in deployment.stages))
        parts = deployment.split, period, devices, deployment.runtimes, deployment.replicas
        return cls(model, *parts, deployment.batch, streams)

    @property
    def deployment(self) -> Deployment:
        """The stages on the devices they were planned for, or on one core each without a plan."""
        return self._along(())

    def pipeline(
        self,
        devices: Sequence[str] = (),
        depth: int = 2,
        trace: bool = False,
        delay_ms: float | None = None,
    ) -> Pipeline:
        """Link the stages into a running pipeline.

        Args:
            devices: One device per replica; by default the planned ones, else one core each.
            depth: How many items are inside per replica, see ``Pipeline``.
            trace: Whether the times of every stage are recorded, in ``events``.
            delay_ms: The longest wait to fill a batch, see ``Pipeline.with_delay``.

        Returns:
            The pipeline, to be closed or used in ``with``.

        Raises:
            ConfigError: The number of devices is not that of the replicas.
            MachineError: A device does not exist.
            SplitError: A runtime cannot compute a stage as it is cut.

        Example:
            with split.pipeline(["cores:0", "cores:0"]) as pipeline:
                outputs = pipeline.run(model.items(8))
        """
        return self.model.pipeline(self._along(devices), depth, trace).with_delay(delay_ms)

    def export(
        self,
        folder: str | Path,
        devices: Sequence[str] = (),
        format: str = "native",
        onnx: bool = True,
        **results: Any,
    ) -> Path:
        """Write ``split.json`` and one loadable file per stage, which are compared with the model.

        Args:
            folder: The folder to write; an existing export there is replaced in one step.
            devices: As in ``pipeline``.
            format: "onnx" or "cpp" adds a program that runs the stages without autosplit.
            onnx: Whether the stages of TVM are written as ONNX models too.
            results: Fields of ``SplitResults`` to store, such as ``predicted``.

        Returns:
            The path of ``split.json``; ``autosplit.load`` takes the folder.

        Raises:
            ConfigError: The format cannot run a stage or the model; or as ``pipeline``.
            MismatchError: Outputs differ from those of the model.
            MachineError: A file cannot be written, or no linker is installed.

        Example:
            split.export("out")
        """
        known = SplitResults(streams=self.streams, **results)
        return write_split(self.model, self._along(devices), Path(folder), known, format, onnx)

    def _along(self, devices: Sequence[str]) -> Deployment:
        replicas = self.replicas or (1,) * len(self.stages)
        names, runtimes = self.devices, self.runtimes
        # A plan may be for another machine, whose devices do not exist here.
        if devices or not (names and runtimes):
            things = "replicas" if self.replicas else "stages"
            places = device.along(sum(replicas), devices or names, things)
            names = tuple(map(str, places))
            # All replicas of a stage have the runtime that is fastest for the first of them.
            firsts = [places[n] for n in accumulate(replicas[:-1], initial=0)]
            runtimes = runtimes or fastest_runtimes(self.model, self.stages, firsts)
        return Deployment.of_split(self.stages, names, runtimes, replicas, self.batch)


load_model = Model.load


def plan(
    model: Model,
    stages: int | Literal["auto"] | None = None,
    devices: Sequence[str] = (),
    regions: Mapping[str, str] | None = None,
    *,
    cores: int | None = None,
    memory: float | None = None,
    streams: int = 1,
    batch: Batches = SINGLE,
) -> Split:
    """Plan the fastest split, or with ``cores`` the fastest deployment, for the measured op times.

    Ops that were not timed on a device before are timed first, for some seconds.

    Args:
        model: The model, of ``load_model``.
        stages: The number of stages (default 2), or "auto": up to one per device. If ``devices``
            share no cores, "auto" also considers replicas of a stage, even on unlike devices.
        devices: One device per stage, such as "cores:0"; by default one core each. The loads of
            stages on the same core add up.
        regions: The device that the ops of an external backend run on, by the backend's name.
        cores: Instead of stages: how many cores to plan stages, replicas, threads and runtimes on.
        memory: With ``cores``: the memory limit of each replica in bytes.
        streams: With ``cores``: how many streams share the deployment of a model with states.
        batch: How many items may be computed at once: a number, several to choose from, or "auto".

    Returns:
        The split, with its ``deployment``; ``predicted_ms`` is its period.

    Raises:
        Infeasible: Too many stages or too little memory.
        ModelError: A batch above 1 for a model whose items influence one another.
        ConfigError: Arguments that are invalid or exclude each other.
        MachineError: A device or cores that do not exist.

    Example:
        split = autosplit.plan(model, stages=2)
    """
    if cores is not None:
        if stages is not None:
            raise ConfigError("give cores or stages, not both: cores=N plans the stages too")
        if devices or regions:
            raise ConfigError("with cores all devices are equal; leave devices and regions out")
        count = _number("cores", cores)
        return _on_cores(model, count, memory, _number("streams", streams), _batches(batch))
    if memory is not None or streams != 1:
        raise ConfigError("memory and streams are for cores=N; give cores instead of stages")
    if stages == "auto":
        count = most_stages(devices)
    else:
        count = _number("stages", 2 if stages is None else stages, ", or 'auto'")
    along = device.along(count, devices)
    measured = costs_along(model, along, regions, _batches(batch))
    best = planner.plan_split(
        measured.costs,
        list(map(str, along)),
        len(along),
        slowed=measured.slowed,
        empty=stages == "auto",
        replicas=stages == "auto" and bool(devices) and measured.slowed is None,
        deadline=_search_limit(),
    )
    return Split.of(model, Deployment(best.stages), best.period)


def _batches(batch: Batches) -> Sequence[int] | str:
    """The batches to choose from. Raises ConfigError for an invalid one."""
    if batch == AUTO_BATCHES:
        return AUTO_BATCHES
    numbers = batch if isinstance(batch, Sequence) and not isinstance(batch, str) else [batch]
    return [_number("batch", number, ', or "auto"') for number in numbers] or SINGLE


def _on_cores(
    model: Model, cores: int, memory: float | None, streams: int, batches: Sequence[int] | str
) -> Split:
    numbers = device.available()
    is_size = isinstance(memory, Real) and not isinstance(memory, bool) and memory > 0
    if memory is not None and not is_size:
        raise ConfigError(f"memory is {memory!r}; give a number of bytes above 0")
    if cores > len(numbers):
        raise MachineError(f"cores is {cores}; this process may use 1 to {len(numbers)}")
    costs = replace(costs_by_threads(model, cores, batches).costs, streams=streams)
    if memory is not None:
        costs = costs.with_memory(float(memory))
    best = planner.partition(costs, planner.Question.of_cores(cores), deadline=_search_limit())
    deployment = Deployment(best.stages).on_cores({"": numbers})
    return Split.of(model, deployment, best.period, streams)


def _number(name: str, value: object, alternative: str = "") -> int:
    """An argument as an int. Raises ConfigError unless it is a whole number from 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} is {value!r}; give a whole number from 1{alternative}")
    return int(value)


def _search_limit() -> Callable[[], bool]:
    """A function that says whether ``SEARCH_S`` seconds have passed since this call."""
    end = time.perf_counter() + SEARCH_S
    return lambda: time.perf_counter() > end


@dataclass(frozen=True)
class MeasuredCosts:
    """The planner's costs of a model, in ms, and the profiles that they come from.

    ``profiles`` maps each row of the cost table to the profile of its times. ``slowed``: the costs
    for devices that share cores; None if none do.
    """

    costs: CostModel
    profiles: Mapping[Row, Profile]
    slowed: CostModel | None = None


def costs_by_threads(
    model: CompiledModel, cores: int, batches: Sequence[int] | str = SINGLE
) -> MeasuredCosts:
    """The costs of a replica with 1, 2, 4, ... threads, as long as more threads are faster.

    There are at most ``cores`` threads, and no more than this machine has cores.
    """
    numbers = device.available()
    counts = [1 << n for n in range(min(cores, len(numbers)).bit_length())]
    places, rows = [Cores(numbers[:n]) for n in counts], [("", n) for n in counts]
    profiles = measured_profiles(model, places, batches)
    costs = useful_threads(_cost_table_of(model, places, rows)(profiles))
    return MeasuredCosts(costs, _by_row(profiles, rows))


def most_stages(devices: Sequence[str]) -> int:
    """The largest number of stages: one per device, or without devices one per available core."""
    return len(devices) or len(device.available())


def fastest_runtimes(
    model: CompiledModel, stages: Stages, devices: Sequence[Device]
) -> tuple[str, ...]:
    """The runtime that computes each stage fastest by the measured profile.

    Raises SplitError if no runtime can compute a stage as it is cut.
    """
    if len(model.runtimes) == 1:
        return (model.runtime_in_use,) * len(stages)
    costs = costs_along(model, devices).costs
    names = list(dict.fromkeys(row.row.runtime for row in costs.rows))
    loads = {}
    for name in names:
        pairs = zip(stages, map(str, devices), strict=True)
        rows = [Stage(tuple(ops), (Option(Row(place, name)),)) for ops, place in pairs]
        loads[name] = planner.evaluate(costs, rows).loads
    runtimes = []
    for number, place in enumerate(map(str, devices)):
        fastest = min(names, key=lambda name, n=number: loads[name][n])  # type: ignore[misc]
        if loads[fastest][number] == math.inf:
            reasons = _why_not_computed(model.graph, costs, stages, number, place)
            raise SplitError(f"no runtime can compute stage {number} as it is cut: {reasons}")
        runtimes.append(fastest)
    return tuple(runtimes)


def _why_not_computed(
    graph: FusedGraph, costs: CostModel, stages: Stages, number: int, place: str
) -> str:
    """Why each runtime cannot compute a stage on its device, and the nearest possible cut."""
    # The cuts on both sides of the stage.
    downsets = cuts.cuts_of(graph, stages)[max(number - 1, 0) : number + 1]
    reasons = []
    for row in (row for row in costs.rows if row.row.kind == place):
        runtime = row.row.runtime
        lacking = [graph.ops[i] for i in stages[number] if row.times[i] == math.inf]
        separated = (_separated(graph, runtime, row.groups, cut) for cut in downsets)
        if lacking:
            reason = lacking[0].opaque or "it has no time there"
            reasons.append(f"{runtime} cannot compute op {lacking[0].name} ({reason})")
        else:
            reasons.append(next(filter(None, separated), f"{runtime} refuses it"))
    return "; ".join(reasons)


def _separated(graph: FusedGraph, runtime: str, groups: Sequence[int], downset: int) -> str:
    """Why a runtime forbids a cut: it separates ops that run as one. Empty if it does not."""
    separated = next((g for g in groups if g & downset and g & ~downset), None)
    if separated is None:
        return ""
    ops = ", ".join(_op_names(graph, separated))
    text = f"{runtime} runs ops {ops} as one and they cannot be separated"
    free = cuts.with_whole_groups(graph, downset, groups)
    if free == cuts.full(graph):
        free = cuts.without_torn_groups(graph, downset, groups)
    if not free:
        return f"{text}, and no cut near is free; use fewer stages"
    last = _op_names(graph, cuts.last_ops(graph, free), limit=None)
    return f"{text}; the nearest cut that is free is --after {','.join(last)}"


def _op_names(graph: FusedGraph, ops: int, limit: int | None = 6) -> list[str]:
    names = [graph.ops[i].name for i in cuts.members(ops)]
    more = [f"{len(names) - limit} more"] if limit and len(names) > limit else []
    return names[:limit] + more


def costs_along(
    model: CompiledModel,
    devices: Sequence[Device],
    regions: Mapping[str, str] | None = None,
    batches: Sequence[int] | str = SINGLE,
) -> MeasuredCosts:
    """The costs on ``devices``, each of which is a kind by itself.

    ``regions``: the device that the ops of an external backend run on, by the backend's name.
    """
    names = list(map(str, devices))
    rows = [(name, 1) for name in names]
    profiles = measured_profiles(model, devices, batches)
    placed = place_regions(profiles, model.lowered.regions, regions or {}, names)
    shared = slowed(placed, names)
    table = _cost_table_of(model, devices, rows)
    slow = table(shared) if shared != placed else None
    return MeasuredCosts(table(placed), _by_row(profiles, rows), slow)


def _cost_table_of(
    model: CompiledModel, devices: Sequence[Device], rows: Sequence[tuple[str, int]]
) -> Callable[[Sequence[Profile]], CostModel]:
    """A function from profiles to costs, with links measured now; ``rows`` as in ``_by_row``."""
    with reached(devices):
        links = model.links(devices)
    groups = {name: runtime.keep_together for name, runtime in model.runtimes.items()}
    return partial(cost_table, model.graph, links=links, keep_together=groups, rows=rows)


def _by_row(profiles: Sequence[Profile], rows: Sequence[tuple[str, int]]) -> Mapping[Row, Profile]:
    """The profiles keyed by row; ``rows`` has the kind and the threads of each device."""
    pairs = zip(profiles, cycle(rows))
    return {Row(kind, p.runtime, threads, p.batch): p for p, (kind, threads) in pairs}


def measured_profiles(
    model: CompiledModel, devices: Sequence[Device], batches: Sequence[int] | str = SINGLE
) -> list[Profile]:
    """The op times of each runtime on each of ``devices``, measured or from the cache."""
    if not isinstance(batches, str) and max(batches, default=1) > MOST_BATCH:
        raise ConfigError(f"batch is {max(batches)}; give at most {MOST_BATCH}")
    model.check(devices)
    with reached(devices):
        return batched_profiles(model, devices, batches)
