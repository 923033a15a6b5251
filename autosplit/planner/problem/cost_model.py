"""The cost model of a split: what a stage costs on each device.

The load of stage S on device d is
    overhead[d] + sum of times[d][op] over the ops of S
    + receive[d][t] once for each tensor t that S reads and does not make
    + send[d][t] once for each tensor t that S makes and a later stage reads.
Its memory is the sum of ``sizes`` over its ops, plus, where ``activations`` is set, the bytes of the tensors it
receives and of those it sends. An empty stage costs nothing. Times are in ms for measured nets and in any one unit for
graph files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from autosplit.cuts import Contraction, bitset, contract, members
from autosplit.errors import ConfigError, GraphError
from autosplit.graph import FusedGraph


@dataclass(frozen=True)
class Transfer:
    """A tensor as the planner sees it; ``producer`` is None for a model input. ``consumers`` are op indices."""

    name: str
    producer: int | None
    consumers: tuple[int, ...]
    bytes: float = 0.0


@dataclass(frozen=True)
class Link:
    """How a device moves a tensor in or out: ``latency`` plus bytes / ``bandwidth``, in the model's unit of time.

    ``bandwidth`` is in bytes per unit of time (per ms for measured nets); infinite where moving costs nothing.
    """

    bandwidth: float = math.inf
    latency: float = 0.0

    def cost(self, size: float) -> float:
        """The time to move ``size`` bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class CostModel:
    """Costs of ops and tensors. Each table holds one row for all devices, or one per device along the pipeline.

    ``names``: op names in a topological order; ``ids``: how the user calls them (node ids of a graph file, else names);
    ``predecessors``: bitset of producers per op; ``times``: infinite where a device cannot run the op; ``send`` and
    ``receive``: per device and tensor; ``memory``: bytes per device, infinite for no limit; ``groups``: bitsets of ops
    that stay on one stage; ``flops`` per op, 0 where unknown. Raises GraphError for a cost that is negative or NaN.
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

    def __post_init__(self) -> None:
        _fill(self)
        _check(self)

    @staticmethod
    def from_graph(
        graph: FusedGraph,
        op_times: Sequence[Sequence[float]],
        *,
        links: Link | Sequence[Link] | None = None,
        overheads: Sequence[float] = (0.0,),
        memory: Sequence[float] = (math.inf,),
    ) -> CostModel:
        """The model of measured costs: ``op_times`` in ms, one row for all devices or one per device along the
        pipeline.

        ``links``: how each device moves tensors (None: at no cost); model inputs are received by every stage that reads
        them, model outputs are sent by the stage that makes them. ``memory`` in bytes counts weights and the tensors
        at a stage's borders.
        """
        rows = (links,) if isinstance(links, Link) else tuple(links or (Link(),))
        moved = [t for t in graph.tensors.values() if t.consumers]
        times = [list(map(float, row)) for row in op_times]
        if any(
            link.cost(1) for link in rows
        ):  # an output leaves its stage in every split, so it is part of the op
            times = [
                list(times[d if len(times) > 1 else 0]) for d in range(max(len(times), len(rows)))
            ]
            for d, row in enumerate(times):
                link = rows[d if len(rows) > 1 else 0]
                for name in dict.fromkeys(graph.outputs):
                    if (maker := graph.tensors[name].producer) is not None and maker < len(row):
                        row[maker] += link.cost(graph.tensors[name].bytes)
        kept = set(graph.outputs)
        return CostModel(
            name=graph.name,
            names=tuple(op.name for op in graph.ops),
            predecessors=graph.predecessors,
            times=tuple(map(tuple, times)),
            tensors=tuple(Transfer(t.name, t.producer, t.consumers, float(t.bytes)) for t in moved),
            send=tuple(
                tuple(
                    0.0 if t.producer is None or t.name in kept else link.cost(t.bytes)
                    for t in moved
                )
                for link in rows
            ),
            receive=tuple(tuple(link.cost(t.bytes) for t in moved) for link in rows),
            overheads=tuple(map(float, overheads)),
            sizes=tuple(float(op.weight_bytes) for op in graph.ops),
            memory=tuple(map(float, memory)),
            activations=True,
            flops=tuple(float(op.flops) for op in graph.ops),
        )

    @property
    def devices(self) -> int | None:
        """How many devices the tables tell apart; None where all are alike."""
        most = max(map(len, (self.times, self.send, self.receive, self.overheads, self.memory)))
        return most if most > 1 else None

    @cached_property
    def contraction(self) -> Contraction:
        """The groups of ops that a split keeps together, in a topological order."""
        return contract(self.predecessors, self.groups)

    @cached_property
    def index(self) -> dict[str | int, int]:
        """Op index by id; ids are names unless the model came from a graph file."""
        return {name: i for i, name in enumerate(self.ids)}

    def with_groups(self, groups: Iterable[Iterable[int]]) -> CostModel:
        """The same costs with more ops kept together."""
        return replace(self, groups=(*self.groups, *map(bitset, groups)))

    def only_on(self, ops: Iterable[int], allowed: Collection[int], devices: int) -> CostModel:
        """The same costs on ``devices`` devices, of which only the ``allowed`` can run ``ops``."""
        kept = set(ops)
        rows = tuple(
            tuple(
                t if i not in kept or d in allowed else math.inf
                for i, t in enumerate(self.times[d % len(self.times)])
            )
            for d in range(devices)
        )
        return replace(self, times=rows)

    def on_devices(self, order: Sequence[int]) -> CostModel:
        """The same costs with the devices of the tables in another order along the pipeline, or only some of them."""

        def pick(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
            return tuple(rows[d] for d in order) if len(rows) > 1 else rows

        def pick_one(row: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(row[d] for d in order) if len(row) > 1 else row

        return replace(
            self,
            times=pick(self.times),
            send=pick(self.send),
            receive=pick(self.receive),
            overheads=pick_one(self.overheads),
            memory=pick_one(self.memory),
        )


def _fill(model: CostModel) -> None:
    """Give the tables that were left out their neutral values."""
    n, t = len(model.names), len(model.tensors)
    for name, value in (("sizes", (0.0,) * n), ("flops", (0.0,) * n), ("ids", model.names)):
        if not getattr(model, name):
            object.__setattr__(model, name, value)
    for name in ("send", "receive"):
        if getattr(model, name) == ((),):
            object.__setattr__(model, name, ((0.0,) * t,))


def _check(model: CostModel) -> None:
    n, t = len(model.names), len(model.tensors)
    for what, rows, width in (
        ("times", model.times, n),
        ("send", model.send, t),
        ("receive", model.receive, t),
    ):
        for d, row in enumerate(rows):
            if len(row) != width:
                raise GraphError(f"{what} of device {d} has {len(row)} values; give {width}")
    known: Sequence[object] = model.names
    for what, values, names in (
        *(("time", row, known) for row in model.times),
        *(
            ("transfer cost", row, [x.name for x in model.tensors])
            for row in (*model.send, *model.receive)
        ),
        ("size", model.sizes, known),
        ("overhead", model.overheads, range(len(model.overheads))),
        ("memory", model.memory, range(len(model.memory))),
    ):
        for name, value in zip(names, values, strict=True):
            if not value >= 0 or (value == math.inf and what not in ("time", "memory")):
                raise GraphError(
                    f"the {what} of '{name}' is {value}; give a number that is not negative"
                )
    counts = {
        len(x) for x in (model.times, model.send, model.receive, model.overheads, model.memory)
    } - {1}
    if len(counts) > 1 or 0 in counts:
        raise ConfigError(
            f"the cost tables tell {sorted(counts)} devices apart; give one row, or one per device, in each"
        )
    for i, producers in enumerate(model.predecessors):
        if producers >> i:
            late = next(members(producers >> i)) + i
            raise GraphError(
                f"op '{model.names[i]}' reads from '{model.names[late]}', which stands later; order the ops"
            )
