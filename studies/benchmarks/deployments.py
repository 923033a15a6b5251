"""Stages, replicas and threads on equal cores: what each corner loses against the best deployment.

  python -m studies.benchmarks.deployments [FOLDER] [--cores 6 16] [-o FILE]

FOLDER holds graph files in the format of msr-fiddle/dnn-partitioning. Planned are those and graphs
made here, on each number of cores, where a replica holds the whole model, a half, a third and a
quarter of it. Printed are the periods of a pure pipeline (at most a stage a core, the best found
in 1 s), of replicas of the whole model, and of the best deployment, its proven bound, the replicas
of its stages and processor seconds. Bars: every deployment is proven the best and none is worse
than a corner; none takes more than 5 s.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autosplit.errors import Infeasible
from autosplit.hardware.profiling.graph_file import read_graph
from autosplit.planner import CostModel, Plan, Question, partition
from studies.benchmarks.planner import cells, chains
from studies.benchmarks.result import arguments, at_most, finish

SHARES = {"1": 1.0, "1/2": 1 / 2, "1/3": 1 / 3, "1/4": 1 / 4}  # of the model a replica holds
SECONDS, PIPELINE_SECONDS = 5.0, 1.0
COLUMNS = ("graph", "cores", "memory", "pipeline", "replicas", "best", "bound", "shape", "seconds")


@dataclass(frozen=True)
class Row:
    """The periods of the corners, None where they do not fit, and the best deployment."""

    graph: str
    cores: int
    share: str
    pipeline: float | None
    replicas: float | None
    best: Plan | None
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """As a row of the table."""
        shape, bound = "", None
        if self.best is not None:
            shape = " ".join(str(stage.replicas) for stage in self.best.stages)
            bound = self.best.lower_bound
        period = None if self.best is None else self.best.period
        periods = [_cell(p) for p in (self.pipeline, self.replicas, period, bound)]
        return self.graph, str(self.cores), self.share, *periods, shape, f"{self.seconds:.2f}"

    @property
    def loss(self) -> float:
        """By how many percent the best deployment is worse than the better corner."""
        corners = [p for p in (self.pipeline, self.replicas) if p is not None]
        if self.best is None or not corners:
            return 0.0
        return 100 * (self.best.period / min(corners) - 1)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="folder with graph files")
    parser.add_argument("--cores", type=int, nargs="+", default=[6, 16], metavar="N")
    args = parser.parse_args()
    rows = []
    for costs in graphs(args.folder):
        for cores in args.cores:
            rows += [measure(costs, cores, share) for share in SHARES]
    deployments = [row.best for row in rows if row.best is not None]
    bars = [
        at_most("largest gap, %", max(100 * best.gap for best in deployments), 1e-4),
        at_most("largest loss against a corner, %", max(row.loss for row in rows), 1e-4),
        at_most("processor seconds of one deployment", max(r.seconds for r in rows), SECONDS),
    ]
    notes = ["shape: the replicas of each stage; empty where nothing fits"]
    return finish(
        "deployments", COLUMNS, [r.cells for r in rows], notes=notes, bars=bars, file=args.file
    )


def graphs(folder: Path | None) -> Iterator[CostModel]:
    """The graph files, and graphs made here whose ops weigh as much as they take time."""
    for file in sorted(folder.glob("*.json")) if folder else ():
        yield read_graph(file)
    for costs in (cells(2), chains(3, 12), chains(1, 48)):
        yield replace(costs, sizes=costs.rows[0].times)


def measure(costs: CostModel, cores: int, share: str) -> Row:
    """One row of the table."""
    limited = costs.with_memory(sum(costs.sizes) * SHARES[share])
    start = time.process_time()
    try:
        best: Plan | None = partition(limited, Question.of_cores(cores))
    except Infeasible:
        best = None
    seconds = time.process_time() - start
    try:
        question = Question.of_split(cores, empty=True)
        pipeline: float | None = partition(limited, question, deadline=_deadline()).period
    except Infeasible:
        pipeline = None
    one = Question.of_split(1)
    whole = partition(limited, one).period / cores if SHARES[share] == 1 else None
    return Row(costs.name, cores, share, pipeline, whole, best, seconds)


def _deadline() -> Callable[[], bool]:
    """The time for a pipeline; its period may be above the least then, which no bar is about."""
    end = time.process_time() + PIPELINE_SECONDS
    return lambda: time.process_time() > end


def _cell(period: float | None) -> str:
    return "" if period is None else f"{period:.4f}"


if __name__ == "__main__":
    sys.exit(main())
