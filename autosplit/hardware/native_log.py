"""Keeps the lines that C++ code logs away from the terminal and from results.

TVM's speak of TVM's insides and no option turns them off. Standard error's descriptor leads through
a pipe, whose reader passes on every other line.
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
_inside = 0  # contexts, of all threads


@contextlib.contextmanager
def hidden(hide: bool = True, in_program: bool = False) -> Iterator[None]:
    """While in the context, drop the lines that TVM writes to standard error.

    Contexts nest, and overlap in threads; what the first one does counts. One that does not
    ``hide`` shows everything. ``in_program``: Python's own stream goes past the pipe, so it is
    still a terminal where it was one; what took the stream meanwhile cannot use it afterwards.
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
    except OSError:  # whoever started the program has closed it
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
            # The last writer's end closes with it, and the reader sees the end of the pipe.
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
