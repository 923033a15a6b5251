"""Regions that the user asks for: ops of one external backend that no cut may part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosplit.errors import SplitError
from autosplit.graph import FusedGraph
from autosplit.lowering.external.composites import Backend, Composite
from autosplit.lowering.extract import require_convex


def groups(
    graph: FusedGraph, composites: Mapping[str, Composite], backends: Sequence[Backend]
) -> tuple[tuple[int, ...], ...]:
    """The op indices of every region the backends ask for.

    Raises SplitError naming the ops where one is unknown or not the backend's, and where a region is not convex, with the
    path that leaves it and returns.
    """
    return tuple(
        _group(graph, composites, backend, names)
        for backend in backends
        for names in backend.regions
    )


def _group(
    graph: FusedGraph, composites: Mapping[str, Composite], backend: Backend, names: Sequence[str]
) -> tuple[int, ...]:
    ops: list[int] = []
    for name in names:
        found = [i for i, op in enumerate(graph.ops) if name == op.name or name in op.sources]
        if not found:
            raise SplitError(
                f"region of backend '{backend.name}' names '{name}', which is no op and no source node"
            )
        for i in found:
            composite = composites.get(graph.ops[i].kernel)
            if composite is None or composite.backend.name != backend.name:
                raise SplitError(
                    f"region of backend '{backend.name}' holds op '{graph.ops[i].name}' (named '{name}'), which none of its "
                    f"patterns matches; leave it out or add a pattern"
                )
        ops += found
    try:
        return require_convex(graph, ops)
    except SplitError as error:
        raise SplitError(
            f"a region of backend '{backend.name}' cannot run as one: {error}"
        ) from error
