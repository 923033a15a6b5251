"""Memory that a process freed, given back to the system."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Give back what was freed: glibc keeps it, and lowering a model frees twice its weights. Elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
