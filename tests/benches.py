"""Splits along the devices of a bench."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.deployment import Deployment
from autosplit.hardware.bench.interface import Bench


def deployed(
    bench: Bench, stages: Sequence[Sequence[int]], runtimes: Sequence[str] = ()
) -> Deployment:
    """A split along the devices of a bench, in its first runtime or in one for each stage."""
    names = runtimes or [bench.description.runtimes[0]] * len(stages)
    return Deployment.of_split(stages, bench.description.devices, names)
