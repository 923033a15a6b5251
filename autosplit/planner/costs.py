"""The cost model: the load of a stage in each row of a cost table.

A row of the table is a kind of device, a runtime, a number of threads and a batch. In row r, whose
devices are of kind k, the load of a stage S is, for each item,
    overhead[r] + sum of times[r][op] over the ops of S
    + receive[k][t] once for each tensor t that S reads and does not make
    + send[k][t] once for each tensor t that S makes and a later stage reads.
It is infinite where the row cannot compute an op of S, or where S holds only a part of a group that
the row cannot separate. The memory of a replica is the sum of ``sizes`` over its ops; with
``activations``, the bytes of the tensors that it receives and sends are added for each item of a
batch. Times are in ms for measured nets and in any one unit for graph files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from autosplit.cuts import Contraction, bitset, contract, members
from autosplit.deployment import Row
from autosplit.errors import ConfigError, GraphError
from autosplit.lazy import cached_property


@dataclass(frozen=True)
class Transfer:
    """A tensor as the planner sees it.

    ``producer`` is None for a model input; ``consumers`` are op indices.
    """

    name: str
    producer: int | None
    consumers: tuple[int, ...]
    bytes: float = 0.0


@dataclass(frozen=True)
class Link:
    """The cost of moving a tensor into or out of a device, in the model's unit of time.

    ``bandwidth`` is in bytes per unit of time, per ms for measured nets; infinite where moving
    costs nothing.
    """

    bandwidth: float = math.inf
    latency: float = 0.0

    def cost(self, size: float) -> float:
        """The time to move ``size`` bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Kind:
    """A kind of equal devices: their times to send and to receive each tensor, empty for zeros.

    ``memory``: the most bytes that a replica may take there, infinite for no limit.
    """

    name: str = ""
    send: tuple[float, ...] = ()
    receive: tuple[float, ...] = ()
    memory: float = math.inf


@dataclass(frozen=True)
class RowCosts:
    """A row of the cost table: the time of each op for an item, infinite if it cannot run there.

    ``groups``: bitsets of ops that the runtime cannot separate. A stage that holds only a part of a
    group cannot be computed in this row.
    """

    row: Row
    times: tuple[float, ...]
    overhead: float = 0.0
    groups: tuple[int, ...] = ()

    def separated_by(self, ops: int) -> bool:
        """Whether a stage of these ops holds only a part of some group."""
        return any(0 != group & ops != group for group in self.groups)


@dataclass(frozen=True)
class CostModel:
    """Costs of ops and tensors.

    ``names``: op names in a topological order; ``ids``: the user's names for them (node ids of a
    graph file, else names); ``predecessors``: bitset of producers per op; ``rows``: the cost table;
    ``kinds``: the devices of its rows, by name; ``sizes``: bytes of weights per op; ``groups``:
    bitsets of ops that stay on one stage in every row; ``flops`` per op, 0 where unknown.
    ``states``: the name of each state, and the one of ``groups`` that it binds to one stage;
    ``streams``: the number of streams that have these states, whose items come in turn.

    Raises:
        GraphError: A cost is negative or NaN, a table has a wrong length, or ops are out of order.
        ConfigError: There is no row, or one of an unknown kind.
    """

    name: str
    names: tuple[str, ...]
    predecessors: tuple[int, ...]
    rows: tuple[RowCosts, ...]
    kinds: tuple[Kind, ...] = (Kind(),)
    tensors: tuple[Transfer, ...] = ()
    sizes: tuple[float, ...] = ()
    activations: bool = False
    groups: tuple[int, ...] = ()
    flops: tuple[float, ...] = ()
    ids: tuple[str | int, ...] = field(default=())
    states: tuple[tuple[str, int], ...] = ()
    streams: int = 1

    def __post_init__(self) -> None:
        _fill_defaults(self)
        _check(self)

    @cached_property
    def row_index(self) -> Mapping[Row, int]:
        """The place of each row in the table."""
        return {costs.row: place for place, costs in enumerate(self.rows)}

    @cached_property
    def kind_index(self) -> Mapping[str, int]:
        """The place of each kind of device."""
        return {kind.name: place for place, kind in enumerate(self.kinds)}

    def kind_of(self, row: Row) -> Kind:
        """The kind of device of a row."""
        return self.kinds[self.kind_index[row.kind]]

    @cached_property
    def contraction(self) -> Contraction:
        """The groups of ops that no row can separate, in a topological order."""
        every_set = dict.fromkeys(costs.groups for costs in self.rows)
        return contract(self.predecessors, common_groups(self.groups, every_set))

    @cached_property
    def stateful(self) -> int:
        """Bitset of the ops that states bind; a replica with any of them serves whole streams."""
        return reduce(or_, (ops for _, ops in self.states), 0)

    def has_state(self, ops: Iterable[int]) -> bool:
        """Whether a stage of these ops has a state."""
        return bool(bitset(ops) & self.stateful)

    @cached_property
    def held_bytes(self) -> tuple[float, ...]:
        """The most bytes that a replica holds of each tensor: a state once for each stream."""
        states = {name for name, _ in self.states}
        return tuple(t.bytes * (self.streams if t.name in states else 1) for t in self.tensors)

    @cached_property
    def index(self) -> Mapping[str | int, int]:
        """Op index by id."""
        return {name: i for i, name in enumerate(self.ids)}

    @cached_property
    def alike(self) -> Mapping[str, str]:
        """For each kind of device the first kind that has the same costs in every row."""
        first: dict[object, str] = {}
        names = {}
        for kind in self.kinds:
            rows = [costs for costs in self.rows if costs.row.kind == kind.name]
            unnamed = [replace(costs, row=replace(costs.row, kind="")) for costs in rows]
            costs = replace(kind, name=""), tuple(unnamed)
            names[kind.name] = first.setdefault(costs, kind.name)
        return names

    def with_memory(self, limit: float) -> CostModel:
        """The same costs with a memory limit in bytes for a replica on every kind of device."""
        return replace(self, kinds=tuple(replace(kind, memory=limit) for kind in self.kinds))

    def with_groups(self, groups: Iterable[Iterable[int]]) -> CostModel:
        """The same costs with more ops kept together."""
        return replace(self, groups=(*self.groups, *map(bitset, groups)))

    def without_states(self, names: Collection[str]) -> CostModel:
        """The same costs without the groups that the states of these names bind."""
        dropped = {ops for name, ops in self.states if name in names}
        groups = tuple(ops for ops in self.groups if ops not in dropped)
        of_rows = (tuple(ops for ops in row.groups if ops not in dropped) for row in self.rows)
        rows = tuple(replace(row, groups=ops) for row, ops in zip(self.rows, of_rows, strict=True))
        return replace(self, rows=rows, groups=groups)


def disjoint(sets: Iterable[int]) -> list[int]:
    """Merge bitsets that overlap, until all are disjoint."""
    unions: list[int] = []
    for union in sets:
        apart = []
        for other in unions:
            if other & union:
                union |= other
            else:
                apart.append(other)
        unions = [*apart, union]
    return unions


def common_groups(groups: Iterable[int], separate: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The sets of ops that stay together whichever of ``separate`` is added to ``groups``."""
    common: list[int] | None = None
    for sets in separate:
        together = disjoint((*groups, *sets))
        if common is not None:
            together = [a & b for a in common for b in together if (a & b).bit_count() > 1]
        common = together
    return tuple(common or ())


def _fill_defaults(model: CostModel) -> None:
    """Give the tables that were left out their neutral values."""
    zeros = (0.0,) * len(model.names)
    for name, default in (("sizes", zeros), ("flops", zeros), ("ids", model.names)):
        if getattr(model, name) == ():
            object.__setattr__(model, name, default)


def _check(model: CostModel) -> None:
    unknown = next((c.row.kind for c in model.rows if c.row.kind not in model.kind_index), None)
    if not model.rows or unknown is not None:
        raise ConfigError(
            f"the cost table of '{model.name}' has "
            + ("no row" if unknown is None else f"a row of unknown kind '{unknown}'")
            + "; give one for each kind of device"
        )
    tensors = [t.name for t in model.tensors]
    for costs in model.rows:
        _check_values("time", model.names, costs.times, may_be_infinite=True)
        _check_values("overhead", (str(costs.row),), (costs.overhead,))
    for kind in model.kinds:
        for table in filter(None, (kind.send, kind.receive)):
            _check_values("transfer cost", tensors, table)
        _check_values("memory", (kind.name,), (kind.memory,), may_be_infinite=True)
    _check_values("size", model.names, model.sizes)
    for i, producers in enumerate(model.predecessors):
        if producers >> i:
            later = next(members(producers >> i)) + i
            raise GraphError(
                f"op '{model.names[i]}' reads from '{model.names[later]}', which comes later; "
                "order the ops"
            )


def _check_values(
    quantity: str, names: Sequence[str], values: Sequence[float], may_be_infinite: bool = False
) -> None:
    if len(values) != len(names):
        raise GraphError(f"{len(values)} values of the {quantity} were given; give {len(names)}")
    for name, value in zip(names, values, strict=True):
        # Written so that NaN is refused as well.
        if not value >= 0 or (value == math.inf and not may_be_infinite):
            raise GraphError(
                f"the {quantity} of '{name}' is {value}; give a number that is not negative"
            )
