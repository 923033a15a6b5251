"""A bounded first-in first-out channel between two threads that either side, or a third, can close."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel was closed: nothing more can be put, and what it held is gone."""


class Channel(Generic[T]):
    """``put`` waits while ``capacity`` messages wait to be taken; ``take`` waits for one. Both raise Closed once closed.

    The standard queue learns to shut down only with Python 3.13.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[T] = deque()
        self._changed = Condition()
        self._closed = False

    def put(self, message: T) -> None:
        """Hand a message on; blocks while the channel is full."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._messages) < self._capacity)
            if self._closed:
                raise Closed
            self._messages.append(message)
            self._changed.notify_all()

    def take(self) -> T:
        """The oldest message; blocks while there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._messages))
            if self._closed:
                raise Closed
            message = self._messages.popleft()
            self._changed.notify_all()
            return message

    def close(self) -> None:
        """Wake everybody who waits; can be called twice."""
        with self._changed:
            self._closed = True
            self._messages.clear()
            self._changed.notify_all()
