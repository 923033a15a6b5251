"""The items that wait for a stage, and which of its replicas may take one."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque

from autosplit.hardware.execution.edges import Stream, Ticket


class StageQueue:
    """The items that have all inputs of a stage; the lock of the engine guards it.

    Any replica takes the oldest item. With ``has_states`` a replica holds whole streams and takes
    their items in the order in which they entered, since each needs what the last one left.
    ``depth`` items wait for each replica.
    """

    def __init__(self, lock: threading.RLock, replicas: int, depth: int, has_states: bool) -> None:
        self.changed = threading.Condition(lock)
        self.is_held_back = False  # a replica waits for a reader
        self._limit = depth * replicas
        self._has_states = has_states
        self._ready: list[list[tuple[int, Ticket]]] = [[] for _ in range(replicas)]  # heaps
        self._expected: list[deque[int]] = [deque() for _ in range(replicas)]
        self._replica_of: dict[Stream, int] = {}

    def expect(self, ticket: Ticket) -> None:
        """Note that an item entered the pipeline."""
        if self._has_states:
            self._expected[self.replica_of(ticket.stream)].append(ticket.number)

    def replica_of(self, stream: Stream) -> int:
        """The replica that holds a stream; a new one goes to that with the fewest."""
        if stream not in self._replica_of:
            streams = Counter(self._replica_of.values())
            self._replica_of[stream] = min(range(len(self._ready)), key=streams.__getitem__)
        return self._replica_of[stream]

    def forget(self, stream: Stream) -> None:
        """Free the place of a stream that has no item inside."""
        self._replica_of.pop(stream, None)

    def put(self, ticket: Ticket) -> None:
        """Add an item and wake a replica that may take it."""
        line = self.replica_of(ticket.stream) if self._has_states else 0
        # Items overtake each other in replicas of the stage before, so the oldest may come last.
        heapq.heappush(self._ready[line], (ticket.number, ticket))
        if self._has_states:
            # Only one replica may take it, and it may not be the first to wake.
            self.changed.notify_all()
        else:
            self.changed.notify()

    def has_room(self, number: int) -> bool:
        """Whether the stage before may begin an item.

        One that is older than all that wait here always may: they may wait for it.
        """
        waiting = [ready for ready in self._ready if ready]
        is_full = sum(map(len, waiting)) >= self._limit
        return not is_full or number < min(ready[0][0] for ready in waiting)

    def oldest(self, replica: int) -> int | None:
        """The number of the item that a replica may take next; None while there is none."""
        ready = self._ready[self._line(replica)]
        if not ready:
            return None
        number = ready[0][0]
        if self._has_states and number != self._expected[replica][0]:
            return None
        return number

    def take(self, replica: int) -> Ticket:
        """Remove the item that ``oldest`` names."""
        _, ticket = heapq.heappop(self._ready[self._line(replica)])
        if self._has_states:
            self._expected[replica].popleft()
        return ticket

    def discard(self) -> None:
        """Forget all items and wake every replica."""
        for ready in self._ready:
            ready.clear()
        self.changed.notify_all()

    def wake_held_back(self) -> None:
        """Let the replicas look again whether they may begin an item."""
        if self.is_held_back:
            self.is_held_back = False
            self.changed.notify_all()

    def _line(self, replica: int) -> int:
        """Where the items of a replica wait: without states all wait in one line."""
        return replica if self._has_states else 0
