"""A bounded first-in first-out channel between threads, which any thread can close."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel is closed, and its messages are discarded."""


class Channel(Generic[T]):
    """Every method but ``close`` raises Closed once the channel is closed.

    The standard queue can be shut down only from Python 3.13 on.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[T] = deque()
        self._changed = Condition()
        self._is_closed = False

    def put(self, message: T) -> None:
        """Append a message; waits while the channel is full."""
        with self._changed:
            self._wait_for_room()
            self._messages.append(message)
            self._changed.notify_all()

    def take(self) -> T:
        """Remove the oldest message; waits while there is none."""
        with self._changed:
            self._wait_for_message()
            self._changed.notify_all()  # a sender may wait for the room
            return self._messages.popleft()

    def peek(self) -> T:
        """The oldest message, left in place; waits while there is none."""
        with self._changed:
            self._wait_for_message()
            return self._messages[0]

    def wait_for_room(self) -> None:
        """Wait while the channel is full."""
        with self._changed:
            self._wait_for_room()

    def close(self) -> None:
        """Discard the messages and wake everybody who waits. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._messages.clear()
            self._changed.notify_all()

    def _wait_for_room(self) -> None:
        self._changed.wait_for(lambda: self._is_closed or len(self._messages) < self._capacity)
        if self._is_closed:
            raise Closed

    def _wait_for_message(self) -> None:
        self._changed.wait_for(lambda: self._is_closed or bool(self._messages))
        if self._is_closed:
            raise Closed
