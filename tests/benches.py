"""Splits along the devices of a bench, and a budget that a test can wait for."""

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.measure import Budget

BRIEF = Budget(seconds=0.05, share=0.5, items=4, latency_items=1)


def deployed(bench, stages, runtimes=()):
    """A split along the devices of a bench, in its first runtime or in one for each stage."""
    names = runtimes or [bench.description.runtimes[0]] * len(stages)
    return Deployment.of_split(stages, bench.description.devices, names)
