"""The threads that run the stages of a pipeline.

The threads hold the engine and never the pipeline, so a pipeline that nobody references any more is
collected, and its engine stops.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from autosplit.errors import StageError, line_of
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.core_kinds import site_of_thread
from autosplit.hardware.execution.streams import Closed, ItemFailed, Stream, Streams, Ticket
from autosplit.hardware.execution.wiring import CALLER, Wiring, connect
from autosplit.hardware.runtimes.arrays import array_of
from autosplit.hardware.runtimes.interface import Stage


class StageEvent(NamedTuple):
    """A replica of stage ``stage`` computed item ``item`` from ``start`` to ``end``.

    A pipeline records seconds of ``time.perf_counter``, a drawing takes milliseconds.
    """

    stage: int
    item: int
    start: float
    end: float
    replica: int = 0


Replicas = Sequence[Sequence[Stage]] | Callable[[], Sequence[Sequence[Stage]]]
CLOSE_TIMEOUT_S = 5.0
_IDLE = -1
_TICKS = 10  # checks for a stage that hangs, in each SILENCE_S
_MOST = 4  # the limit of items inside, as a multiple of the capacity
_running: weakref.WeakSet[Engine] = weakref.WeakSet()


class Lane(threading.Thread):
    """A thread that runs one replica of a stage; ``site`` tells on which kind of core, if pinned.

    It takes items from ``ready`` and holds ``running`` while it computes ``item``. It may go on
    with an item in place of the thread of the lane ``following``, and then holds that ``running``.
    """

    def __init__(self, work: Callable[[Lane], None], stage: int, replica: int, name: str) -> None:
        super().__init__(target=work, args=(self,), name=name, daemon=True)
        self.stage, self.replica = stage, replica
        self.ready: SimpleQueue[Ticket | None] = SimpleQueue()
        self.item = _IDLE
        self.site: Hashable = None
        self.running = threading.Lock()
        self.following: Lane | None = None


class Engine:
    """Runs the stages, with ``lanes[i]`` threads (by default one) for each replica of stage i.

    Items enter one by one. A free lane takes the next item that has all inputs of its stage, so a
    slow replica takes fewer items. In a stage with states a lane takes the items of whole streams.

    At most ``limit`` items are ``inside``; ``capacity`` of them keep all replicas busy: ``depth``
    for each lane and for the caller. If a stage fails on an item, its replica computes the first
    item of the stage again. If that works, only the failed item gets the error; else the engine
    stops. If the stage has computed nothing before, the engine stops too, unless it ``isolates``
    items for a caller that then tries others. With states, later items of its stream fail with it.
    """

    def __init__(
        self,
        wiring: Wiring,
        replicas: Replicas,
        counts: Sequence[int],
        depth: int,
        trace: bool,
        lanes: Sequence[int] = (),
        isolates: bool = False,
    ) -> None:
        self._lanes_each = lanes or [1] * len(counts)
        threads = [n * count for n, count in zip(self._lanes_each, counts, strict=True)]
        self.capacity = depth * (sum(threads) + 1)
        self.limit = _MOST * self.capacity
        self.events: list[StageEvent] = []
        self.submitted: list[float] = []
        self._trace = trace
        self._load = replicas if callable(replicas) else None
        self._replicas = () if callable(replicas) else replicas
        self._isolates = isolates
        self._stages = wiring.stages
        # By stage, the inputs of the first item that it computed, without the states.
        self._examples: dict[int, list[Any]] = {}
        self._edges = connect(wiring)
        self._pid = os.getpid()
        self.inside: set[Ticket] = set()
        self._entered = 0
        # Guards the items inside and the streams. It is re-entrant, because garbage collection may
        # stop another engine, or this one, while a thread holds it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.streams = Streams(wiring, threads)
        self._is_stopped = False
        self._ended = threading.Event()
        self._failure: tuple[str, BaseException] | None = None
        self._lost_items: list[int] = []  # the numbers, from 0, of the items that were discarded
        self._starting = threading.Lock()
        self._is_started = False
        self._lanes: list[list[Lane]] = [[] for _ in threads]
        for stage, row in enumerate(self._lanes):
            for number in range(threads[stage]):
                # Lanes alternate between the replicas, so that streams spread over all replicas.
                replica = number % counts[stage]
                name = replica_name(stage, replica, counts[stage])
                row.append(Lane(self._work, stage, replica, name))
                if not wiring.stages[stage].states:
                    row[-1].ready = row[0].ready
        self.unused = {lane.name for lane in chain(*self._lanes)}  # replicas that have run nothing

    @property
    def threads(self) -> dict[str, int]:
        """The stage of each running thread, by its identifier as faulthandler writes it."""
        return {f"0x{t.ident:016x}": t.stage for t in chain(*self._lanes) if t.ident is not None}

    def start(self) -> None:
        """Load the replicas and start the threads, unless they run; errors of loading are raised.

        Raises Closed once the engine is stopped.
        """
        self.require_process()
        if self._is_stopped:
            raise self.closed()
        with self._starting:
            if self._is_started:
                return
            self._is_started = True
            _running.add(self)
            try:
                if self._load:
                    self._replicas = self._load()
                for lane in chain(*self._lanes):
                    lane.start()
                threading.Thread(target=self._watch, name="watch", daemon=True).start()
            except BaseException as error:
                self.stop(("the stages did not start", error))
                raise

    def enter(
        self, values: Sequence[Any], stream: Stream, alone: bool = False, advance: int = 1
    ) -> Ticket:
        """Hand in one item of a stream, which advances it by some steps; waits for room inside.

        ``alone``: its caller has no other item. Raises Closed once the engine is stopped, and
        ConfigError where the states of the stream have no room for the item.
        """
        self.start()
        # Copies of inputs that are outputs too: the caller may change their arrays meanwhile.
        outputs = {name: np.array(values[place]) for name, place in self._edges.outputs[CALLER]}
        with self._lock:
            self.wait_for(lambda: len(self.inside) < self.limit)
            self.streams.require_room(stream, advance)
            try:
                inputs: list[list[Any]] = [[None] * len(ports.inputs) for ports in self._stages]
                ticket = Ticket(self._entered, inputs, list(self._edges.senders), outputs)
                ticket.is_alone = alone
                self.inside.add(ticket)
                self.streams.begin_item(ticket, stream, advance)
                self._entered += 1
                if self._trace:
                    self.submitted.append(time.perf_counter())
                self._deliver(CALLER, ticket, values)
                return ticket
            except BaseException as error:
                # Some stages may have got the item and others not.
                self.stop(("the pipeline was interrupted", error))
                raise

    def reset(self, stream: Stream, state: Mapping[str, Any] | None) -> None:
        """Reset a stream, see ``Streams.reset``. Raises Closed once the engine is stopped."""
        self.require_process()
        with self._lock:
            if self._is_stopped:
                raise self.closed()
            self.streams.reset(stream, state)

    def state(self, stream: Stream) -> dict[str, Any]:
        """The states of a stream, once no item of it is inside."""
        self.require_process()
        with self._lock:
            self._changed.wait_for(lambda: self._is_stopped or self.streams.is_idle(stream))
            values = self.streams.of(stream)
        # Copied without the lock: a state may come from another machine.
        return {name: np.array(array_of(value)) for name, value in values.items()}

    def wait_for(self, condition: Callable[[], object], timeout: float | None = None) -> None:
        """Wait until a condition holds; it is checked when an item leaves and at each ``notify``.

        Waits no longer than ``timeout`` seconds. Raises Closed once the engine is stopped.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or condition(), timeout)
            if self._is_stopped:
                raise self.closed()

    def notify(self) -> None:
        """Make all threads in ``wait_for`` check their conditions again."""
        with self._changed:
            self._changed.notify_all()

    def closed(self) -> Closed:
        """The error to raise after the engine has stopped, with the reason."""
        if self._failure is None:
            return Closed("the pipeline is closed; make a new one")
        text, cause = self._failure
        reason = f"{type(cause).__name__}: {line_of(cause)}"
        items = ", ".join(map(str, sorted(self._lost_items)))
        losses = f"; {'batches' if self._isolates else 'items'} inside: {items}" if items else ""
        streams = self.streams.lost
        losses += f"; lost streams: {', '.join(streams)}" if streams else ""
        closed = Closed(f"{text}: {reason}; the pipeline is closed{losses}")
        closed.__cause__ = cause
        return closed

    @property
    def has_failed(self) -> bool:
        """Whether the engine was stopped by anything other than ``close``."""
        return self._failure is not None

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork, where threads that do not exist may hold the locks."""
        return os.getpid() != self._pid

    def require_process(self) -> None:
        """Raise StageError in a fork, which has none of the threads."""
        if self.is_forked:
            raise StageError(
                f"the pipeline belongs to process {self._pid} and this is a fork; "
                "make a pipeline after the fork"
            )

    def stop(self, failure: tuple[str, BaseException] | None = None) -> None:
        """Let every thread end after its current item; waiters get ``failure``. Idempotent."""
        if self.is_forked:
            return
        with self._lock:
            if not self._is_stopped:
                self._is_stopped, self._failure = True, failure
                self._ended.set()
                self._lost_items = [ticket.number for ticket in self.inside]
            discarded = list(self.inside)
            self.inside.clear()
            self._changed.notify_all()
        for lane in chain(*self._lanes):
            lane.ready.put(None)
        for ticket in discarded:
            ticket.inputs.clear()
            ticket.set_exception(self.closed())

    def close(self) -> None:
        """Stop, and wait some seconds for the threads. Idempotent."""
        self.stop()
        self.join(time.monotonic() + CLOSE_TIMEOUT_S)

    def join(self, deadline: float) -> None:
        """Wait for the threads. One that stays busy is abandoned with a warning."""
        if self.is_forked:
            return
        with self._starting:
            if not self._is_started:
                # The threads, which close their stages at the end, were never started.
                for stage in chain.from_iterable(self._replicas):
                    stage.close()
            self._is_started = True
        for thread in chain(*self._lanes):
            if thread.ident is None or thread is threading.current_thread():
                continue
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                text = f"{thread.name} does not end; its thread is abandoned"
                warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _watch(self) -> None:
        """Stop the engine if a thread computes one item for longer than SILENCE_S.

        This covers all devices; those that limit a call themselves end it earlier. With several
        lanes the limit is a multiple, as an item may wait for those of the other lanes. Ticks are
        counted rather than seconds, since this process may be suspended too.
        """
        lanes = list(chain(*self._lanes))
        items, ticks = [_IDLE] * len(lanes), [0] * len(lanes)
        while not self._ended.wait(devices.SILENCE_S / _TICKS):
            for place, lane in enumerate(lanes):
                is_same = lane.item == items[place] != _IDLE
                items[place], ticks[place] = lane.item, ticks[place] + 1 if is_same else 0
                if ticks[place] > _TICKS * self._lanes_each[lane.stage]:
                    text = f"no result for {devices.SILENCE_S:g} s; it hangs"
                    self.stop((f"{lane.name} failed", StageError(text)))

    def _work(self, home: Lane) -> None:
        """Run the items of a lane until the engine stops, and go on in the ``following`` lanes."""
        replica = self._replicas[home.stage][home.replica]
        lane = home
        try:
            replica.open()
            home.site = site_of_thread()
            while (ticket := home.ready.get()) is not None:
                home.running.acquire()
                self._step(lane, ticket, home)
                while home.following is not None:
                    lane, home.following = home.following, None
                    self._step(lane, ticket, home)
                lane = home
                # Otherwise its outputs would stay in memory during the next wait.
                del ticket
        except BaseException as error:  # raised again for waiting callers; or ``closed``
            self.stop((f"{lane.name} failed", error))
        finally:
            replica.close()

    def _step(self, lane: Lane, ticket: Ticket, home: Lane) -> None:
        """Run an item in a lane, in the thread of the lane ``home``."""
        stage = lane.stage
        try:
            if self._is_stopped:
                raise self.closed()
            values, ticket.inputs[stage] = ticket.inputs[stage], []
            is_lost = ticket.failure is not None
            if not is_lost:
                self.streams.restore(stage, ticket, values)
            lane.item = ticket.number
            start = time.perf_counter()
            ticket.started = ticket.started or start
            results = None if is_lost else self._run(lane, ticket, values)
            lane.item = _IDLE
            if self._trace:
                end = time.perf_counter()
                self.events.append(StageEvent(stage, ticket.number, start, end, lane.replica))
            if results is None:
                results = [None] * len(self._stages[stage].outputs)
            else:
                self.streams.keep(stage, ticket, results)
        finally:
            lane.running.release()
        self._finish(stage, ticket, results, home)

    def _run(self, lane: Lane, ticket: Ticket, values: Sequence[Any]) -> Sequence[Any] | None:
        """The results of a stage for an item; None where it fails on this item."""
        stage, replica = lane.stage, self._replicas[lane.stage][lane.replica]
        try:
            results = replica.run(values)
            self.unused.discard(lane.name)
            if stage not in self._examples:
                states = {place for place, _ in self._stages[stage].state_places}
                # Copies: the callers may change what they gave and what they got.
                self._examples[stage] = [
                    None if place in states else np.array(array_of(value))
                    for place, value in enumerate(values)
                ]
            return results
        except Exception as error:
            is_certain = stage in self._examples
            if not (is_certain or self._isolates) or not self._works(stage, replica):
                raise
            ticket.fail(ItemFailed(f"{lane.name} failed", error, is_certain))
        return None

    def _works(self, stage: int, replica: Stage) -> bool:
        """Whether a replica that failed can still compute the first item of its stage, if any.

        A process that has died and a device that is lost fail again.
        """
        try:
            if stage in self._examples:
                values = [*self._examples[stage]]
                self.streams.begin(stage, values)
                replica.run(values)
        except Exception:
            return False
        return True

    def _finish(self, stage: int, ticket: Ticket, results: Sequence[Any], home: Lane) -> None:
        """Hand the results of a stage to those that read them."""
        with self._lock:
            if self._is_stopped:
                raise self.closed()
            self._deliver(stage, ticket, results, home)
            for name, position in self._edges.outputs[stage]:
                ticket.outputs[name] = results[position]
            ticket.uncomputed.discard(stage)
            if ticket.step and ticket.step.following and self._stages[stage].states:
                self._arrive(stage, ticket.step.following)
            if not ticket.uncomputed:
                self.inside.discard(ticket)
                if ticket.before:
                    ticket.before.following = None  # else a caller's old ticket would keep it
                ticket.before = None  # ends a reference cycle
                self._changed.notify_all()
            # One that ``stop`` discarded has its exception already.
            is_complete = not ticket.uncomputed and not self._is_stopped
        if is_complete and ticket.failure is not None:
            ticket.set_exception(ticket.failure)
        elif is_complete:
            ticket.set_result(ticket.outputs)

    def _deliver(
        self, sender: int, ticket: Ticket, values: Sequence[Any], home: Lane | None = None
    ) -> None:
        for reader, pairs in self._edges.readers[sender].items():
            for position, place in pairs:
                ticket.inputs[reader][place] = values[position]
            self._arrive(reader, ticket, home)

    def _arrive(self, stage: int, ticket: Ticket, home: Lane | None = None) -> None:
        """Record that one more of the senders has sent an item's values to a stage.

        With the last one the item is ready. Waking a thread takes longer than going on in that of
        ``home``, which is done where their cores are alike and no other item is inside.
        """
        ticket.missing[stage] -= 1
        if ticket.missing[stage]:
            return
        step = ticket.step if self._stages[stage].states else None
        lane = self._lanes[stage][step.lanes[stage] if step else 0]
        goes_on = home is not None and home.site is not None and home.site == lane.site
        is_alone = ticket.is_alone and len(self.inside) == 1
        if home and goes_on and is_alone and not home.following and lane.running.acquire(False):
            home.following = lane
        else:
            lane.ready.put(ticket)


def replica_name(stage: int, number: int, count: int) -> str:
    """The name of a replica in messages; the only one of a stage has the name of the stage."""
    return f"stage {stage}" if count == 1 else f"replica {number} of stage {stage}"


@atexit.register
def stop_all() -> None:
    """End the threads before the interpreter does.

    A daemon thread that returns from native code while the interpreter is torn down is unwound by
    force, which ends the process in std::terminate.
    """
    engines = list(_running)
    for engine in engines:
        engine.stop()
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    for engine in engines:
        engine.join(deadline)
