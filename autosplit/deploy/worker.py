"""The worker process of a study: it measures, and exports a split with its compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.deployment import Deployment
from autosplit.hardware.bench import isolated
from autosplit.hardware.isolation.worker import Handler

if TYPE_CHECKING:
    from autosplit.hardware.bench.local import LocalBench


def open_bench(setting: Mapping[str, Any]) -> Handler:
    """The handler of a worker; see ``hardware.bench.isolated.open_bench``."""
    return isolated.open_bench(setting, {"export": export})


def export(bench: LocalBench, deployment: Deployment, **target: Any) -> Path:
    """See Bench."""
    from autosplit.deploy.export import write_split

    with bench.reached():
        return write_split(bench.model, deployment, **target)
