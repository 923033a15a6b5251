"""Batches: items are stacked along the first axis, computed together and separated again."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from autosplit.errors import ConfigError
from autosplit.hardware.execution.engine import Engine
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.streams import Closed, ItemFailed
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.arrays import aligned_empty, array_of

MOST = 4096  # the largest batch; the memory of a pipeline grows with it
Array = np.ndarray[Any, np.dtype[Any]]


def of_items(wiring: Wiring, batch: int) -> Wiring:
    """The wiring whose inputs and outputs have the shapes of single items; stages keep theirs."""
    if batch == 1:
        return wiring

    def of_item(port: Port) -> Port:
        return replace(port, shape=(port.shape[0] // batch, *port.shape[1:]))

    inputs, outputs = map(of_item, wiring.inputs), map(of_item, wiring.outputs)
    return replace(wiring, inputs=tuple(inputs), outputs=tuple(outputs))


def of_batch(ports: Sequence[Port], batch: int) -> tuple[Port, ...]:
    """The ports of single items, with the shapes of ``batch`` items at once."""
    if batch == 1:
        return tuple(ports)
    scalar = next((port.name for port in ports if not port.shape), None)
    if scalar is not None:
        raise ConfigError(f"'{scalar}' is a scalar, of which no batch is possible")
    return tuple(replace(p, shape=(batch * p.shape[0], *p.shape[1:])) for p in ports)


@dataclass
class _Batch:
    """Items that enter together, once the batch is full, or ``due`` while a replica is free."""

    inputs: list[Array]
    due: float
    places: list[Place] = field(default_factory=list)
    count: int = 0
    started: float | None = None

    def fail(self, error: BaseException) -> None:
        """Give an error to all items of the batch."""
        for place in self.places:
            place.set_exception(error)


class Place(Future[Mapping[str, Any]]):
    """An item's place in a batch, and the future of the item's outputs."""

    def __init__(self, batches: Batches, batch: _Batch) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # if it were cancelled, others would lose their outputs
        self._batches, self._batch = batches, batch
        self.number = len(batch.places)

    @property
    def started(self) -> float | None:
        """When the first stage of its batch began, in seconds; None until the batch is done."""
        return self._batch.started

    @property
    def items(self) -> int:
        """The number of items in its batch."""
        return self._batch.count

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the outputs. Without a delay, the batch enters now even if it is not full."""
        if self._batch.due == math.inf:
            self._batches.let_in(self._batch)
        together = {name: array_of(value) for name, value in super().result(timeout).items()}
        size = self._batches.size
        return {name: array[_rows(array, self.number, size)] for name, array in together.items()}


def _rows(whole: Array, number: int, size: int) -> slice:
    """The rows of an item in the array of a batch."""
    rows = len(whole) // size
    return slice(number * rows, (number + 1) * rows)


class Batches:
    """Collects the items of any number of threads into batches of ``size``.

    A batch enters the engine once it is complete. An incomplete one enters when a caller waits for
    one of its items or, with a delay, when its first item has waited for ``delay_s`` and a replica
    is free. It is then padded with copies of its last item, whose outputs are ignored.

    Where a stage fails on a batch, each of its items runs again alone, so that an item that cannot
    be computed does not fail the others. If all of them fail, and the stage has computed nothing
    before, its replica counts as broken and the engine stops.
    """

    def __init__(self, size: int, engine: Engine, replicas: int) -> None:
        self.size = size
        self.delay_s: float | None = None
        self._engine = engine
        self._replicas = replicas
        self._entering = threading.RLock()
        self._open: _Batch | None = None
        self._watcher: threading.Thread | None = None

    def add(self, arrays: Sequence[Array]) -> Place:
        """Take the arrays of an item's inputs, which are copied; may wait for room."""
        with self._entering:
            self._engine.start()  # here and not when a batch is due, so that errors reach callers
            if self._open and len(self._open.places) == self.size:
                self.let_in(self._open)  # an interrupt kept it from entering
            batch = self._open = self._open or self._empty(arrays)
            place = Place(self, batch)
            for whole, array in zip(batch.inputs, arrays, strict=True):
                whole[_rows(whole, place.number, self.size)] = array
            batch.places.append(place)
            if len(batch.places) == self.size or self._is_due():
                self.let_in(batch)
            elif place.number == 0 and self.delay_s is not None:
                if self._watcher is None:
                    self._watcher = threading.Thread(target=self._watch, daemon=True)
                    self._watcher.start()
                self._engine.notify()
        return place

    def let_in(self, batch: _Batch) -> None:
        """Let a batch enter the engine now, unless it has entered already."""
        with self._entering:
            if batch is not self._open:
                return
            batch.count = len(batch.places)
            for whole in batch.inputs:
                last = whole[_rows(whole, batch.count - 1, self.size)]
                for number in range(batch.count, self.size):
                    whole[_rows(whole, number, self.size)] = last
            try:
                ticket = self._engine.enter(batch.inputs, 0)
            except Closed:
                self.close()
                raise
            self._open = None  # an interrupt before this leaves it to the next caller
        ticket.add_done_callback(partial(self._leave, batch))

    def close(self) -> None:
        """Stop the engine, and discard the batch that is being collected."""
        if self._engine.is_forked:
            return
        self._engine.stop()  # first, so that nobody waits for room inside
        with self._entering:
            batch, self._open = self._open, None
        if batch is not None:
            batch.fail(self._engine.closed())

    def _empty(self, arrays: Sequence[Array]) -> _Batch:
        empty = [aligned_empty((self.size * len(a), *a.shape[1:]), a.dtype) for a in arrays]
        delay = math.inf if self.delay_s is None else self.delay_s
        return _Batch(empty, time.perf_counter() + delay)

    def _is_due(self) -> bool:
        """Whether the batch that is being collected should enter although it is not full."""
        batch, is_free = self._open, len(self._engine.inside) < self._replicas
        return batch is not None and is_free and time.perf_counter() >= batch.due

    def _watch(self) -> None:
        """Let each batch in when it is due, until the engine is stopped."""
        with contextlib.suppress(Closed), contextlib.closing(self):
            while True:
                self._await(self._open)

    def _await(self, batch: _Batch | None) -> None:
        """Let a batch in when it is due; returns once another one is being collected."""
        wait = min(batch.due - time.perf_counter(), threading.TIMEOUT_MAX) if batch else 0.0
        # A batch that is overdue waits for a free replica, without a time limit.
        self._engine.wait_for(
            lambda: self._open is not batch or self._is_due(), wait if wait > 0 else None
        )
        if batch is not None and self._is_due():
            self.let_in(batch)

    def _leave(self, batch: _Batch, ticket: Any) -> None:
        """Hand out the outputs of a batch, or its failure."""
        error, batch.started = ticket.exception(), ticket.started
        if isinstance(error, ItemFailed) and not (batch.count == 1 and error.is_certain):
            # This is the thread of a stage, which must not wait until items can enter.
            threading.Thread(target=self._run_alone, args=(batch, error), daemon=True).start()
        elif error is not None:
            batch.fail(error)
        else:
            together = ticket.result()
            places, batch.places = batch.places, []  # ends a reference cycle
            for place in places:
                place.set_result(together)

    def _run_alone(self, batch: _Batch, error: ItemFailed) -> None:
        """Run each item of a failed batch again, in a batch filled with copies of that item."""
        try:
            tickets = []
            if batch.count > 1:
                for place in batch.places:
                    rows = [w[_rows(w, place.number, self.size)] for w in batch.inputs]
                    alone = [np.concatenate([array] * self.size) for array in rows]
                    tickets.append(self._engine.enter(alone, 0))
            errors = [ticket.exception() for ticket in tickets]
            failures = [each for each in (error, *errors) if isinstance(each, ItemFailed)]
            if all(errors) and not any(each.is_certain for each in failures):
                self._engine.stop((error.place, error.cause))
                raise self._engine.closed()
        except Exception as problem:
            batch.fail(problem)
            return
        for place, ticket, failure in zip(batch.places, tickets, errors, strict=True):
            if failure is not None:
                place.set_exception(failure)
            else:
                place.set_result(ticket.result())
