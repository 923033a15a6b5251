"""How few measurements the search needs, on simulated hardware: costs known to 35 %, 2 % noise on each stage time.

    python studies/bench_search.py WORKLOADS [--seeds 20] [--graphs NAME,NAME] [--quick] [--json]
    python studies/bench_search.py --overhead

For the zoo's graphs and the graph files in the folder WORKLOADS (msr-fiddle/dnn-partitioning), into 4 and 8 stages: how many
splits are measured until the one a study would end with is within 1 % of the true optimum, final comparison included; for the
default sampler, Optuna's TPE, random splits and Coral's partitioner, and what the plan alone would lose. A zoo graph has times
by its ops' operations and bytes. Exits 1 where the default sampler needs more than median 4 (90th percentile 8) at 4 stages,
6 (10) at 8 stages. ``--overhead``: what a trial costs beside building and measuring.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import search_methods as methods
from search_methods import Case, Found

from autosplit import api, zoo
from autosplit.cli.output import emit_json, emit_table
from autosplit.cli.plan import read_graph
from autosplit.graph import FusedGraph
from autosplit.hardware import cache
from autosplit.planner import CostModel, to_workload
from autosplit.study.storage import quiet

STAGES = (4, 8)
BARS = {4: (4, 8), 8: (6, 10)}  # stages: median and 90th percentile of the trials
TRIALS = 20  # of a study at most, its own default
CAP = 60  # trials of the other samplers
QUICK = ("squeezenet", "inception_v1", "layer_resnet50")
FLOPS_MS, BYTES_MS, CALL_MS = (
    2e7,
    1e7,
    0.005,
)  # a core of a small machine: operations and bytes a ms, and what a call costs

Way = Callable[[Case, int], Sequence[methods.Measured]]
WAYS: Mapping[str, tuple[Way, int]] = {
    "planner": (methods.planner, TRIALS),
    "TPE indices": (methods.tpe_on_indices, CAP),
    "TPE shares": (methods.tpe_on_shares, CAP),
    "random": (methods.randomly, CAP),
    "Coral": (methods.coral, 0),
    "plan": (methods.plan_alone, 1),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", type=Path, nargs="?", help="folder with graph files")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--graphs", default="", help="names, separated by commas; all without")
    parser.add_argument("--ways", default=",".join(WAYS), help="which to compare, separated by commas")
    parser.add_argument("--quick", action="store_true", help="5 seeds of three graphs")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args()
    quiet()
    seeds = 5 if args.quick else args.seeds
    names = set(filter(None, args.graphs.split(","))) or (set(QUICK) if args.quick else set())
    rows = []
    for name, costs in graphs(args.workloads, names):
        for stages in STAGES:
            start = time.process_time()
            rows.append(row(name, costs, stages, seeds, args.ways.split(",")))
            print(f"{name} {stages} {time.process_time() - start:.0f} s", rows[-1], file=sys.stderr)
    emit_json(rows) if args.json else show(rows)
    return 0 if all(r["met"] for r in rows) else 1


def graphs(folder: Path | None, names: set[str]) -> Iterator[tuple[str, CostModel]]:
    """The cost models asked for, all without a name."""
    for name in zoo.NAMES:
        if not names or name in names:
            yield name, zoo_costs(name)
    files = sorted(folder.glob("*.json")) if folder and folder.is_dir() else []
    if not files:
        print(f"no graph files in '{folder}': the workloads are left out", file=sys.stderr)
    for file in files:
        if not names or file.stem in names:
            yield file.stem, read_graph(file)


def zoo_costs(name: str) -> CostModel:
    """A net of the zoo with times by its ops' operations and bytes; kept as a graph file, lowering it takes seconds."""

    def make(file: Path) -> None:
        graph = api.load_model(api.zoo_model(name)).graph
        costs = CostModel.from_graph(graph, [op_times(graph)])
        file.write_text(json.dumps(to_workload(costs)), encoding="utf-8")

    key = cache.digest(name, repr((FLOPS_MS, BYTES_MS, CALL_MS)))
    return read_graph(cache.keep(cache.folder() / "bench-search" / f"{name}-{key}.json", make))


def op_times(graph: FusedGraph) -> list[float]:
    """The roofline of each op, in ms: its operations or its bytes, whichever takes longer, and its call."""
    times = []
    for op in graph.ops:
        moved = op.weight_bytes + sum(graph.tensors[t].bytes for t in (*op.inputs, *op.outputs))
        times.append(max(op.flops / FLOPS_MS, moved / BYTES_MS) + CALL_MS)
    return times


def row(name: str, costs: CostModel, stages: int, seeds: int, ways: Sequence[str]) -> dict[str, object]:
    """What each way needs on one graph."""
    cases = [Case(costs, stages, seed) for seed in range(seeds)]
    found = {way: [methods.judge(case, WAYS[way][0](case, WAYS[way][1])) for case in cases] for way in ways}
    line: dict[str, object] = {"graph": name, "ops": len(costs.names), "stages": stages}
    for way, results in found.items():
        line[way] = summary(results)
    middle, high = BARS[stages]
    own = line.get("planner")
    line["met"] = not isinstance(own, dict) or (own["trials"] <= middle and own["trials 90 %"] <= high)
    return line


def summary(found: Sequence[Found]) -> dict[str, float]:
    return {
        "first": median(f.trials for f in found),
        "trials": median(f.settled for f in found),
        "trials 90 %": percentile([f.settled for f in found]),
        "duelled": median(f.duelled for f in found),
        "duelled 90 %": percentile([f.duelled for f in found]),
        "measured": median(f.measured for f in found),
        "loss": median(f.loss for f in found),
        "loss 90 %": percentile([f.loss for f in found]),
    }


def percentile(values: Sequence[float], share: float = 0.9) -> float:
    """The least value that at least ``share`` of all do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def show(rows: Sequence[Mapping[str, object]]) -> None:
    emit_table("search", list(rows[0]), [[str(v) for v in r.values()] for r in rows])


if __name__ == "__main__":
    sys.exit(main())
