"""The planner on public graphs and on ones with too many cuts to list, against common splits.

  python -m studies.benchmarks.planner [FOLDER] [--wide | --deployments | --clusters [N]] [-o FILE]

FOLDER holds the workloads of msr-fiddle/dnn-partitioning (any *.json graph file of that format).
Printed are, for each workload and number of stages: downsets, period, proven bound, gap, processor
seconds, and by how many percent each baseline's period is longer. Bars: graph files are solved to
the proven optimum, in 3 s together; wide graphs within 5 % of the bound.

With ``--deployments``, stages with replicas on equal cores, where a replica may hold the whole
model, a half, a third and a quarter of it: the periods of a pure pipeline (the best found in 1 s),
of replicas of the whole model, and of the best deployment. Bars: every deployment is proven the
best, none is worse than a pipeline or replicas, none takes more than 5 s.

With ``--clusters``, on N seeded clusters of 2 to 6 unlike devices (default 200): how much longer
the period is when ranges of layers follow a rule of other programs, and how often one exceeds a
memory limit. Bars: every plan is proven the best, none is worse than a rule.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from autosplit import cuts, planner
from autosplit.hardware.profiling.graph_file import from_document, read_graph_file
from autosplit.planner import CostModel, Question
from studies.benchmarks import planned_baselines as rules
from studies.benchmarks.planned_baselines import is_over, planned_or_none
from studies.benchmarks.result import Bar, arguments, at_most, finish

STAGES = (2, 3, 4, 6)
WIDE_STAGES = (4, 8)
WIDE_SECONDS = 10.0
EXACT_GAP, WIDE_GAP, SECONDS = 1e-4, 5.0, 3.0  # percent, percent, of all graph files together
CORES = (6, 16)
SHARES = {"1": 1.0, "1/2": 1 / 2, "1/3": 1 / 3, "1/4": 1 / 4}  # of the model a replica holds
DEPLOYMENT_SECONDS, PIPELINE_SECONDS = 5.0, 1.0


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="folder with graph files")
    large = "also 20 NASNet-like cells, 64 parallel chains and 24 blocks of experts, 10 s each"
    parser.add_argument("--wide", action="store_true", help=large)
    parser.add_argument("--deployments", action="store_true", help="plan for equal cores")
    parser.add_argument("--clusters", type=int, nargs="?", const=200, metavar="N")
    args = parser.parse_args()
    files = list(map(read_graph_file, sorted(args.folder.glob("*.json")))) if args.folder else []
    public = [file.costs for file in files]
    if args.clusters:
        return rules.compare_on_clusters(public or synthetic(), args.clusters, args.file)
    if args.deployments:
        return deployments([*public, *synthetic()], args.file)
    asked = [(file.costs, n) for file in files for n in STAGES if n <= (file.limit or n)]
    wide_graphs = (cells(20), chains(64, 10), experts(24, 16)) if args.wide else ()
    exact = [measure(*each) for each in asked]
    wide = [measure(costs, n, WIDE_SECONDS) for costs in wide_graphs for n in WIDE_STAGES]
    note = (
        "columns from ops to 1 order: by how many percent the period of that way is longer; "
        "empty where it finds none"
    )
    rows = [*exact, *wide]
    if not rows:
        parser.error("nothing to plan; give a folder with graph files, or --wide")
    return finish("planner", rows, notes=[note], bars=bars(exact, wide), file=args.file)


def bars(exact: Sequence[Mapping[str, Any]], wide: Sequence[Mapping[str, Any]]) -> Iterator[Bar]:
    """The bars for the rows of graph files and for those of wide graphs."""
    if exact:
        gap = max(row["gap %"] for row in exact)
        yield at_most("largest gap of a graph file, %", gap, EXACT_GAP)
        yield at_most("seconds for all graph files", sum(row["seconds"] for row in exact), SECONDS)
    if wide:
        yield at_most("largest gap of a wide graph, %", max(row["gap %"] for row in wide), WIDE_GAP)


def measure(costs: CostModel, stages: int, seconds: float = math.inf) -> dict[str, Any]:
    """One row of the table."""
    start, deadline = time.process_time(), is_over(seconds)
    best = planner.partition(costs, Question.of_split(stages), deadline=deadline)
    spent = time.process_time() - start
    count = cuts.count(costs.contraction)
    longer = {
        way: plan and 100 * (plan.period / best.period - 1)
        for way, plan in rules.planned_baselines(costs, stages).items()
    }
    return {
        "workload": costs.name,
        "downsets": count.total if count.complete else None,
        "K": stages,
        "period": best.period,
        "bound": best.lower_bound,
        "gap %": 100 * best.gap,
        "seconds": spent,
        **longer,
    }


def deployments(models: Sequence[CostModel], file: Path | None) -> int:
    """The table of stages with replicas."""
    cases = [(costs, n, share) for costs in models for n in CORES for share in SHARES]
    rows = [deployment_row(*case) for case in cases]
    planned = [row for row in rows if row["best"] is not None]
    slowest = max(row["seconds"] for row in rows)
    gap = 100 * max(row["best"] / row["bound"] - 1 for row in planned)
    bars = [
        at_most("largest gap, %", gap, EXACT_GAP),
        at_most("largest loss against a corner, %", max(map(loss, planned)), EXACT_GAP),
        at_most("processor seconds of one deployment", slowest, DEPLOYMENT_SECONDS),
    ]
    notes = ["shape: the replicas of each stage; empty where nothing fits"]
    return finish("deployments", rows, notes=notes, bars=bars, file=file)


def synthetic() -> list[CostModel]:
    """Graphs in which the size of each op is equal to its time."""
    graphs = (cells(2), chains(3, 12), chains(1, 48))
    return [replace(costs, sizes=costs.rows[0].times) for costs in graphs]


def deployment_row(costs: CostModel, cores: int, share: str) -> dict[str, Any]:
    """The periods of the corners and of the best deployment, None where they do not fit."""
    limited = costs.with_memory(sum(costs.sizes) * SHARES[share])
    start = time.process_time()
    best = planned_or_none(limited, Question.of_cores(cores))
    seconds = time.process_time() - start
    question = Question.of_split(cores, empty=True)
    pipeline = planned_or_none(limited, question, deadline=is_over(PIPELINE_SECONDS))
    whole = planned_or_none(limited, Question.of_split(1))
    return {
        "graph": costs.name,
        "cores": cores,
        "memory": share,
        "pipeline": pipeline and pipeline.period,
        "replicas": whole and whole.period / cores,
        "best": best and best.period,
        "bound": best and best.lower_bound,
        "shape": best and " ".join(str(stage.replicas) for stage in best.stages),
        "seconds": seconds,
    }


def loss(row: Mapping[str, Any]) -> float:
    """By how many percent the best deployment is worse than the better corner."""
    corners = [period for period in (row["pipeline"], row["replicas"]) if period is not None]
    return 100 * (row["best"] / min(corners) - 1) if corners else 0.0


def cells(number: int) -> CostModel:
    """NASNet-like: each cell joins five pairs of branches that read the two cells before it."""
    random = Random(0)
    edges, n, before, last = [(0, 1)], 2, 0, 1
    for _ in range(number):
        states, used = [n, n + 1], set()
        edges += [(before, n), (last, n + 1)]
        n += 2
        for _ in range(5):
            sources = random.choices(states, k=2)
            used.update(sources)
            edges += [(s, n + 2 * i) for i, s in enumerate(sources)] + [(n, n + 1), (n + 2, n + 3)]
            edges += [(n + 1, n + 4), (n + 3, n + 4)]
            states.append(n + 4)
            n += 5
        edges += [(s, n) for s in states[2:] if s not in used]
        before, last, n = last, n, n + 1
    return costed(f"{number} cells", n, edges)


def chains(number: int, length: int) -> CostModel:
    starts = range(0, number * length, length)
    edges = [(s + i, s + i + 1) for s in starts for i in range(length - 1)]
    return costed(f"{number} chains of {length}", number * length, edges)


def experts(blocks: int, width: int) -> CostModel:
    """Mixtures of experts: each block's experts read its router, and its last op reads them all."""
    edges: list[tuple[int, int]] = []
    for router in range(1, blocks * (width + 2), width + 2):
        last = router + width + 1
        edges += [(router - 1, router), (router - 1, last)]
        for expert in range(router + 1, last):
            edges += [(router, expert), (expert, last)]
    return costed(f"{blocks} blocks of {width} experts", blocks * (width + 2) + 1, edges)


def costed(name: str, n: int, edges: list[tuple[int, int]]) -> CostModel:
    """Seeded times of 0.2 to 2, transfers of a tenth of that."""
    random = Random(1)
    moves = {source: random.uniform(0.02, 0.2) for source in sorted({a for a, _ in edges})}
    free = {"supportedOnFpga": 1, "size": 0.0}
    document = {
        "maxSizePerFPGA": math.inf,
        "nodes": [{**free, "id": i, "fpgaLatency": random.uniform(0.2, 2)} for i in range(n)],
        "edges": [{"sourceId": a, "destId": b, "cost": moves[a]} for a, b in edges],
    }
    return from_document(document, name)


if __name__ == "__main__":
    sys.exit(main())
