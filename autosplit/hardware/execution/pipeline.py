"""A pipeline: one thread a stage, bounded channels between them, every tensor sent once to each stage that reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, StageError, line_of
from autosplit.hardware.execution.channel import Channel, Closed
from autosplit.hardware.execution.wiring import Port, Wiring
from autosplit.hardware.runtimes.stage import Stage

Array = np.ndarray[Any, np.dtype[Any]]
Item = Mapping[str, Array]
_CALLER = -1


@dataclass(frozen=True)
class Event:
    """Stage ``stage`` computed item ``item`` from ``start`` to ``end``, in seconds of one monotonic clock."""

    stage: int
    item: int
    start: float
    end: float


@dataclass(frozen=True)
class _Edge:
    """Messages from one stage (or the caller) to another: which of the sender's values, and where they go at the reader."""

    channel: Channel[tuple[Any, ...]]
    take: tuple[int, ...]
    put: tuple[int, ...]


class Pipeline:
    """Runs items through stages that work at the same time; results come in the order of submission.

    ``depth`` messages wait between neighbouring stages, more where a tensor skips stages, so that a skip never holds the
    pipeline back. At most ``capacity`` items are inside. A failing stage closes the pipeline: StageError reaches whoever
    submits or waits. With ``trace`` the events of every stage are kept in ``events``.
    """

    def __init__(
        self, wiring: Wiring, stages: Sequence[Stage], depth: int = 2, trace: bool = False
    ) -> None:
        self.wiring = wiring
        self.events: list[Event] = []
        self.submitted: list[float] = []
        self.capacity = depth * (len(stages) + 1)
        self._trace = trace
        self._stages = stages
        self._into, self._out_of, self._results = _edges(wiring, depth, self.capacity)
        self._inside = Channel[Item](self.capacity)
        self._error: tuple[int, BaseException] | None = None
        self._lock = threading.Lock()
        self._submitting = threading.Lock()  # all edges get the items in one order, whoever submits
        self._collecting = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(s,), name=f"stage {s}", daemon=True)
            for s in range(len(stages))
        ]

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, items: Iterable[Item]) -> list[dict[str, Array]]:
        """The outputs of all items, in order, as {output name: array}.

        Raises ConfigError for an item whose names, shapes or dtypes are not the model's, StageError where a stage fails.
        """
        results: list[dict[str, Array]] = []
        waiting = 0
        for item in items:
            if waiting == self.capacity:
                results.append(self._collect())
                waiting -= 1
            self.submit(item)
            waiting += 1
        results.extend(self._collect() for _ in range(waiting))
        return results

    def submit(self, item: Item) -> None:
        """Hand one item in; waits while ``capacity`` items are inside. Raises as ``run`` does.

        The arrays are not copied: leave them as they are until the item's result is there.
        """
        arrays = _accepted(item, self.wiring.inputs)
        self.start()
        try:
            with self._submitting:
                self._inside.put(arrays)
                if self._trace:
                    self.submitted.append(time.perf_counter())
                values = list(arrays.values())
                for edge in self._out_of[_CALLER]:
                    edge.channel.put(tuple(values[i] for i in edge.take))
        except Closed:
            raise self._failure() from self._cause()

    def results(self) -> Iterator[dict[str, Array]]:
        """The outputs of submitted items, in order, waiting for each; ends when the pipeline is closed."""
        while True:
            try:
                yield self._collect()
            except StageError:
                if self._error:
                    raise
                return

    def close(self) -> None:
        """Stop the stages after the item each is at; can be called twice."""
        self._close_channels()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(timeout=60)
        for thread, stage in zip(self._threads, self._stages, strict=True):
            if not thread.is_alive():
                stage.close()

    @property
    def threads(self) -> dict[str, int]:
        """The stage of each running thread, by its ident as faulthandler writes it."""
        return {f"0x{t.ident:016x}": s for s, t in enumerate(self._threads) if t.ident is not None}

    def start(self) -> None:
        """Start the stages' threads; the first ``submit`` does so too."""
        with self._lock:
            if self._threads and self._threads[0].ident is None:
                for thread in self._threads:
                    thread.start()

    def _work(self, stage: int) -> None:
        try:
            self._stages[stage].open()
            width = len(self.wiring.stages[stage].inputs)
            item = 0
            while True:
                values: list[Any] = [None] * width
                for edge in self._into[stage]:
                    for position, value in zip(edge.put, edge.channel.take(), strict=True):
                        values[position] = value
                start = time.perf_counter()
                results = self._stages[stage].run(values)
                if self._trace:
                    self.events.append(Event(stage, item, start, time.perf_counter()))
                for edge in self._out_of[stage]:
                    edge.channel.put(tuple(results[i] for i in edge.take))
                item += 1
        except Closed:
            return
        except (
            BaseException
        ) as error:  # whatever it is belongs to the caller, in the caller's thread
            with self._lock:
                self._error = self._error or (stage, error)
            self._close_channels()

    def _collect(self) -> dict[str, Array]:
        try:
            with self._collecting:
                taken = [(names, edge.channel.take()) for edge, names in self._results]
                item = self._inside.take()
        except Closed:
            raise self._failure() from self._cause()
        found: dict[str, Array] = {}
        for names, values in taken:
            for name, value in zip(names, values, strict=True):
                found[name] = value if isinstance(value, np.ndarray) else value.numpy()
        for connection in self.wiring.connections:
            if isinstance(connection.source, str):
                found.update(
                    (name, np.array(item[connection.source])) for name in connection.outputs
                )
        return {p.name: found[p.name] for p in self.wiring.outputs}

    def _close_channels(self) -> None:
        self._inside.close()
        for edges in self._out_of.values():
            for edge in edges:
                edge.channel.close()

    def _cause(self) -> BaseException | None:
        return self._error[1] if self._error else None

    def _failure(self) -> StageError:
        if self._error is None:
            return StageError("the pipeline is closed; make a new one")
        stage, error = self._error
        return StageError(
            f"stage {stage} failed: {type(error).__name__}: {line_of(error)}; the pipeline is closed"
        )


def _edges(
    wiring: Wiring, depth: int, capacity: int
) -> tuple[dict[int, list[_Edge]], dict[int, list[_Edge]], list[tuple[_Edge, tuple[str, ...]]]]:
    """Edges by reader, edges by sender, and those to the caller with the output names they carry."""
    into: dict[int, list[_Edge]] = {s: [] for s in range(len(wiring.stages))}
    out_of: dict[int, list[_Edge]] = {s: [] for s in range(_CALLER, len(wiring.stages))}
    position = [{p.name: i for i, p in enumerate(stage.inputs)} for stage in wiring.stages]
    index = {p.name: i for i, p in enumerate(wiring.inputs)}
    routes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    leaving: dict[int, list[tuple[int, str]]] = {}
    for c in wiring.connections:
        sender, output = (_CALLER, index[c.source]) if isinstance(c.source, str) else c.source
        for reader in c.stages:
            routes.setdefault((sender, reader), []).append((output, position[reader][c.tensor]))
        if sender != _CALLER:
            leaving.setdefault(sender, []).extend((output, name) for name in c.outputs)
    for reader in into:
        if not any(r == reader for _, r in routes):
            routes[_CALLER, reader] = []  # a stage that reads nothing still must know when to run
    for (sender, reader), pairs in routes.items():
        size = capacity if sender == _CALLER else depth * (reader - sender)
        edge = _Edge(Channel(size), tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))
        into[reader].append(edge)
        out_of[sender].append(edge)
    results = []
    for sender, pairs2 in leaving.items():
        if pairs2:
            edge = _Edge(Channel(capacity), tuple(p[0] for p in pairs2), ())
            out_of[sender].append(edge)
            results.append((edge, tuple(p[1] for p in pairs2)))
    return into, out_of, results


def _accepted(item: Item, ports: Sequence[Port]) -> dict[str, Array]:
    """The arrays of an item in the order of the model's inputs."""
    names = [p.name for p in ports]
    for name in item:
        if name not in names:
            raise ConfigError(
                f"item has an input '{name}', but the model's inputs are {', '.join(names) or 'none'}"
            )
    arrays = {}
    for port in ports:
        if port.name not in item:
            raise ConfigError(f"item lacks the input '{port.name}'; give all of {', '.join(names)}")
        array = arrays[port.name] = np.asarray(item[port.name])
        if array.shape != port.shape or str(array.dtype) != port.dtype:
            raise ConfigError(
                f"input '{port.name}' is {array.dtype}{list(array.shape)}, but the model takes {port.dtype}{list(port.shape)}"
            )
    return arrays
