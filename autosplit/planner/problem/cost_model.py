"""The cost model of a split: what a stage costs on each device.

The load of stage S on device d is
    overhead[d] + sum of times[d][op] over the ops of S
    + receive[d][t] once for each tensor t that S reads and does not make
    + send[d][t] once for each tensor t that S makes and a later stage reads.
Where several runtimes compete, times and overheads are those of the runtime in which the load is
least among those that separate no group of theirs at a border of S.
Its memory is the sum of ``sizes`` over its ops, plus, where ``activations`` is set, the bytes of
the tensors it receives and of those it sends. An empty stage costs nothing. Times are in ms for
measured nets and in any one unit for graph files.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

from autosplit.cuts import Contraction, bitset, contract, members
from autosplit.errors import ConfigError, GraphError
from autosplit.graph import FusedGraph, Tensor
from autosplit.lazy import cached_property
from autosplit.planner.partition.costs import Link, Transfer, common_groups
from autosplit.planner.problem.runtime_costs import Rows, RuntimeCosts, least_costs, of_device

_T = TypeVar("_T")


@dataclass(frozen=True)
class CostModel:
    """Costs of ops and tensors; each table holds one row for all devices, or one per device.

    ``names``: op names in a topological order; ``ids``: how the user calls them (node ids of a
    graph file, else names); ``predecessors``: bitset of producers per op; ``times``: infinite where
    a device cannot run the op; ``send`` and ``receive``: per device and tensor; ``memory``: bytes
    per device, infinite for no limit; ``groups``: bitsets of ops that stay on one stage; ``flops``
    per op, 0 where unknown. ``states``: by name those of ``groups`` that a state binds;
    ``streams`` streams, whose items come in turn, have them.
    ``runtimes``: the costs of each runtime that a stage may have;
    ``times`` and ``overheads`` are then the least over them. ``of_runtimes`` makes such a model.

    Raises:
        GraphError: A cost is negative or NaN, a table has a wrong length, ops are out of order, or
            times are not the least of the runtimes.
        ConfigError: The tables are for different numbers of devices.
    """

    name: str
    names: tuple[str, ...]
    predecessors: tuple[int, ...]
    times: tuple[tuple[float, ...], ...]
    tensors: tuple[Transfer, ...] = ()
    send: tuple[tuple[float, ...], ...] = ((),)
    receive: tuple[tuple[float, ...], ...] = ((),)
    overheads: tuple[float, ...] = (0.0,)
    sizes: tuple[float, ...] = ()
    memory: tuple[float, ...] = (math.inf,)
    activations: bool = False
    groups: tuple[int, ...] = ()
    flops: tuple[float, ...] = ()
    ids: tuple[str | int, ...] = field(default=())
    runtimes: tuple[RuntimeCosts, ...] = ()
    states: tuple[tuple[str, int], ...] = ()
    streams: int = 1

    def __post_init__(self) -> None:
        _fill_defaults(self)
        _check_lengths(self)
        _check_values(self)
        _check_order(self)

    @staticmethod
    def from_graph(
        graph: FusedGraph,
        op_times: Sequence[Sequence[float]],
        *,
        links: Link | Sequence[Link] | None = None,
        overheads: Sequence[float] = (0.0,),
        memory: Sequence[float] = (math.inf,),
    ) -> CostModel:
        """The model of measured costs: ``op_times`` in ms, one row for all devices or one each.

        ``links``: how each device moves tensors (None: at no cost). Model inputs are received by
        every stage that reads them, model outputs are sent by the stage that makes them.
        ``memory`` in bytes counts weights and the tensors at a stage's borders.
        """
        rows = (links,) if isinstance(links, Link) else tuple(links or (Link(),))
        tensors = [t for t in graph.tensors.values() if t.consumers]
        # Sending an output is part of its op's time, and model inputs are sent by nobody.
        unsent = {t.name for t in tensors if t.producer is None} | set(graph.outputs)
        return CostModel(
            name=graph.name,
            names=tuple(op.name for op in graph.ops),
            predecessors=graph.predecessors,
            times=_times_with_outputs(graph, op_times, rows),
            tensors=tuple(
                Transfer(t.name, t.producer, t.consumers, float(t.bytes)) for t in tensors
            ),
            send=tuple(_transfer_costs(link, tensors, unsent) for link in rows),
            receive=tuple(_transfer_costs(link, tensors, set()) for link in rows),
            overheads=tuple(map(float, overheads)),
            sizes=tuple(float(op.weight_bytes) for op in graph.ops),
            memory=tuple(map(float, memory)),
            activations=True,
            flops=tuple(float(op.flops) for op in graph.ops),
            states=tuple(
                (state.input, bitset(ops))
                for state, ops in zip(graph.states, graph.ops_of_states, strict=True)
            ),
        )

    @staticmethod
    def of_runtimes(models: Mapping[str, CostModel]) -> CostModel:
        """One model of which each stage has the runtime that computes it fastest.

        ``models``: by name of the runtime, models that differ in times, overheads and groups.
        """
        runtimes = tuple(
            RuntimeCosts(name, model.times, model.overheads, model.groups)
            for name, model in models.items()
        )
        times, overheads = least_costs(runtimes)
        first = next(iter(models.values()))
        return replace(first, times=times, overheads=overheads, groups=(), runtimes=runtimes)

    def in_runtime(self, name: str) -> CostModel:
        """The costs where every stage has one runtime."""
        runtime = next(runtime for runtime in self.runtimes if runtime.name == name)
        return replace(
            self,
            times=runtime.times,
            overheads=runtime.overheads,
            groups=(*self.groups, *runtime.groups),
            runtimes=(),
        )

    def in_runtimes(self, names: Sequence[str]) -> CostModel:
        """The costs where the stage on device i has the runtime ``names[i]``, whatever it groups.

        An unknown name stands for the first runtime.
        """
        by_name = {runtime.name: runtime for runtime in reversed(self.runtimes)}
        chosen = [by_name.get(name, self.runtimes[0]) for name in names]
        return replace(
            self,
            times=tuple(of_device(r.times, d) for d, r in enumerate(chosen)),
            overheads=tuple(of_device(r.overheads, d) for d, r in enumerate(chosen)),
            runtimes=(),
        )

    @property
    def each_runtime(self) -> tuple[RuntimeCosts, ...]:
        """The costs of each runtime; those of the model itself where it names none."""
        return self.runtimes or (RuntimeCosts("", self.times, self.overheads),)

    @property
    def devices(self) -> int | None:
        """How many devices the tables distinguish; None where all are alike."""
        most = max(map(len, (self.times, self.send, self.receive, self.overheads, self.memory)))
        return most if most > 1 else None

    @cached_property
    def contraction(self) -> Contraction:
        """The groups of ops that a split keeps together, in a topological order."""
        groups = self.groups
        if self.runtimes:
            groups = common_groups(groups, (runtime.groups for runtime in self.runtimes))
        return contract(self.predecessors, groups)

    @cached_property
    def stateful(self) -> int:
        """Bitset of the ops that states bind: replicas of a stage with any hold whole streams."""
        return reduce(operator.or_, (ops for _, ops in self.states), 0)

    def has_state(self, ops: Iterable[int]) -> bool:
        """Whether a stage of these ops has a state."""
        return bool(bitset(ops) & self.stateful)

    @cached_property
    def index(self) -> dict[str | int, int]:
        """Op index by id; ids are names unless the model came from a graph file."""
        return {name: i for i, name in enumerate(self.ids)}

    def with_groups(self, groups: Iterable[Iterable[int]]) -> CostModel:
        """The same costs with more ops kept together."""
        return replace(self, groups=(*self.groups, *map(bitset, groups)))

    def without_states(self, names: Collection[str]) -> CostModel:
        """The same costs where some states bind no ops."""
        dropped = {ops for name, ops in self.states if name in names}

        def others(groups: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(ops for ops in groups if ops not in dropped)

        runtimes = tuple(replace(r, groups=others(r.groups)) for r in self.runtimes)
        return replace(self, groups=others(self.groups), runtimes=runtimes)

    def only_on(self, ops: Iterable[int], allowed: Collection[int], devices: int) -> CostModel:
        """The same costs on ``devices`` devices, of which only the ``allowed`` can run ``ops``."""
        restricted = set(ops)

        def limit(times: Rows) -> Rows:
            rows = []
            for d in range(devices):
                row = of_device(times, d)
                if d not in allowed:
                    row = tuple(math.inf if i in restricted else t for i, t in enumerate(row))
                rows.append(row)
            return tuple(rows)

        runtimes = tuple(replace(r, times=limit(r.times)) for r in self.runtimes)
        return replace(self, times=limit(self.times), runtimes=runtimes)

    def on_devices(self, order: Sequence[int], slowdowns: Sequence[int] = ()) -> CostModel:
        """The same costs with the devices in another order along the pipeline, or some of them.

        ``slowdowns``: how many times as long each of them takes.
        """
        if not slowdowns and (self.devices is None or (*order,) == (*range(self.devices),)):
            return self  # with all that is known of it
        factors = slowdowns or (1,) * len(order)
        # Equal devices that are slowed alike stay equal.
        alike = len(set(factors)) == 1

        def pick(table: tuple[_T, ...], slow: Callable[[_T, int], _T]) -> tuple[_T, ...]:
            if len(table) == 1 and alike:
                return (slow(table[0], factors[0]),)
            return tuple(slow(of_device(table, d), f) for d, f in zip(order, factors, strict=True))

        def slow_row(row: tuple[float, ...], factor: int) -> tuple[float, ...]:
            return row if factor == 1 else tuple(time * factor for time in row)

        def picked(costs: CostModel | RuntimeCosts) -> dict[str, Any]:
            overheads = pick(costs.overheads, operator.mul)
            return {"times": pick(costs.times, slow_row), "overheads": overheads}

        return replace(
            self,
            **picked(self),
            send=pick(self.send, slow_row),
            receive=pick(self.receive, slow_row),
            memory=pick(self.memory, lambda size, factor: size),
            runtimes=tuple(replace(runtime, **picked(runtime)) for runtime in self.runtimes),
        )


def _transfer_costs(
    link: Link, tensors: Iterable[Tensor], free: Collection[str]
) -> tuple[float, ...]:
    return tuple(0.0 if t.name in free else link.cost(t.bytes) for t in tensors)


def _times_with_outputs(
    graph: FusedGraph, op_times: Sequence[Sequence[float]], links: Sequence[Link]
) -> tuple[tuple[float, ...], ...]:
    """Op times with the sending of model outputs, which leave their stage in every split."""
    times = [list(map(float, row)) for row in op_times]
    # Without transfer costs the rows stay as they are.
    if any(link.cost(1) for link in links):
        devices = max(len(times), len(links))
        times = [list(of_device(times, d)) for d in range(devices)]
        for d, row in enumerate(times):
            for name in dict.fromkeys(graph.outputs):
                producer = graph.tensors[name].producer
                if producer is not None and producer < len(row):
                    row[producer] += of_device(links, d).cost(graph.tensors[name].bytes)
    return tuple(map(tuple, times))


def _fill_defaults(model: CostModel) -> None:
    """Give the tables that were left out their neutral values."""
    no_costs = (0.0,) * len(model.tensors)
    defaults: dict[str, tuple[object, object]] = {
        "sizes": ((), (0.0,) * len(model.names)),
        "flops": ((), (0.0,) * len(model.names)),
        "ids": ((), model.names),
        "send": (((),), (no_costs,)),
        "receive": (((),), (no_costs,)),
    }
    for name, (missing, default) in defaults.items():
        if getattr(model, name) == missing:
            object.__setattr__(model, name, default)


def _check_lengths(model: CostModel) -> None:
    n, t = len(model.names), len(model.tensors)
    tables = [("times", model.times, n), ("send", model.send, t), ("receive", model.receive, t)]
    tables += [(f"times in {r.name}", r.times, n) for r in model.runtimes]
    for table, rows, width in tables:
        for d, row in enumerate(rows):
            if len(row) != width:
                raise GraphError(f"{table} of device {d} has {len(row)} values; give {width}")
    lengths = {len(rows) for _, rows, _ in tables} | {len(model.overheads), len(model.memory)}
    for runtime in model.runtimes:
        lengths |= {len(runtime.times), len(runtime.overheads)}
    lengths.discard(1)
    if len(lengths) > 1 or 0 in lengths:
        raise ConfigError(
            f"the cost tables are for {sorted(lengths)} devices; "
            "give one row, or one per device, in each"
        )


def _check_values(model: CostModel) -> None:
    tensors = [t.name for t in model.tensors]
    rows: list[tuple[str, Sequence[object], Sequence[float]]] = []
    every_table: tuple[CostModel | RuntimeCosts, ...] = (model, *model.runtimes)
    rows += [("time", model.names, row) for table in every_table for row in table.times]
    rows += [("transfer cost", tensors, row) for row in (*model.send, *model.receive)]
    rows.append(("size", model.names, model.sizes))
    rows += [("overhead", range(len(t.overheads)), t.overheads) for t in every_table]
    rows.append(("memory", range(len(model.memory)), model.memory))
    for quantity, names, values in rows:
        may_be_infinite = quantity in ("time", "memory")
        for name, value in zip(names, values, strict=True):
            # Written so that NaN is refused as well.
            if not value >= 0 or (value == math.inf and not may_be_infinite):
                raise GraphError(
                    f"the {quantity} of '{name}' is {value}; give a number that is not negative"
                )
    least = (model.times, model.overheads)
    if model.runtimes and least_costs(model.runtimes) != least:
        raise GraphError("the times are not the least of the runtimes; use CostModel.of_runtimes")


def _check_order(model: CostModel) -> None:
    for i, producers in enumerate(model.predecessors):
        if producers >> i:
            later = next(members(producers >> i)) + i
            raise GraphError(
                f"op '{model.names[i]}' reads from '{model.names[later]}', which comes later; "
                "order the ops"
            )
