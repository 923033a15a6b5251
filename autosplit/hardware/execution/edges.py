"""The channels between the stages of a pipeline, as its wiring asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any

from autosplit.hardware.execution.channel import Channel
from autosplit.hardware.execution.wiring import Wiring

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
