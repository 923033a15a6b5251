"""What travels through a pipeline: tickets, and the edges that its wiring asks for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from autosplit.hardware.execution.wiring import Wiring

Stream = Hashable  # any value by which the caller names a stream


class Closed(Exception):
    """The pipeline is closed, and its items are discarded."""


class ItemFailed(Exception):
    """A stage failed on an item, ``place`` says which, by ``cause``; the pipeline goes on."""

    def __init__(self, place: str, cause: BaseException) -> None:
        super().__init__(place)
        self.place, self.cause = place, cause


CALLER = -1


class Ticket(Future[Mapping[str, Any]]):
    """One item inside a pipeline. Its result are the outputs by name, once every stage ran it.

    ``inputs`` are those of each stage, of which ``missing`` edges have not delivered yet.
    ``stream`` is the stream of the item; with ``initial`` its states begin anew at these values.
    ``failure``: of the stage that failed on it, after which no stage computes it.
    """

    failure: ItemFailed | None = None

    def __init__(
        self,
        number: int,
        inputs: list[list[Any]],
        missing: list[int],
        outputs: dict[str, Any],
        stream: Stream,
        initial: Mapping[str, Any] | None,
    ) -> None:
        super().__init__()
        self.number = number
        self.stream = stream
        self.initial = initial
        self.inputs = inputs
        self.missing = missing
        self.outputs = outputs
        self.unfinished = len(inputs)


@dataclass(frozen=True)
class Edge:
    """The values that stage ``reader`` takes from one stage, or from the caller.

    ``routes`` pairs the position of each value at the sender with that among the reader's inputs.
    """

    reader: int
    routes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Edges:
    """Edges by the stage, or CALLER, that sends.

    ``senders`` are the stages that each stage reads from, ``incoming`` the number of its edges with
    that of the caller. ``outputs`` are, for each stage, the model outputs it computes, with their
    position.
    """

    out_of: Mapping[int, tuple[Edge, ...]]
    senders: tuple[tuple[int, ...], ...]
    incoming: tuple[int, ...]
    outputs: tuple[tuple[tuple[str, int], ...], ...]


def connect(wiring: Wiring) -> Edges:
    """One edge for each pair of stages that share a tensor, and from the caller to the inputs."""
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
    edges: dict[int, list[Edge]] = {stage: [] for stage in (CALLER, *stages)}
    for (sender, reader), pairs in routes.items():
        edges[sender].append(Edge(reader, tuple(pairs)))
    return Edges(
        {sender: tuple(leaving) for sender, leaving in edges.items()},
        tuple(tuple(s for s, r in routes if r == reader and s != CALLER) for reader in stages),
        tuple(sum(r == reader for _, r in routes) for reader in stages),
        tuple(map(tuple, outputs)),
    )
