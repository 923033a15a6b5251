"""The threads of OpenVINO, which stay on the cores of the stages that use them.

OpenVINO takes a number of threads, not cores. A model with one thread runs in the calling thread.
One with more also uses workers of a pool that all models of the process share. A worker can serve
any model and may run on all cores of the process, so a stage with several threads runs in this
process only where it has all of them. One on some of them has a process of its own.

OpenVINO's own pinning (ENABLE_CPU_PINNING) was tried: it picks the cores by itself, two models get
the same ones, and the calling thread is released to all cores after every inference. With
ENABLE_CPU_RESERVATION models get different cores, again not those one asks for, and a reserved core
serves no second model: compiling one fails.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

# Whether hwloc, by which OpenVINO binds threads, may take the topology for that of this machine.
_HWLOC_BINDS = "HWLOC_THISSYSTEM"
_initialising = threading.Lock()
_is_initialised = False


@contextlib.contextmanager
def without_binding() -> Iterator[None]:
    """Inside, OpenVINO is first used in the process.

    In every inference OpenVINO's scheduler binds its threads, the calling one included, to all
    cores of the process, even with pinning disabled. It does so by hwloc, which is initialised once
    and does not bind if it takes the topology for that of another machine.
    """
    global _is_initialised
    if _is_initialised:
        yield
        return
    with _initialising:
        before = os.environ.get(_HWLOC_BINDS)
        os.environ[_HWLOC_BINDS] = "0"
        try:
            yield
            _is_initialised = True
        finally:
            del os.environ[_HWLOC_BINDS]
            if before is not None:
                os.environ[_HWLOC_BINDS] = before
