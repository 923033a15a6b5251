"""External backends by name, for where only text can be given: study files and worker processes.

An installed package offers one under the entry point group ``autosplit.backends``: a function without arguments that
registers the code generator and returns a Backend. Without such a package TVM's own registry is asked for patterns.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import replace

from autosplit.errors import ConfigError, MachineError
from autosplit.lowering.external.composites import Backend

GROUP = "autosplit.backends"


def named(
    name: str,
    merge: bool = True,
    markers: Sequence[str] = (),
    keep_together: Sequence[Sequence[str]] = (),
) -> Backend:
    """The backend ``name``; ``markers`` add to its own, ``keep_together`` are regions no cut may part.

    Raises MachineError where its package fails, ConfigError where that returns something else.
    """
    found = next(iter(importlib.metadata.entry_points(group=GROUP, name=name)), None)
    backend = Backend(name)
    if found is not None:
        try:
            backend = found.load()()
        except Exception as error:
            raise MachineError(
                f"backend '{name}' of {found.value} does not load: {error}; repair its package"
            ) from error
        if not isinstance(backend, Backend) or backend.name != name:
            raise ConfigError(
                f"entry point '{name}' of {GROUP} gives {backend!r}, not a Backend called '{name}'"
            )
    return replace(
        backend,
        merge=backend.merge and merge,
        markers=(*backend.markers, *(m for m in markers if m not in backend.markers)),
        regions=tuple(map(tuple, keep_together)),
    )
