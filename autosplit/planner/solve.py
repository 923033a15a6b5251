"""The questions to the planner, each answered by the one search of ``partition``.

Costs come as a ``CostModel``, whose rows are devices or numbers of threads. They become a table of
rows by kind of device, runtime and threads, and the plans come back as splits or deployments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from autosplit.cuts.stages import Stages
from autosplit.deployment import Row, Stage
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.partition import costs as table
from autosplit.planner.partition import labels
from autosplit.planner.partition.bound import weights_of
from autosplit.planner.partition.evaluation import Plan as TablePlan
from autosplit.planner.partition.problem import MOST_DEVICES, Deadline, Question, problems
from autosplit.planner.partition.solver import partition
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import PlannedDeployment, evaluate_deployment, row_numbers
from autosplit.planner.problem.evaluation import Plan, evaluate
from autosplit.planner.problem.runtime_costs import of_device

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class DevicePlan:
    """Stages, the places of the devices of their replicas, and their runtimes where some compete.

    ``loads``: the period of each stage alone, the largest of which is ``period``.
    """

    stages: Stages
    devices: tuple[tuple[int, ...], ...]
    runtimes: tuple[str, ...]
    loads: tuple[float, ...]
    period: float


def plan(
    costs: CostModel, stages: int, *, deadline: Deadline | None = None, allow_empty: bool = False
) -> Plan:
    """The split of least period, then least latency, then fewest bytes moved.

    ``deadline`` returns true when the time is up: the best split so far is returned, with
    ``optimal`` false and the lower bound proven by then.

    Raises:
        Infeasible: No split fits; the message says why.
        ConfigError: The costs are of another number of devices.
    """
    asked = _Splits(costs, stages, allow_empty)
    return asked.plan(partition(asked.table, asked.question, deadline=deadline))


def k_best(
    costs: CostModel,
    stages: int,
    k: int,
    *,
    deadline: Deadline | None = None,
    allow_empty: bool = False,
) -> tuple[Plan, ...]:
    """The k best distinct splits in order of period, latency and bytes moved, or all if fewer.

    Of splits that differ only in which of equal devices stay empty there is one. ``note`` of the
    first tells where a limit or the deadline left it at fewer, or at splits along a few op orders.
    Raises as ``plan``, and ConfigError for ``k`` below 1.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; give at least 1")
    asked = _Splits(costs, stages, allow_empty)
    plans = labels.k_best(asked.table, asked.question, k, deadline=deadline)
    return tuple(map(asked.plan, plans))


def least_latency(
    costs: CostModel,
    stages: int,
    period: float,
    *,
    deadline: Deadline | None = None,
    allow_empty: bool = False,
) -> Plan:
    """The split of least latency, then fewest bytes moved, with a period of at most ``period``.

    ``optimal`` is about the latency, ``lower_bound`` about the period. Raises as ``plan``.
    """
    asked = _Splits(costs, stages, allow_empty)
    best = partition(asked.table, asked.question, deadline=deadline, max_period=period)
    return asked.plan(best)


def period_bound(costs: CostModel, stages: int) -> float:
    """A proven lower bound of the period of every split, from work alone. Raises as ``plan``."""
    asked = _Splits(costs, stages, allow_empty=False)
    return min(weights_of(p).bound for p in problems(asked.table, asked.question))


def pareto_front(
    costs: CostModel, stages: int, *, deadline: Deadline | None = None, allow_empty: bool = False
) -> tuple[tuple[Plan, ...], bool]:
    """One split for each point of the front of period and latency, and whether these are all.

    Raises as ``plan``.
    """
    asked = _Splits(costs, stages, allow_empty)
    plans, complete = labels.front(asked.table, asked.question, deadline=deadline)
    return tuple(map(asked.plan, plans)), complete


def plan_assigned(
    costs: CostModel, stages: int, *, deadline: Deadline | None = None, allow_empty: bool = False
) -> Plan:
    """The best plan over all ways to give each stage its own device; ``devices`` tells which.

    There may be more devices than stages. Raises as ``plan``.
    """
    count = costs.devices
    if count is None:
        return plan(costs, stages, deadline=deadline, allow_empty=allow_empty)
    kinds = [str(kind) for kind in kinds_of(costs, count)]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    question = Question(counts, stages=None if allow_empty else stages)
    best = partition(devices_table(costs, kinds), question, deadline=deadline)
    used = [place for places in _places(best.stages, kinds) for place in places]
    unused = [place for place in range(count) if place not in used]
    order = (used + unused)[:stages] if allow_empty else used
    split = [*best.split, *[()] * (len(order) - len(used))]
    planned = evaluate(costs.on_devices(order), split, allow_empty=allow_empty)
    return replace(_proven(planned, best), devices=tuple(order))


def plan_devices(
    costs: CostModel, count: int, *, deadline: Deadline | None = None
) -> DevicePlan | None:
    """The stages of least period on ``count`` devices, then of fewest devices.

    A stage may have replicas on several of them, which may be unlike. Memory limits are those of
    each device. None where nothing fits.
    """
    kinds = [str(kind) for kind in kinds_of(costs, count)]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    try:
        best = partition(
            devices_table(costs, kinds), Question(counts, replicas=True), deadline=deadline
        )
    except Infeasible:
        return None
    names = tuple(stage.runtime for stage in best.stages) if costs.runtimes else ()
    return DevicePlan(best.split, _places(best.stages, kinds), names, best.periods, best.period)


def plan_deployment(
    costs: CostModel,
    cores: int,
    *,
    thread_counts: Sequence[int] = (1,),
    deadline: Deadline | None = None,
) -> PlannedDeployment:
    """The deployment of least period on ``cores`` equal cores, then of fewest cores and latency.

    Row i of a table of ``costs`` is for a replica with ``thread_counts[i]`` threads; one row serves
    all. Memory limits hold for each replica. ``deadline`` is as in ``plan``.

    Raises:
        Infeasible: No deployment fits.
        ConfigError: A number makes no sense, or the costs are of unequal devices.
    """
    if not 1 <= cores <= MOST_DEVICES:
        raise ConfigError(f"number of cores is {cores}; give 1 to {MOST_DEVICES}")
    counts = set(thread_counts)
    are_distinct = len(counts) == len(thread_counts)
    if not counts or not are_distinct or not 1 <= min(counts) <= max(counts) <= cores:
        raise ConfigError(f"thread counts {tuple(thread_counts)}; give distinct ones, 1 to {cores}")
    if costs.devices not in (None, len(thread_counts)):
        raise ConfigError(
            f"costs of {costs.devices} devices, but a deployment is for equal cores; "
            "give costs of one device, or one row for each number of threads"
        )
    rows = {"0": list(enumerate(thread_counts))}
    return _on_cores(costs, rows, [cores], thread_counts, deadline)


def plan_cores(
    costs: CostModel,
    cores: Sequence[int],
    thread_counts: Sequence[int],
    *,
    fewest_threads: int = 1,
    deadline: Deadline | None = None,
) -> PlannedDeployment:
    """The deployment of least period on ``cores[k]`` cores of each kind k, then of fewest cores.

    The rows of ``costs`` are as ``row_numbers`` has them for ``thread_counts``. The replicas of a
    stage are on cores of one kind and have at least ``fewest_threads``.

    Raises:
        Infeasible: Nothing fits.
        ConfigError: There are too many cores of too many kinds.
    """
    rows: dict[str, list[tuple[int, int]]] = {}
    for (threads, kind), row in row_numbers(tuple(thread_counts)).items():
        if fewest_threads <= threads <= cores[kind]:
            rows.setdefault(str(kind), []).append((row, threads))
    if not rows:
        raise Infeasible(f"no deployment of '{costs.name}' has so few cores; give more")
    return _on_cores(costs, rows, cores, thread_counts, deadline)


def _on_cores(
    costs: CostModel,
    rows: Mapping[str, Sequence[tuple[int, int]]],
    cores: Sequence[int],
    thread_counts: Sequence[int],
    deadline: Deadline | None,
) -> PlannedDeployment:
    question = Question.of_cores({kind: cores[int(kind)] for kind in rows})
    best = partition(_table(costs, rows), question, deadline=deadline)
    options = [stage.options[0] for stage in best.stages]
    kinds = [int(option.row.kind) for option in options] if len(cores) > 1 else ()
    planned = evaluate_deployment(
        costs,
        best.split,
        [option.replicas for option in options],
        [option.row.threads for option in options],
        thread_counts,
        kinds,
    )
    return _proven(planned, best)


class _Splits:
    """A question for splits along the devices of some costs, some of which may stay unused."""

    def __init__(self, costs: CostModel, stages: int, allow_empty: bool) -> None:
        if stages < 1:
            raise ConfigError(f"number of stages is {stages}; give at least 1")
        if costs.devices not in (None, stages):
            raise ConfigError(
                f"{stages} stages on {costs.devices} devices; give one stage per device"
            )
        self.costs, self.allow_empty = costs, allow_empty
        self.kinds = [str(kind) for kind in kinds_of(costs, stages)]
        self.table = devices_table(costs, self.kinds)
        self.question = Question.along(self.kinds, empty=allow_empty)

    def plan(self, best: TablePlan) -> Plan:
        """A plan of the table as one of the costs."""
        places = [place for (place,) in _places(best.stages, self.kinds, in_order=True)]
        ops_of = dict(zip(places, best.split, strict=True))
        split = [ops_of.get(place, ()) for place in range(len(self.kinds))]
        return _proven(evaluate(self.costs, split, allow_empty=self.allow_empty), best)


def kinds_of(costs: CostModel, count: int) -> tuple[int, ...]:
    """For each of ``count`` devices the first one that costs the same in every table."""
    if costs.devices is None:
        return (0,) * count
    first: dict[CostModel, int] = {}
    return tuple(first.setdefault(costs.on_devices([d]), d) for d in range(count))


def devices_table(costs: CostModel, kinds: Sequence[str]) -> table.CostModel:
    """The table of some costs for devices of these kinds, each named by the first of them."""
    return _table(costs, {kind: [(int(kind), 1)] for kind in dict.fromkeys(kinds)})


def _table(costs: CostModel, rows: Mapping[str, Sequence[tuple[int, int]]]) -> table.CostModel:
    """The table of some costs; ``rows``: of each kind of device the rows and their threads."""

    def every_row() -> Iterator[table.RowCosts]:
        for runtime in costs.each_runtime:
            for kind, of_kind in rows.items():
                for row, threads in of_kind:
                    yield table.RowCosts(
                        Row(kind, runtime.name, threads),
                        of_device(runtime.times, row),
                        of_device(runtime.overheads, row),
                        runtime.groups,
                    )

    kinds = []
    for kind, ((first, _), *_) in rows.items():
        moves = of_device(costs.send, first), of_device(costs.receive, first)
        kinds.append(table.Kind(kind, *moves, of_device(costs.memory, first)))
    return table.CostModel(
        name=costs.name,
        names=costs.names,
        predecessors=costs.predecessors,
        rows=tuple(every_row()),
        kinds=tuple(kinds),
        tensors=costs.tensors,
        sizes=costs.sizes,
        activations=costs.activations,
        groups=costs.groups,
        ids=costs.ids,
        states=costs.states,
        streams=costs.streams,
    )


def _places(
    stages: Sequence[Stage], kinds: Sequence[str], in_order: bool = False
) -> tuple[tuple[int, ...], ...]:
    """The devices of each stage, the first free ones of its kinds.

    ``in_order``: each after that of the stage before.
    """
    free = list(range(len(kinds)))
    chosen: list[tuple[int, ...]] = []
    for stage in stages:
        places: list[int] = []
        for option in stage.options:
            for _ in range(option.replicas):
                places.append(next(p for p in free if kinds[p] == option.row.kind))
                free = [p for p in free if p > places[-1] or (not in_order and p != places[-1])]
        chosen.append(tuple(sorted(places)))
    return tuple(chosen)


def _proven(planned: P, best: TablePlan) -> P:
    """A plan with what is proven of it."""
    bound = planned.period if best.optimal else min(best.lower_bound, planned.period)
    return replace(planned, lower_bound=bound, optimal=best.optimal, note=best.note)
