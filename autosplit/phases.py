"""The phases of long work, such as ``lowering``, for whoever listens: a command on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str], None]
_listeners: list[Listener] = []


def report(phase: str) -> None:
    """Tell every listener what is done next."""
    for listener in _listeners:
        listener(phase)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with each phase that is reported inside."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
