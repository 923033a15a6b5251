"""What travels through a pipeline: tickets, and the edges that its wiring asks for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from autosplit.errors import StageError
from autosplit.hardware.execution.wiring import Wiring

Stream = Hashable  # any value by which the caller names a stream


class Closed(StageError):
    """The pipeline is closed, and its items are discarded; the text says why."""


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
    ``failure``: of the stage that failed on it, after which no stage computes it. ``started`` is
    when its first stage began, in seconds, and ``items`` the items in it.
    """

    items = 1
    started: float | None = None
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
class Edges:
    """Where the tensors of each sender go, a stage or CALLER.

    ``readers`` are the stages that read from a sender, each with pairs of the position of a value
    at the sender and among the inputs of the reader. ``senders`` are those that each stage reads
    from, ``outputs`` the model outputs that each stage computes, with their position.
    """

    readers: Mapping[int, Mapping[int, Sequence[tuple[int, int]]]]
    senders: tuple[tuple[int, ...], ...]
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
    senders = (tuple(sender for sender in readers if stage in readers[sender]) for stage in stages)
    return Edges(readers, tuple(senders), tuple(map(tuple, outputs)))
