"""External backends, given by object or by name, and the regions of ops that the user asks for.

Study files and worker processes can give only a name. An installed package offers a backend under
the entry point group ``autosplit.backends``: a function without arguments that registers the code
generator and returns a Backend. Without such a package the patterns come from TVM's own registry.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from autosplit.errors import ConfigError, MachineError, SplitError
from autosplit.graph import FusedGraph, ops_named
from autosplit.lowering.convex import require_convex

GROUP = "autosplit.backends"


@dataclass(frozen=True)
class Backend:
    """An external backend: the code generator ``relax.ext.<name>``.

    - ``patterns``: TVM FusionPatterns or the tuples that make one, named ``<name>.<layer>``; the
      first that matches wins. By default, those in TVM's registry whose names begin so.
    - ``merge``: neighbouring layers in a stage become one region.
    - ``markers``: Relax ops (``relax.astype``) that do not break a region. A marker between two
      layers becomes a layer too, ``<name>.astype``.
    - ``regions``: groups of ops or source nodes that stay together.
    """

    name: str
    patterns: tuple[Any, ...] = ()
    merge: bool = True
    markers: tuple[str, ...] = ()
    regions: tuple[tuple[str, ...], ...] = ()


def named(
    name: str,
    merge: bool = True,
    markers: Sequence[str] = (),
    keep_together: Sequence[Sequence[str]] = (),
) -> Backend:
    """The backend ``name``, with ``markers`` added to its own and ``keep_together`` as its regions.

    Raises MachineError if its package fails, ConfigError if that returns something else.
    """
    backend = _installed(name) or Backend(name)
    return replace(
        backend,
        # A backend that cannot merge never merges, whatever the user asks for.
        merge=backend.merge and merge,
        markers=tuple(dict.fromkeys((*backend.markers, *markers))),
        regions=tuple(map(tuple, keep_together)),
    )


def _installed(name: str) -> Backend | None:
    entry = next(iter(importlib.metadata.entry_points(group=GROUP, name=name)), None)
    if entry is None:
        return None
    try:
        backend = entry.load()()
    except Exception as error:
        raise MachineError(
            f"backend '{name}' of {entry.value} does not load: {error}; repair its package"
        ) from error
    if not isinstance(backend, Backend) or backend.name != name:
        raise ConfigError(
            f"entry point '{name}' of {GROUP} returns {backend!r}, not a Backend called '{name}'"
        )
    return backend


def groups(
    graph: FusedGraph, ops_of: Mapping[str, Sequence[int]], backends: Sequence[Backend]
) -> tuple[tuple[int, ...], ...]:
    """The op indices of every region the backends ask for; ``ops_of`` are the ops of each backend.

    Raises SplitError, naming the ops, if an op is unknown or not one of the backend's, and if a
    region is not convex; then the message names the missing ops.
    """
    regions: list[tuple[int, ...]] = []
    for backend in backends:
        for names in backend.regions:
            try:
                by_name = {name: ops_named(graph, name) for name in names}
                for name, ops in by_name.items():
                    if not set(ops).issubset(ops_of.get(backend.name, ())):
                        raise SplitError(f"no pattern matches '{name}'; leave it out or add one")
                regions.append(require_convex(graph, chain.from_iterable(by_name.values())))
            except SplitError as error:
                raise SplitError(
                    f"a region of backend '{backend.name}' cannot run as one: {error}"
                ) from error
    return tuple(regions)
