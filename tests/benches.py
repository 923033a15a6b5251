"""Splits along the devices of a bench, and a budget that a test can wait for."""

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.measure import Budget

BRIEF = Budget(seconds=0.05, share=0.5, items=4, latency_items=1)


def deployed(bench, stages):
    """A split along the devices of a bench, in its first runtime."""
    about = bench.description
    return Deployment.of_split(stages, about.devices, about.runtimes[:1] * len(stages))
