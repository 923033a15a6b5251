"""Graph files on disk: the costs of a graph as JSON, in the format of ``planner.problem``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, GraphError
from autosplit.planner import CostModel, cpu_times, from_workload, to_workload

GRAPH_LIMIT = 64_000_000  # bytes


def read_graph(path: Path) -> CostModel:
    """The cost model of a graph file. Raises GraphError where it is unreadable or malformed."""
    return _read(path)[0]


def graph_and_stages(path: Path) -> tuple[CostModel, int]:
    """The cost model of a graph file, and its number of devices, or else its ``maxFPGAs``.

    Raises GraphError where it is unreadable, malformed or has no such number.
    """
    costs, document = _read(path)
    if costs.devices is not None:
        return costs, costs.devices
    stages = document.get("maxFPGAs")
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
        raise GraphError(
            f"{path}: maxFPGAs is {stages!r}, so --stages auto has no limit; "
            "give a number of stages"
        )
    return costs, stages


def read_cpu_times(path: Path, costs: CostModel) -> tuple[float, ...]:
    """The time of each op of a graph file on a CPU. Raises GraphError where a node has none."""
    _, document = _read(path)
    try:
        return cpu_times(document, costs)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def save_graph(path: Path, costs: CostModel, stages: int) -> None:
    """Write a graph file for up to ``stages`` stages. Raises ConfigError where it cannot."""
    text = json.dumps(to_workload(costs, stages), indent=1, allow_nan=False)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); name another file"
        ) from error


def _read(path: Path) -> tuple[CostModel, Any]:
    """The costs and the whole document."""
    try:
        if path.stat().st_size > GRAPH_LIMIT:
            raise GraphError(f"is larger than {GRAPH_LIMIT} bytes; give a smaller graph file")
        document = json.loads(path.read_text(encoding="utf-8"))
        return from_workload(document, path.stem), document
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({error.strerror}); name a graph file") from error
    except (ValueError, RecursionError) as error:
        raise GraphError(
            f"{path}: is not JSON ({error}); see the format in the documentation"
        ) from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
