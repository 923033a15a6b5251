"""Items that are computed together: stacked along the first axis, and taken apart again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autosplit.errors import ConfigError
from autosplit.hardware.execution.wiring import Port, Wiring
from autosplit.hardware.runtimes.arrays import aligned_empty, array_of

MOST = 4096  # items at once; the memory of a pipeline grows with them
Array = np.ndarray[Any, np.dtype[Any]]
Enter = Callable[[list[Array]], Future[Mapping[str, Any]]]


def of_items(wiring: Wiring, batch: int) -> Wiring:
    """The wiring with the inputs and outputs of single items; stages have those of a batch."""

    if batch == 1:
        return wiring

    def of_item(port: Port) -> Port:
        return replace(port, shape=(port.shape[0] // batch, *port.shape[1:]))

    inputs, outputs = map(of_item, wiring.inputs), map(of_item, wiring.outputs)
    return replace(wiring, inputs=tuple(inputs), outputs=tuple(outputs))


def of_batch(ports: Sequence[Port], batch: int) -> tuple[Port, ...]:
    """The ports of single items as those of so many at once."""
    if batch == 1:
        return tuple(ports)
    scalar = next((port.name for port in ports if not port.shape), None)
    if scalar is not None:
        raise ConfigError(f"'{scalar}' is a scalar, of which no batch is possible")
    return tuple(replace(p, shape=(batch * p.shape[0], *p.shape[1:])) for p in ports)


@dataclass
class _Batch:
    """Items that enter together; ``ticket`` once they have."""

    inputs: list[Array]
    count: int = 0
    ticket: Future[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Place:
    """An item's place in a batch; its result are its outputs, as of a Future."""

    batches: Batches
    batch: _Batch
    number: int
    forwarded: Mapping[str, Array]

    def done(self) -> bool:
        """Whether the outputs are there."""
        return self.batch.ticket is not None and self.batch.ticket.done()

    def result(self) -> dict[str, Any]:
        """The outputs; an incomplete batch is computed now, since its caller waits."""
        together = self.batches.entered(self.batch).result()
        outputs: dict[str, Any] = dict(self.forwarded)
        for name in together.keys() - outputs.keys():
            array = array_of(together[name])
            rows = len(array) // self.batches.size
            outputs[name] = array[self.number * rows : (self.number + 1) * rows]
        return outputs


class Batches:
    """Collects the items of any number of threads into batches of ``size``.

    A batch enters once it is complete, or once somebody waits for one of its items: it is then
    filled up with its last item, whose further outputs nobody reads.
    """

    def __init__(self, size: int, enter: Enter) -> None:
        self.size = size
        self._enter = enter
        self._lock = threading.Lock()
        self._open: _Batch | None = None

    def add(self, arrays: Sequence[Array], forwarded: Mapping[str, Array]) -> Place:
        """Take the arrays of an item's inputs, which are copied; may wait for room."""
        with self._lock:
            batch = self._open
            if batch is None:
                shapes = [(self.size * len(array), *array.shape[1:]) for array in arrays]
                pairs = zip(shapes, arrays, strict=True)
                empty = [aligned_empty(shape, array.dtype) for shape, array in pairs]
                batch = self._open = _Batch(empty)
            number = batch.count
            for whole, array in zip(batch.inputs, arrays, strict=True):
                whole[number * len(array) : (number + 1) * len(array)] = array
            batch.count += 1
            if batch.count == self.size:
                batch.ticket = self._let_in(batch)
        return Place(self, batch, number, forwarded)

    def entered(self, batch: _Batch) -> Future[Mapping[str, Any]]:
        """The ticket of a batch, which enters now if it has not yet."""
        with self._lock:
            if batch.ticket is None:
                for whole in batch.inputs:
                    rows = len(whole) // self.size
                    last = whole[(batch.count - 1) * rows : batch.count * rows]
                    for number in range(batch.count, self.size):
                        whole[number * rows : (number + 1) * rows] = last
                batch.ticket = self._let_in(batch)
            return batch.ticket

    def _let_in(self, batch: _Batch) -> Future[Mapping[str, Any]]:
        self._open = None
        return self._enter(batch.inputs)
