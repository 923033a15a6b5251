"""The question to the planner, and the arrays that a search works on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import Contraction, bitset, members
from autosplit.deployment import MOST_DEVICES, Option, Row
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.costs import CostModel, disjoint

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Deadline = Callable[[], bool]

SAME = 1e-9  # relative difference below which two sums of costs count as equal
MOST_STATES = 2000  # ways to use none, some or all devices of each kind
MOST_MIXES = 200_000  # steps of replicas on devices of several kinds


class OutOfTime(Exception):
    """The deadline passed; caught in the planner. ``bound``: the proven bound of the period."""

    bound = 0.0


@dataclass(frozen=True)
class Question:
    """Devices, and the deployments on them that are asked for.

    ``devices``: how many there are of each kind. With ``order``, the kinds of the devices along the
    pipeline, stage i runs on device i; without it any stage may have any device. ``stages``: the
    number of stages with ops, None for any up to the number of devices. ``replicas``: whether a
    stage may have several replicas, also on devices of several kinds. ``cores``: whether devices
    are cores; then a replica takes as many as its row has threads, and all replicas of a stage are
    on cores of one kind. ``keep_together``: sets of ops that stay on one stage.
    """

    devices: Mapping[str, int]
    order: tuple[str, ...] = ()
    stages: int | None = None
    replicas: bool = False
    cores: bool = False
    keep_together: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of_split(stages: int, kind: str = "", *, empty: bool = False) -> Question:
        """Splits into ``stages`` stages on equal devices; with ``empty`` into at most so many."""
        return Question({kind: stages}, stages=None if empty else stages)

    @staticmethod
    def along(kinds: Sequence[str], *, empty: bool = False) -> Question:
        """A stage on each device in their order; with ``empty`` devices may stay unused."""
        if len(set(kinds)) == 1:
            return Question.of_split(len(kinds), kinds[0], empty=empty)
        counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
        return Question(counts, tuple(kinds), None if empty else len(kinds))

    @staticmethod
    def of_cores(cores: Mapping[str, int] | int, kind: str = "") -> Question:
        """Deployments on cores, of one kind or of several."""
        counts = cores if isinstance(cores, Mapping) else {kind: cores}
        return Question(counts, replicas=True, cores=True)

    @property
    def noun(self) -> str:
        """The word for the devices in messages."""
        return "cores" if self.cores else "devices"

    @property
    def count(self) -> int:
        """How many devices there are."""
        return sum(self.devices.values())

    def takes(self, row: Row) -> int:
        """How many devices a replica takes in a row."""
        return row.threads if self.cores else 1


@dataclass(frozen=True)
class Step:
    """A next stage of a path: its ``replicas`` in each of ``rows``, and the ``state`` after it.

    A state is an index of ``Problem.states``. A step without rows leaves a device unused.
    """

    rows: tuple[int, ...]
    replicas: tuple[int, ...]
    state: int


@dataclass(frozen=True)
class Problem:
    """A question with costs contracted to n groups and t tensors between groups.

    ``rows`` are those of one batch that some stage may have. ``times``: rows x n, infinite where
    unsupported; ``overheads``: rows; ``together``: per row bitsets of the groups that this row
    cannot separate; ``kind``: per row the index of its kind; ``send``, ``receive``: kinds x t;
    ``memory``: kinds; ``sizes``: n bytes; ``bytes``: t; ``producer``: group or -1 for a model
    input; ``consumers``: bitsets of groups; ``stateful``: which groups have a state.
    """

    costs: CostModel
    question: Question
    contraction: Contraction
    rows: tuple[Row, ...]
    times: Array
    overheads: Array
    together: tuple[tuple[int, ...], ...]
    kind: Index
    send: Array
    receive: Array
    memory: Array
    sizes: Array
    bytes: Array
    producer: NDArray[np.intp]
    consumers: tuple[int, ...]
    stateful: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.contraction.groups)

    @property
    def batch(self) -> int:
        """How many items are computed at once."""
        return self.rows[0].batch

    @cached_property
    def largest_memory(self) -> float:
        """An upper bound of the memory of a stage in bytes."""
        transferred = 2 * self.batch * self.bytes.sum() if self.costs.activations else 0.0
        return float(self.sizes.sum() + transferred)

    @cached_property
    def readers(self) -> Index:
        """The number of consumers of each tensor."""
        return np.array([c.bit_count() for c in self.consumers], dtype=np.intp)

    @cached_property
    def takes(self) -> tuple[int, ...]:
        """How many devices a replica takes in each row."""
        return tuple(map(self.question.takes, self.rows))

    @cached_property
    def states(self) -> list[tuple[int, ...]]:
        """All numbers of devices taken, by kind or along the order; steps lead to later states."""
        if self.question.order:
            return [(place,) for place in range(len(self.question.order) + 1)]
        counts = self.question.devices.values()
        if len(counts) > 1 and math.prod(count + 1 for count in counts) > MOST_STATES:
            raise ConfigError(
                f"{' + '.join(map(str, counts))} {self.question.noun} of {len(counts)} kinds are "
                f"used in more than {MOST_STATES} ways; use fewer {self.question.noun} or kinds"
            )
        return list(product(*(range(count + 1) for count in counts)))

    @cached_property
    def targets(self) -> list[int]:
        """The states in which all ops may be deployed, those of fewest devices first."""
        if self.question.order:
            return [len(self.question.order)]
        number = self.question.stages
        chosen = [s for s, used in enumerate(self.states) if number is None or sum(used) == number]
        return sorted(chosen, key=lambda s: sum(self.states[s]))

    def is_last(self, state: int) -> bool:
        """Whether no stage may follow: as many devices are taken as stages are asked for."""
        number = None if self.question.order else self.question.stages
        return number is not None and sum(self.states[state]) >= number

    def steps(self, state: int) -> Iterator[Step]:
        """The steps that may follow once the devices of a state are taken."""
        order = self.question.order
        if order:
            if state == len(order):
                return
            for place, row in enumerate(self.rows):
                if row.kind == order[state]:
                    yield Step((place,), (1,), state + 1)
            if self.question.stages is None:
                yield Step((), (), state + 1)
            return
        used = self.states[state]
        left = [most - n for most, n in zip(self.question.devices.values(), used, strict=True)]
        for place in range(len(self.rows)):
            axis, take = self._axis[place], self.takes[place]
            most = left[axis] // take
            for count in range(1, (most if self.question.replicas else min(most, 1)) + 1):
                yield Step((place,), (count,), state + count * take * self._strides[axis])
        for rows, replicas in self.mixes or ():
            pairs = list(zip(rows, replicas, strict=True))
            if all(count <= left[self._axis[row]] for row, count in pairs):
                taken = sum(count * self._strides[self._axis[row]] for row, count in pairs)
                yield Step(rows, replicas, state + taken)

    @cached_property
    def _axis(self) -> list[int]:
        """The place of each row's kind among the devices."""
        kinds = list(self.question.devices)
        return [kinds.index(row.kind) for row in self.rows]

    @cached_property
    def _strides(self) -> list[int]:
        """By how much the index of a state grows with a device of each kind."""
        counts = list(self.question.devices.values())
        return [math.prod(count + 1 for count in counts[k + 1 :]) for k in range(len(counts))]

    @cached_property
    def mixes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
        """The rows and replicas of stages on unlike devices, in one runtime; None if too many."""
        if not self.question.replicas or self.question.cores or len(self.question.devices) < 2:
            return []
        mixes = []
        for runtime in dict.fromkeys(row.runtime for row in self.rows):
            of_runtime = [r for r, row in enumerate(self.rows) if row.runtime == runtime]
            by_kind = {self._axis[row]: row for row in of_runtime}
            counts = [range(most + 1) for most in self.question.devices.values()]
            for numbers in product(*counts):
                kinds = [kind for kind, number in enumerate(numbers) if number]
                if len(kinds) > 1 and by_kind.keys() >= set(kinds):
                    rows = tuple(by_kind[kind] for kind in kinds)
                    mixes.append((rows, tuple(numbers[kind] for kind in kinds)))
        return mixes if len(mixes) * len(self.states) <= MOST_MIXES else None

    def options(self, step: Step, has_state: bool) -> tuple[Option, ...]:
        """The options of a stage, without replicas that do not serve its streams faster."""
        counts = list(step.replicas)
        if has_state and len(counts) == 1:
            counts[0] = useful_replicas(counts[0], self.costs.streams)
        pairs = zip(step.rows, counts, strict=True)
        return tuple(Option(self.rows[row], count) for row, count in pairs)


def useful_replicas(replicas: int, streams: int) -> int:
    """The fewest replicas of a stage with states that are as fast as ``replicas`` of them."""
    return -(-streams // -(-streams // replicas))


def problems(costs: CostModel, question: Question) -> list[Problem]:
    """The contracted problem for each batch of the cost table.

    Raises:
        ConfigError: A number is out of range, or the costs are of other devices.
        Infeasible: Too few groups are left for the stages.
    """
    _check(costs, question)
    if question.keep_together:
        costs = costs.with_groups(question.keep_together)
    if not costs.names:
        raise Infeasible(f"model '{costs.name}' has no op; there is nothing to plan")
    usable = [
        costs.row_index[row]
        for row in costs.row_index
        if question.takes(row) <= question.devices.get(row.kind, 0)
    ]
    if not usable:
        raise Infeasible(f"no deployment of '{costs.name}' has so few cores; give more")
    batches = dict.fromkeys(costs.rows[n].row.batch for n in usable)
    return [
        _problem(costs, question, [n for n in usable if costs.rows[n].row.batch == batch])
        for batch in batches
    ]


def _check(costs: CostModel, question: Question) -> None:
    if question.stages is not None and question.stages < 1:
        raise ConfigError(f"number of stages is {question.stages}; give at least 1")
    if not question.devices or not all(1 <= n <= MOST_DEVICES for n in question.devices.values()):
        raise ConfigError(
            f"number of {question.noun} is {', '.join(map(str, question.devices.values())) or 0}; "
            f"give 1 to {MOST_DEVICES}"
        )
    unknown = question.devices.keys() - costs.kind_index.keys()
    if unknown:
        raise ConfigError(
            f"'{costs.name}' has no costs of devices '{min(unknown)}'; "
            f"known are {', '.join(costs.kind_index)}"
        )
    if question.stages is not None and question.stages > question.count:
        raise ConfigError(
            f"{question.stages} stages on {question.count} devices; give one stage per device"
        )


def _problem(costs: CostModel, question: Question, numbers: Sequence[int]) -> Problem:
    contraction = costs.contraction
    group_of, group_ops = contraction.group_of, [list(members(g)) for g in contraction.groups]
    tensors = _tensors_between_groups(costs, group_of)
    merged = list(tensors.values())
    rows = [costs.rows[n] for n in numbers]
    together = []
    for row in rows:
        # Not contracted, even on a cycle: a stage between such groups has none of their ops.
        sets = disjoint(bitset(group_of[op] for op in members(ops)) for ops in row.groups)
        together.append(tuple(groups for groups in sets if groups.bit_count() > 1))
    producer = np.array([producer for producer, _ in tensors], dtype=np.intp)
    free = (0.0,) * len(costs.tensors)
    return Problem(
        costs=costs,
        question=question,
        contraction=contraction,
        rows=tuple(row.row for row in rows),
        times=_summed([row.times for row in rows], group_ops),
        overheads=np.array([row.overhead for row in rows]),
        together=tuple(together),
        kind=np.array([costs.kind_index[row.row.kind] for row in rows], dtype=np.intp),
        # No stage sends a model input.
        send=_summed([kind.send or free for kind in costs.kinds], merged) * (producer >= 0),
        receive=_summed([kind.receive or free for kind in costs.kinds], merged),
        memory=np.array([kind.memory for kind in costs.kinds]),
        sizes=_summed([costs.sizes], group_ops)[0],
        bytes=_summed([costs.held_bytes], merged)[0],
        producer=producer,
        consumers=tuple(consumers for _, consumers in tensors),
        stateful=np.array([bool(ops & costs.stateful) for ops in contraction.groups]),
    )


def _tensors_between_groups(
    costs: CostModel, group_of: Sequence[int]
) -> dict[tuple[int, int], list[int]]:
    """The indices of tensors between groups, by (producer, consumers).

    Tensors with the same producer and consumers always cross the same cuts, so they are merged.
    """
    merged: dict[tuple[int, int], list[int]] = {}
    for t, tensor in enumerate(costs.tensors):
        producer = -1 if tensor.producer is None else group_of[tensor.producer]
        consumers = bitset({group_of[c] for c in tensor.consumers} - {producer})
        if consumers:
            merged.setdefault((producer, consumers), []).append(t)
    return merged


def _summed(table: Sequence[Sequence[float]], merged: Sequence[Sequence[int]]) -> Array:
    """The sums of the columns of a table over each list of column indices in ``merged``."""
    if not merged:
        return np.zeros((len(table), 0))
    flat = np.fromiter(chain.from_iterable(merged), dtype=np.intp)
    starts = np.cumsum([0, *map(len, merged)])[:-1]
    values = np.array(table, dtype=np.float64).reshape(len(table), -1)
    sums: Array = np.add.reduceat(values[:, flat], starts, axis=1)
    return sums
