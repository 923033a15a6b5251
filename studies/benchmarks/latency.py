"""The least latency of the public workloads on accelerators and a CPU.

    python -m studies.benchmarks.latency FOLDER [--seconds S] [-o FILE]

FOLDER holds workloads of msr-fiddle/dnn-partitioning. Each is placed on as many accelerators as it
names, with half and with a quarter of the memory of all ops on each, within S seconds. The
collection has no answers, so the bar is the proof: a placement is at most 5 % above its bound.
Needs the extra ``plan``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autosplit.hardware.profiling.graph_file import read_graph_file
from autosplit.report.documents.placement import placement
from studies.benchmarks.result import arguments, at_most, finish

PARTS = 2, 4  # of the memory of all ops
GAP = 5.0  # percent
COLUMNS = ("workload", "accelerators", "memory", "latency", "bound", "gap %", "seconds")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, help="folder with graph files")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S")
    args = parser.parse_args()
    rows = list(placed(args.folder, args.seconds))
    bars = [at_most(f"{row[0]}, {row[2]}: gap, %", float(row[5]), GAP) for row in rows]
    return finish("latency", COLUMNS, rows, bars=bars, file=args.file)


def placed(folder: Path, seconds: float) -> Iterator[tuple[str, ...]]:
    """A row for each workload and each memory."""
    for file in sorted(folder.glob("*.json")):
        graph = read_graph_file(file)
        costs, accelerators, cpu_times = graph.costs, graph.stages("auto"), graph.cpu_times()
        for part in PARTS:
            limited = replace(costs, memory=(sum(costs.sizes) / part,))
            start = time.perf_counter()
            best = placement(limited, cpu_times, accelerators, seconds)
            spent = time.perf_counter() - start
            values = best["latency"], best["lower_bound"], 100 * best["gap"], spent
            yield costs.name, str(accelerators), f"1/{part}", *(f"{value:.2f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
