"""Progress reports: sends the phases of long work, such as ``lowering``, to listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Listener = Callable[[str, Mapping[str, object]], None]
_listeners: list[Listener] = []
_steps = [""]


def report(phase: str, stages: Mapping[str, object] | None = None) -> None:
    """Tell every listener which phase begins.

    ``stages``: the stage that each thread runs, by the thread's hexadecimal identifier. It is the
    number of the stage, or text that begins with the number.
    """
    phase = f"{_steps[-1]}: {phase}" if _steps[-1] else phase
    for listener in _listeners:
        listener(phase, stages or {})


@contextmanager
def step(text: str) -> Iterator[None]:
    """Report the phases inside as parts of a step, such as ``candidate 3 of 20``."""
    _steps.append(text)
    try:
        yield
    finally:
        _steps.pop()


def listen(listener: Listener) -> None:
    """Call ``listener`` with each phase from now on."""
    _listeners.append(listener)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with each phase that is reported inside."""
    listen(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
