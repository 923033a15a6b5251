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
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from autosplit.errors import StageError, line_of
from autosplit.hardware.execution.edges import CALLER, Channel, Closed, Ticket, connect
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.interface import Stage


class StageEvent(NamedTuple):
    """Stage ``stage`` computed item ``item`` from ``start`` to ``end``.

    A pipeline writes seconds of ``time.perf_counter``, a drawing takes milliseconds.
    """

    stage: int
    item: int
    start: float
    end: float


CLOSE_TIMEOUT_S = 5.0
_running: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """One thread for each stage. Items enter one by one, and every stage runs them in that order.

    At most ``capacity`` items are inside. The first stage that fails stops the engine. ``unread``
    are the tickets of ``Pipeline.submit`` whose results nobody has read.
    """

    def __init__(self, wiring: Wiring, stages: Sequence[Stage], depth: int, trace: bool) -> None:
        self.capacity = depth * (len(stages) + 1)
        self.events: list[StageEvent] = []
        self.submitted: list[float] = []
        self.unread: Channel[Ticket] = Channel(self.capacity)
        self._trace = trace
        self._stages = stages
        self._widths = [len(ports.inputs) for ports in wiring.stages]
        self._edges = connect(wiring, depth, self.capacity)
        self._pid = os.getpid()
        self._inside: set[Ticket] = set()
        self._entered = 0
        # Guards the items inside and the two lines below. It is re-entrant, because garbage
        # collection may stop another engine, or this one, while a thread holds it.
        self._changed = threading.Condition()
        self._is_stopped = False
        self._failure: tuple[str, BaseException] | None = None
        self._entering = threading.Lock()  # every edge gets the items in one order
        self._starting = threading.Lock()
        self._is_started = False
        self._threads = [
            threading.Thread(target=self._work, args=(s,), name=f"stage {s}", daemon=True)
            for s in range(len(stages))
        ]

    @property
    def threads(self) -> dict[str, int]:
        """The stage of each running thread, by its identifier as faulthandler writes it."""
        return {f"0x{t.ident:016x}": s for s, t in enumerate(self._threads) if t.ident is not None}

    def start(self) -> None:
        """Start the threads unless they run."""
        self.require_process()
        with self._starting:
            if self._is_started:
                return
            self._is_started = True
            _running.add(self)
            try:
                for thread in self._threads:
                    thread.start()
            except BaseException:
                self.stop()
                raise

    def enter(self, values: Sequence[Any], outputs: dict[str, Any]) -> Ticket:
        """Hand in one item, with the ``outputs`` that are known; waits for room inside.

        Raises Closed once the engine is stopped.
        """
        self.start()
        with self._entering:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_stopped or len(self._inside) < self.capacity
                )
            try:
                return self._send(values, outputs)
            except BaseException as error:
                # Some stages may have got the item and others not.
                self.stop(("the pipeline was interrupted", error))
                raise

    def raise_failure(self) -> NoReturn:
        """Raise StageError with the reason why the engine is stopped."""
        if self._failure is None:
            raise StageError("the pipeline is closed; make a new one") from None
        text, cause = self._failure
        reason = f"{type(cause).__name__}: {line_of(cause)}"
        raise StageError(f"{text}: {reason}; the pipeline is closed") from cause

    @property
    def has_failed(self) -> bool:
        """Whether something else than ``close`` stopped the engine."""
        return self._failure is not None

    def require_process(self) -> None:
        """Raise StageError in a fork, which has none of the threads."""
        if os.getpid() != self._pid:
            raise StageError(
                f"the pipeline belongs to process {self._pid} and this is a fork; "
                "make a pipeline after the fork"
            )

    def stop(self, failure: tuple[str, BaseException] | None = None) -> None:
        """Let every thread end after its current item; who waits gets ``failure``. Idempotent."""
        if os.getpid() != self._pid:
            return  # threads that do not exist here may hold the locks
        with self._changed:
            if not self._is_stopped:
                self._is_stopped, self._failure = True, failure
            discarded = list(self._inside)
            self._inside.clear()
            self._changed.notify_all()
        # Outside the condition: a stage may hold a channel and wait for it.
        self._edges.close()
        self.unread.close()
        for ticket in discarded:
            ticket.set_exception(Closed())

    def close(self) -> None:
        """Stop, and wait some seconds for the threads. Idempotent."""
        self.stop()
        self.join(time.monotonic() + CLOSE_TIMEOUT_S)

    def join(self, deadline: float) -> None:
        """Wait for the threads. One that stays busy is abandoned with a warning."""
        if os.getpid() != self._pid:
            return
        with self._starting:
            if not self._is_started:
                # Stages are closed by their threads, which were never started.
                for stage in self._stages:
                    stage.close()
                self._is_started = True
        for index, thread in enumerate(self._threads):
            if thread.ident is None or thread is threading.current_thread():
                continue
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                text = f"stage {index} does not end; its thread is abandoned"
                warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _send(self, values: Sequence[Any], outputs: dict[str, Any]) -> Ticket:
        ticket = Ticket(self._entered, len(self._stages), outputs)
        with self._changed:
            if self._is_stopped:
                raise Closed
            self._inside.add(ticket)
        self._entered += 1
        if self._trace:
            self.submitted.append(time.perf_counter())
        for edge in self._edges.out_of[CALLER]:
            edge.send(ticket, values)
        return ticket

    def _work(self, index: int) -> None:
        """Run the items of one stage until the engine stops."""
        stage = self._stages[index]
        try:
            stage.open()
            while True:
                self._run_next(index, stage)
        except Closed:
            pass
        except BaseException as error:  # raised again in the thread of whoever waits
            self.stop((f"stage {index} failed", error))
        finally:
            stage.close()

    def _run_next(self, index: int, stage: Stage) -> None:
        ticket, values = self._next_item(index)
        start = time.perf_counter()
        results = stage.run(values)
        if self._trace:
            self.events.append(StageEvent(index, ticket.number, start, time.perf_counter()))
        outputs = {name: results[i] for name, i in self._edges.outputs[index]}
        for edge in self._edges.out_of[index]:
            edge.send(ticket, results)
        if ticket.deliver(outputs):
            # One that ``stop`` removed has its exception already.
            with self._changed:
                self._inside.discard(ticket)
                is_stopped = self._is_stopped
                self._changed.notify_all()
            if not is_stopped:
                ticket.complete()

    def _next_item(self, index: int) -> tuple[Ticket, list[Any]]:
        values: list[Any] = [None] * self._widths[index]
        ticket: Ticket | None = None
        for edge in self._edges.into[index]:
            sender_ticket, received = edge.channel.take()
            # All edges carry the items in one order; this is the proof of it.
            if ticket not in (None, sender_ticket):
                raise StageError("a stage received the inputs of two items at once")
            ticket = sender_ticket
            for position, value in zip(edge.readers, received, strict=True):
                values[position] = value
        assert ticket is not None, "every stage has an edge"
        return ticket, values


@atexit.register
def _stop_all() -> None:
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
