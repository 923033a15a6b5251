"""Graph files on disk: the costs of a graph as JSON, in the format of ``planner.problem``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.errors import ConfigError, GraphError
from autosplit.planner import CostModel, from_workload, to_workload

GRAPH_LIMIT = 64_000_000  # bytes


@dataclass(frozen=True)
class GraphFile:
    """The costs of a graph file, and its document for what else it says."""

    path: Path
    costs: CostModel
    document: Any

    def stages(self, number: int | str) -> int:
        """``number``, or for "auto" the number of devices, or else ``maxFPGAs``.

        Raises GraphError where the file has no such number.
        """
        if number != "auto":
            return int(number)
        stages = self.costs.devices or self.document.get("maxFPGAs")
        if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
            raise GraphError(
                f"{self.path}: maxFPGAs is {stages!r}, so --stages auto has no limit; "
                "give a number of stages"
            )
        return stages

    def device_note(self, stages: int) -> str:
        """What to say of more stages than the file has devices; empty for as many or fewer."""
        most = self.document.get("maxFPGAs")
        if not isinstance(most, int) or isinstance(most, bool) or stages <= most:
            return ""
        return f"{stages} stages are more than the {most} devices of the file (maxFPGAs)"


def read_graph(path: Path) -> CostModel:
    """The cost model of a graph file. Raises GraphError where it is unreadable or malformed."""
    return read_graph_file(path).costs


def save_graph(path: Path, costs: CostModel, stages: int) -> None:
    """Write a graph file for up to ``stages`` stages. Raises ConfigError where it cannot."""
    text = json.dumps(to_workload(costs, stages), indent=1, allow_nan=False)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); name another file"
        ) from error


def read_graph_file(path: Path) -> GraphFile:
    """A graph file. Raises GraphError where it is unreadable or malformed."""
    try:
        if path.stat().st_size > GRAPH_LIMIT:
            raise GraphError(f"is larger than {GRAPH_LIMIT} bytes; give a smaller graph file")
        document = json.loads(path.read_text(encoding="utf-8"))
        return GraphFile(path, from_workload(document, path.stem), document)
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({error.strerror}); name a graph file") from error
    except (ValueError, RecursionError) as error:
        raise GraphError(
            f"{path}: is not JSON ({error}); see the format in the documentation"
        ) from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
