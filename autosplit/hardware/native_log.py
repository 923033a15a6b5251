"""Hides the log lines of C++ code from the terminal and from results.

TVM's log lines are about its internals, and no option turns them off. Standard error's descriptor
is redirected to a pipe, whose reader drops these lines and passes on all the others.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator

_LOGGED = re.compile(rb"\[\d\d:\d\d:\d\d\] \S+\.(cc|h|cpp):\d+:|note: run with `TVM_BACKTRACE")
_STDERR = 2
_DRAIN_S = 1.0  # child processes may keep the pipe open

_lock = threading.Lock()
_outermost = contextlib.ExitStack()
_inside = 0  # open contexts in all threads


@contextlib.contextmanager
def hidden(hide: bool = True, in_program: bool = False) -> Iterator[None]:
    """While in the context, drop the lines that TVM writes to standard error.

    Contexts may nest, and overlap in threads; the first one decides for all. Without ``hide``
    all lines are shown. ``in_program``: ``sys.stderr`` bypasses the pipe, so that it stays a
    terminal if it was one; code that keeps this stream cannot use it after the context.
    """
    global _inside
    with _lock:
        if hide and not _inside:
            _outermost.enter_context(_through_a_pipe(in_program))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _outermost.close()


@contextlib.contextmanager
def _through_a_pipe(in_program: bool) -> Iterator[None]:
    try:
        terminal = os.dup(_STDERR)
    except OSError:  # standard error was already closed when the program started
        yield
        return
    reading, writing = os.pipe()
    reader = threading.Thread(target=_pass_on, args=(reading, terminal), daemon=True)
    python_stream = sys.stderr
    with contextlib.ExitStack() as streams:
        # A stream that a notebook or a test put there has nothing to do with the descriptor.
        if in_program and python_stream is sys.__stderr__ and python_stream:
            encoding, errors = python_stream.encoding, python_stream.errors
            past_the_pipe = streams.enter_context(
                open(terminal, "w", 1, encoding=encoding, errors=errors, closefd=False)
            )
            streams.enter_context(contextlib.redirect_stderr(past_the_pipe))
        if python_stream:
            python_stream.flush()
        os.dup2(writing, _STDERR)
        os.close(writing)
        reader.start()
        try:
            yield
        finally:
            # This closes the last write end of the pipe, so the reader sees its end.
            os.dup2(terminal, _STDERR)
            reader.join(_DRAIN_S)
    if not reader.is_alive():
        os.close(terminal)


def _pass_on(reading: int, terminal: int) -> None:
    with open(reading, "rb") as pipe:
        for line in pipe:
            if not _LOGGED.match(line):
                # The terminal may be gone.
                with contextlib.suppress(OSError):
                    os.write(terminal, line)
