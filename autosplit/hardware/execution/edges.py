"""What travels through a pipeline: items and their streams, along the edges of its wiring."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from autosplit.errors import StageError, line_of
from autosplit.hardware.execution.wiring import Wiring

Stream = Hashable  # any value by which the caller names a stream


class Closed(StageError):
    """The pipeline is closed, and its items are discarded; the text says why."""


class ItemFailed(StageError):
    """A stage failed on an item, ``place`` says which, by ``cause``; the pipeline goes on.

    ``is_certain``: its replica computed an item again that it had computed before.
    """

    def __init__(self, place: str, cause: BaseException, is_certain: bool) -> None:
        super().__init__(f"{place} on this item: {type(cause).__name__}: {line_of(cause)}")
        self.place, self.cause, self.is_certain = place, cause, is_certain


CALLER = -1


class Ticket(Future[Mapping[str, Any]]):
    """One item inside a pipeline. Its result are the outputs by name, once every stage ran it.

    ``inputs`` are those of each stage, which waits for so many ``missing`` senders. ``uncomputed``:
    the stages that have not run it. Where the model has states, it is a ``step`` of its stream, and
    gets those of the one ``before``. ``started`` is when its first stage began, in seconds, and
    ``items`` the items in it. One that ``is_alone`` is the only one of its caller.
    """

    items = 1
    started: float | None = None
    is_alone = False
    step: StreamStep | None = None
    before: StreamStep | None = None

    def __init__(
        self, number: int, inputs: list[list[Any]], missing: list[int], outputs: dict[str, Any]
    ) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # its stages would go on
        self.number = number
        self.inputs = inputs
        self.missing = missing
        self.outputs = outputs
        self.uncomputed = set(range(len(inputs)))
        self._failure: StageError | None = None

    @property
    def failure(self) -> StageError | None:
        """Of the stage that failed on it, or on an item before it in its stream.

        No stage computes it from then on.
        """
        if self._failure is None and self.step and self.step.failures:
            number, earlier = min(self.step.failures, key=itemgetter(0))
            if number < self.number:
                self._failure = StageError(f"its stream is lost, reset it: {earlier}")
        return self._failure

    def fail(self, failure: ItemFailed) -> None:
        """Let it, and later items of its stream, have a failure."""
        self._failure = failure
        if self.step:
            self.step.failures.append((self.number, failure))


@dataclass(eq=False)
class StreamStep:
    """What an item of a stream left in each stage, or what a stream begins with.

    Each stage with states has the stream in one of its ``lanes``. ``uncomputed``: the stages that
    have not run the item; the next one, ``following``, waits for them. States that are
    ``is_shared`` are copied for it, as its stage may overwrite what it gets. ``failures`` are those
    of the stream, each with the number of its item.
    """

    lanes: Mapping[int, int]
    left: dict[int, list[Any]]
    uncomputed: set[int] = field(default_factory=set)
    following: Ticket | None = None
    is_shared: bool = False
    failures: list[tuple[int, ItemFailed]] = field(default_factory=list)


@dataclass(frozen=True)
class Edges:
    """Where the tensors of each sender go, a stage or CALLER.

    ``readers`` are the stages that read from a sender, each with pairs of the position of a value
    at the sender and among the inputs of the reader. ``senders`` counts those that each stage reads
    from, ``outputs`` are the model outputs that each stage computes, with their position.
    """

    readers: Mapping[int, Mapping[int, Sequence[tuple[int, int]]]]
    senders: tuple[int, ...]
    outputs: tuple[tuple[tuple[str, int], ...], ...]


def connect(wiring: Wiring) -> Edges:
    """The edges of a wiring; the caller sends what a stage without inputs begins an item by."""
    stages = range(len(wiring.stages))
    positions = [{port.name: i for i, port in enumerate(s.inputs)} for s in wiring.stages]
    input_index = {port.name: i for i, port in enumerate(wiring.inputs)}
    readers: dict[int, dict[int, list[tuple[int, int]]]] = {s: {} for s in (CALLER, *stages)}
    outputs: list[list[tuple[str, int]]] = [[] for _ in stages]
    for connection in wiring.connections:
        if isinstance(connection.source, str):
            sender, index = CALLER, input_index[connection.source]
        else:
            sender, index = connection.source
            outputs[sender] += [(name, index) for name in connection.outputs]
        for reader in connection.stages:
            pair = index, positions[reader][connection.tensor]
            readers[sender].setdefault(reader, []).append(pair)
    for stage in stages:
        if not any(stage in of_sender for of_sender in readers.values()):
            readers[CALLER][stage] = []
    senders = (sum(stage in of_sender for of_sender in readers.values()) for stage in stages)
    return Edges(readers, tuple(senders), tuple(map(tuple, outputs)))
