"""The channels between the stages of a pipeline, as its wiring asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, Lock
from typing import Any, Generic, TypeVar

from autosplit.hardware.execution.wiring import Wiring

T = TypeVar("T")


class Closed(Exception):
    """The channel is closed, and its messages are discarded."""


class Channel(Generic[T]):
    """Every method but ``close`` raises Closed once the channel is closed.

    The standard queue can be shut down only from Python 3.13 on.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[T] = deque()
        self._changed = Condition()
        self._is_closed = False

    def put(self, message: T) -> None:
        """Append a message; waits while the channel is full."""
        with self._changed:
            self._wait_for_room()
            self._messages.append(message)
            self._changed.notify_all()

    def take(self) -> T:
        """Remove the oldest message; waits while there is none."""
        with self._changed:
            self._wait_for_message()
            self._changed.notify_all()  # a sender may wait for the room
            return self._messages.popleft()

    def peek(self) -> T:
        """The oldest message, left in place; waits while there is none."""
        with self._changed:
            self._wait_for_message()
            return self._messages[0]

    def wait_for_room(self) -> None:
        """Wait while the channel is full."""
        with self._changed:
            self._wait_for_room()

    def close(self) -> None:
        """Discard the messages and wake everybody who waits. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._messages.clear()
            self._changed.notify_all()

    def _wait_for_room(self) -> None:
        self._changed.wait_for(lambda: self._is_closed or len(self._messages) < self._capacity)
        if self._is_closed:
            raise Closed

    def _wait_for_message(self) -> None:
        self._changed.wait_for(lambda: self._is_closed or bool(self._messages))
        if self._is_closed:
            raise Closed


CALLER = -1


class Ticket(Future[Mapping[str, Any]]):
    """One item inside a pipeline. Its result are the outputs by name, once every stage ran it."""

    def __init__(self, number: int, stages: int, outputs: dict[str, Any]) -> None:
        super().__init__()
        self.number = number
        self._missing = stages
        self._outputs = outputs
        self._lock = Lock()

    def deliver(self, outputs: Mapping[str, Any]) -> bool:
        """Add what one stage computed; whether it was the last stage."""
        with self._lock:
            self._outputs.update(outputs)
            self._missing -= 1
            return self._missing == 0

    def complete(self) -> None:
        """Hand the outputs to whoever waits for them."""
        self.set_result(self._outputs)


@dataclass(frozen=True)
class Edge:
    """Messages from one stage, or the caller, to another.

    ``senders`` are the positions of the values among those of the sender, ``readers`` their
    positions among the inputs of the reader.
    """

    channel: Channel[tuple[Ticket, Sequence[Any]]]
    senders: tuple[int, ...]
    readers: tuple[int, ...]

    def send(self, ticket: Ticket, values: Sequence[Any]) -> None:
        """Pass on the values that the reader needs; waits while the channel is full."""
        self.channel.put((ticket, [values[i] for i in self.senders]))


@dataclass(frozen=True)
class Edges:
    """Edges by the stage that reads them, and by the stage (or CALLER) that writes to them.

    ``outputs`` are, for each stage, the model outputs it computes, with their position.
    """

    into: tuple[tuple[Edge, ...], ...]
    out_of: Mapping[int, tuple[Edge, ...]]
    outputs: tuple[tuple[tuple[str, int], ...], ...]

    def close(self) -> None:
        """Close every channel."""
        for edges in self.into:
            for edge in edges:
                edge.channel.close()


def connect(wiring: Wiring, depth: int, capacity: int) -> Edges:
    """One edge for each pair of stages that share a tensor, and from the caller to the inputs.

    The caller's edges hold ``capacity`` messages. The others hold ``depth`` for each stage they
    span: a stage that is skipped has as many items inside, so a skip never holds them back.
    """
    stages = range(len(wiring.stages))
    input_index = {port.name: i for i, port in enumerate(wiring.inputs)}
    positions = [{port.name: i for i, port in enumerate(s.inputs)} for s in wiring.stages]
    routes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    outputs: list[list[tuple[str, int]]] = [[] for _ in stages]
    for connection in wiring.connections:
        if isinstance(connection.source, str):
            sender, index = CALLER, input_index[connection.source]
        else:
            sender, index = connection.source
            outputs[sender] += [(name, index) for name in connection.outputs]
        for reader in connection.stages:
            position = positions[reader][connection.tensor]
            routes.setdefault((sender, reader), []).append((index, position))
    for reader in stages:
        # A stage that reads nothing still has to know when to run.
        if all(target != reader for _, target in routes):
            routes[CALLER, reader] = []
    edges = {}
    for (sender, reader), pairs in routes.items():
        size = capacity if sender == CALLER else depth * (reader - sender)
        senders, readers = tuple(i for i, _ in pairs), tuple(p for _, p in pairs)
        edges[sender, reader] = Edge(Channel(size), senders, readers)
    return Edges(
        tuple(tuple(e for (_, r), e in edges.items() if r == reader) for reader in stages),
        {s: tuple(e for (t, _), e in edges.items() if t == s) for s in (CALLER, *stages)},
        tuple(map(tuple, outputs)),
    )
