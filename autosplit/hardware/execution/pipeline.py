"""A pipeline: items go through stages that work at the same time."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Self

import numpy as np

from autosplit.errors import ConfigError, StageError, line_of
from autosplit.hardware.execution.batches import Array, Batches, Place, of_items
from autosplit.hardware.execution.engine import Engine, Replicas
from autosplit.hardware.execution.streams import Closed, Stream, Ticket
from autosplit.hardware.execution.wiring import Variant, Wiring
from autosplit.hardware.runtimes.arrays import array_of, dtype_of

Item = Mapping[str, Array]
Inside = Ticket | Place
# The next item of a stream from its last outputs, the stream and the step; None at its end.
Following = Callable[[dict[str, Array], int, int], Item | None]
# How long the items inside should keep the stages busy while the caller sleeps, if items are short.
_WINDOW_S = 10e-3


class Pipeline:
    """Runs items through stages, one thread a replica; results come in the order of the items.

    A stage may have several replicas, ``replicas[i]`` those of stage i. A free replica takes the
    item that has waited longest for its stage, so unequal replicas share the items by their speed.
    ``replicas`` may be a function, called at the first item, that loads ``counts[i]`` of stage i.

    Any number of threads may call ``run``, ``submit`` and ``results`` at once, in any mixture: a
    call of ``run`` returns the results of its items, and ``results`` yields those of the submitted
    items. When ``run`` ends by an exception, its items inside are computed and discarded. An item
    on which a stage fails gets a StageError; the pipeline goes on if the replica can still compute
    an earlier item. With states, the later items of the stream also get a StageError, until the
    stream is ``reset``. Any other failure closes the pipeline, and all its users get a StageError.

    For each replica ``depth`` items are inside, at most ``capacity`` together, and up to four times
    as many in ``map`` and ``run`` if an item takes less than some ms.

    If the model has states, an item gets the states that the previous item of its stream left. A
    stream has any hashable name and begins with its first item, its states at zero or at the
    initial values of the model. A stream stays on one replica of each stage. ``reset`` ends it.

    ``lanes[i]`` threads call each replica of stage i at once, so that a replica on another machine
    can get the tensors of the next item while it computes.

    Where stages compute ``batch`` items at once, callers still give and get single items, and
    consecutive ones are stacked. An incomplete batch is computed when one of its results is waited
    for, or as ``with_delay`` says. Where a batch fails, each of its items runs again alone, and
    only those that fail alone get the StageError. A model with batches has no states.

    With ``trace`` the times of every stage are recorded in ``events``. A fork of the process
    cannot use the pipeline. A pipeline that is no longer referenced is closed.
    """

    def __init__(
        self,
        wiring: Wiring,
        replicas: Replicas,
        depth: int = 2,
        trace: bool = False,
        lanes: Sequence[int] = (),
        batch: int = 1,
        counts: Sequence[int] = (),
    ) -> None:
        self.wiring = of_items(wiring, batch)
        self.batch = batch
        self.replicas = tuple(counts if callable(replicas) else map(len, replicas))
        if depth < 1:
            raise ConfigError(f"depth is {depth}; let at least 1 item be inside for each replica")
        self._engine = Engine(
            wiring, replicas, self.replicas, depth, trace, lanes, isolates=batch > 1
        )
        self.capacity = batch * self._engine.capacity
        self.events = self._engine.events
        self.unused = self._engine.unused
        self.submitted = self._engine.submitted
        self._batches = Batches(batch, self._engine, sum(self.replicas))
        self._unread: deque[Inside] = deque()  # submitted items
        self._submitting = threading.Lock()  # they enter in the order of ``_unread``
        self._reading = threading.Lock()
        self._loops = count(1)
        self._variants = (Variant(self.wiring.inputs), *wiring.variants.values())
        # Any thread may run this, whatever lock it holds. At exit ``stop_all`` of the engine waits.
        weakref.finalize(self, self._engine.stop).atexit = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def with_delay(self, delay_ms: float | None) -> Self:
        """Let a batch that is not full begin once its first item has waited for so long.

        It goes on collecting while all replicas are busy.

        Args:
            delay_ms: The longest wait; None lets it begin when a result is waited for.

        Returns:
            The pipeline.

        Example:
            pipeline = split.pipeline().with_delay(5)
        """
        if delay_ms is not None and not 0 <= delay_ms < math.inf:
            raise ConfigError(f"delay_ms is {delay_ms:g}; give 0 or more milliseconds")
        self._batches.delay_s = None if delay_ms is None else delay_ms / 1e3
        return self

    def run(self, items: Iterable[Item], stream: Stream = 0) -> list[dict[str, Array]]:
        """Compute all items of one stream.

        Args:
            items: The items, each with the array of every input, except states, by name.
            stream: The stream that they belong to.

        Returns:
            For each item, in order, the array of every output by name.

        Raises:
            ConfigError: An item whose names, shapes or dtypes are not those of the model.
            StageError: A stage fails.

        Example:
            (outputs,) = pipeline.run([{"image": image, "hint": hint}])
        """
        return list(self.map(items, stream))

    def map(self, items: Iterable[Item], stream: Stream = 0) -> Iterator[dict[str, Array]]:
        """As ``run``, but an item is read once there is room for it, and outputs come one by one.

        Items that entered before an exception have changed the states of their stream.

        Args:
            items: As in ``run``, of any number.
            stream: The stream that they belong to.

        Returns:
            An iterator over the outputs of each item, in order; errors are those of ``run``.

        Example:
            for outputs in pipeline.map(items):
                print(outputs.keys())
        """
        if isinstance(items, Mapping) or not isinstance(items, Iterable):
            kind = type(items).__name__
            raise ConfigError(f"items is a {kind}; give a list of items, for one item [item]")
        return self.map_streams((stream, item) for item in items)

    def map_streams(self, items: Iterable[tuple[Stream, Item]]) -> Iterator[dict[str, Array]]:
        """As ``map`` for items of several streams.

        Args:
            items: Pairs of a stream and its next item.

        Returns:
            An iterator over the outputs of each item, in order; errors are those of ``run``.

        Example:
            early, late = pipeline.map_streams([("a", items[0]), ("b", items[1])])
        """
        tickets: deque[Inside] = deque()
        window, woken = self.capacity, time.perf_counter()
        source = iter(items)
        while True:
            is_full = len(tickets) >= window
            # Items come slowly: a result must not wait until the window is full.
            is_late = time.perf_counter() - woken > 2 * _WINDOW_S
            if is_full or (is_late and tickets and tickets[0].done()):
                # The caller shares the stages' cores. If it is woken once for many results, it
                # takes less of their time; the items still inside keep the stages busy.
                if is_full:  # an error is raised in its turn
                    tickets[window - self.capacity + self.capacity // 3].exception()
                # Results are read before the next item enters, so few of them ever wait.
                inside = len(tickets)
                yield self.result(tickets.popleft())
                while tickets and tickets[0].done():
                    yield self.result(tickets.popleft())
                before, woken = woken, time.perf_counter()
                period = (woken - before) / (inside - len(tickets))
                is_short = period * self.limit <= _WINDOW_S
                window = self.limit if is_short else max(self.capacity, int(_WINDOW_S / period))
            try:
                stream, item = next(source)
                tickets.append(self.enter(item, stream))
            except StopIteration:
                break
            except Exception:  # of the caller's iterator too
                yield from map(self.result, tickets)
                raise
        while tickets:
            yield self.result(tickets.popleft())

    def loop(
        self, first: Iterable[Item], following: Following, streams: int = 1
    ) -> Iterator[tuple[int, int, dict[str, Array]]]:
        """Run streams whose items follow from their outputs, as the tokens of a text do.

        Args:
            first: The first items, any number. Their streams are new, and numbered from 0 here.
            following: Returns the next item of a stream, given the outputs of its last item and the
                numbers of the stream and of the step, from 0; None ends the stream and its states.
            streams: How many streams run at once. Where one ends, the next one begins.

        Returns:
            An iterator over (stream, step, outputs) as steps end; errors are those of ``run``.

        Example:
            first, (last,) = [items[0]], items[1:]
            for stream, step, outputs in pipeline.loop(first, lambda o, s, n: None if n else last):
                print(stream, step)
        """
        if streams < 1:
            raise ConfigError(f"streams is {streams}; let at least 1 run at once")
        waiting = enumerate(first)
        inside: deque[tuple[Inside, str, int, int]] = deque()
        enter = partial(self._enter, alone=streams == 1)
        loop = next(self._loops)

        def begin() -> None:
            for number, item in islice(waiting, streams - len(inside)):
                stream = f"{number} of loop {loop}"
                inside.append((enter(item, stream), stream, number, 0))

        try:
            begin()
            while inside:
                is_done = (place for place, (ticket, *_) in enumerate(inside) if ticket.done())
                inside.rotate(-next(is_done, 0))
                # A stream stays in ``inside`` until its next item has entered: errors end it too.
                ticket, stream, number, step = inside[0]
                outputs = self.result(ticket)
                # The next item enters before the caller has the outputs: stages stay busy.
                following_item = following(outputs, number, step)
                if following_item is not None:
                    inside.append((enter(following_item, stream), stream, number, step + 1))
                else:
                    self.reset(stream)
                inside.popleft()
                begin()
                yield number, step, outputs
        finally:  # also end the streams that the caller did not wait for
            with contextlib.suppress(StageError):
                for _, stream, *_ in inside:
                    self.reset(stream)

    def submit(self, item: Item, stream: Stream = 0) -> None:
        """Hand in one item; waits while ``capacity`` submitted items are unread in ``results``.

        Args:
            item: The array of every input, except states, by name. The arrays are not copied and
                must not change until the result is there.
            stream: The stream that it belongs to; errors are those of ``run``.

        Example:
            pipeline.submit(items[0])
        """
        self._engine.require_process()
        with self._submitting:
            # Only this method appends, so there is still room when the item has entered.
            self._engine.wait_for(lambda: len(self._unread) < self.capacity)
            self._unread.append(self.enter(item, stream))
            self._engine.notify()

    def results(self) -> Iterator[dict[str, Array]]:
        """The outputs of submitted items, in order, waiting for each.

        Returns:
            An iterator, which ends only when the pipeline is closed; errors are those of ``run``.

        Example:
            outputs = next(pipeline.results())
        """
        return iter(self._next_result, None)

    def _next_result(self) -> dict[str, Array] | None:
        """The outputs of the next submitted item; None once the pipeline is closed."""
        self._engine.require_process()
        try:
            with self._reading:
                if not self._unread:  # what was computed before a failure can be read
                    self._engine.wait_for(lambda: self._unread)
                ticket = self._unread[0]
                # An interrupted reader leaves the item to the next reader.
                with contextlib.suppress(StageError):
                    ticket.result()
                self._unread.popleft()
                self._engine.notify()
            return self.result(ticket)
        except Closed:
            if self._engine.has_failed:
                raise
            return None

    def reset(self, stream: Stream = 0, state: Mapping[str, Array] | None = None) -> None:
        """Reset the states of a stream for its next item; items inside are not affected.

        Args:
            stream: The stream.
            state: The array of each state by name, as from ``state``; by default the initial ones.

        Raises:
            ConfigError: Values that are not states of the model.

        Example:
            pipeline.reset(stream="a")
        """
        _require_hashable(stream)
        if state is not None and not isinstance(state, Mapping):
            kind = type(state).__name__
            raise ConfigError(f"state is a {kind}; give the array of each state by its name")
        self._engine.reset(stream, state)

    def state(self, stream: Stream = 0) -> dict[str, Array]:
        """The states of a stream, once its items inside are computed.

        Args:
            stream: The stream.

        Returns:
            The array of each state by name, which ``reset`` takes.

        Raises:
            StageError: A stream that a failure has lost.

        Example:
            before = pipeline.state(stream="a")
        """
        _require_hashable(stream)
        return self._engine.state(stream)

    def close(self) -> None:
        """Stop the stages after their current item. Idempotent.

        A stage that is still busy after some seconds is abandoned with a RuntimeWarning.
        """
        self._batches.close()
        self._engine.close()

    @property
    def limit(self) -> int:
        """The most items that may be inside; then the next one waits."""
        return self.batch * self._engine.limit

    @property
    def delay_ms(self) -> float | None:
        """The longest wait of a batch that is not full, see ``with_delay``."""
        delay = self._batches.delay_s
        return None if delay is None else delay * 1e3

    @property
    def has_failed(self) -> bool:
        """Whether a stage has failed and closed the pipeline."""
        return self._engine.has_failed

    @property
    def threads(self) -> dict[str, int]:
        """The stage of each running thread, by its identifier as faulthandler writes it."""
        return self._engine.threads

    def start(self) -> None:
        """Start the threads of the replicas; the first item does so too."""
        self._engine.start()

    def enter(self, item: Item, stream: Stream = 0) -> Inside:
        """Hand in one item as ``submit`` does, and return the future of its outputs.

        Args:
            item: As in ``submit``.
            stream: The stream that it belongs to; errors are those of ``run``.

        Returns:
            The future, from which ``result`` gets the outputs.

        Example:
            outputs = pipeline.result(pipeline.enter(items[0]))
        """
        return self._enter(item, stream)

    def _enter(self, item: Item, stream: Stream, alone: bool = False) -> Inside:
        self._engine.require_process()
        variant = _variant_of(item, self._variants)
        arrays = list(_checked(item, variant, self._variants).values())
        _require_hashable(stream)
        if self.batch > 1:
            return self._batches.add(arrays)
        return self._engine.enter(arrays, stream, alone, variant.advance)

    def result(self, ticket: Inside) -> dict[str, Array]:
        """The outputs of an item that ``enter`` handed in; waits for them.

        Args:
            ticket: What ``enter`` returned.

        Returns:
            The array of every output by name; errors are those of ``run``.

        Example:
            outputs = pipeline.result(pipeline.enter(items[0]))
        """
        self._engine.require_process()
        outputs = ticket.result()
        return {port.name: array_of(outputs[port.name]) for port in self.wiring.outputs}


def _require_hashable(stream: Stream) -> None:
    try:
        hash(stream)
    except TypeError:
        kind = type(stream).__name__
        raise ConfigError(
            f"stream {stream!r} is a {kind}, which cannot be a key; use a number or a text"
        ) from None


def _variant_of(item: Item, variants: Sequence[Variant]) -> Variant:
    """The variant whose input shapes agree best with those of an item."""
    if not isinstance(item, Mapping):
        kind = type(item).__name__
        raise ConfigError(f"item is a {kind}; give the array of each input by its name")
    if len(variants) == 1:
        return variants[0]
    shapes = {name: getattr(array, "shape", None) for name, array in item.items()}
    return max(variants, key=lambda v: sum(shapes.get(p.name) == p.shape for p in v.inputs))


def _checked(item: Item, variant: Variant, variants: Sequence[Variant]) -> dict[str, Array]:
    """The arrays of an item of a variant in the order of the model's inputs."""
    names = [p.name for p in variant.inputs]
    for name in item:
        if name not in names:
            inputs = ", ".join(names) or "none"
            raise ConfigError(f"unknown input '{name}'; the model's inputs are {inputs}")
    arrays = {}
    for port in variant.inputs:
        if port.name not in item:
            raise ConfigError(f"item lacks the input '{port.name}'; give all of {', '.join(names)}")
        # Lists and scalars are accepted too, if their type is exactly that of the input.
        try:
            array = np.asarray(item[port.name])
        except Exception as error:  # the object's own conversion may raise any error
            raise ConfigError(f"input '{port.name}' is no array: {line_of(error)}") from error
        dtype = dtype_of(port.dtype)
        if array.shape != port.shape or array.dtype != dtype:
            others = [p for v in variants for p in v.inputs if p.name == port.name]
            # An array that fits another variant does not fit the other inputs of this item.
            accepted = [port] if array.shape in [p.shape for p in others] else others
            taken = dict.fromkeys(f"{p.dtype}{list(p.shape)}" for p in accepted)
            raise ConfigError(
                f"input '{port.name}' is {array.dtype}{list(array.shape)}, "
                f"but the model takes {' or '.join(taken)}"
            )
        if port.range is not None and array.size:
            # Some runtimes would read any memory at an index out of range.
            least, most = port.range
            for value in (array.min(), array.max()):
                if not least <= value <= most:
                    text = f"holds {value}; its values are {least} to {most}"
                    raise ConfigError(f"input '{port.name}' {text}")
        if dtype == np.bool_:  # runtimes differ in what a byte of 255 is; for numpy it is true
            array = array.view(np.uint8) != 0
        arrays[port.name] = np.asarray(array, dtype)  # runtimes know one of two equal numpy types
    return arrays
