"""Splits along the devices of a bench."""

from autosplit.deployment import Deployment


def deployed(bench, stages, runtimes=()):
    """A split along the devices of a bench, in its first runtime or in one for each stage."""
    names = runtimes or [bench.description.runtimes[0]] * len(stages)
    return Deployment.of_split(stages, bench.description.devices, names)
