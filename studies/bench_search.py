"""How few measurements the search needs, on simulated hardware: costs known to 35 %, 2 % noise on each stage time.

    python studies/bench_search.py [WORKLOADS] [--seeds 20] [--graphs NAME,NAME] [--quick] [-o FILE]

For the zoo's graphs and the graph files in the folder WORKLOADS (msr-fiddle/dnn-partitioning), into 4 and 8 stages: how many
splits are measured until the one a study would end with is within 1 % of the true optimum, final comparison included; for the
default sampler, Optuna's TPE, random splits and Coral's partitioner, and what the plan alone would lose. A zoo graph has times
by its ops' operations and bytes. Bars for the default sampler, on each graph: median 4 (90th percentile 8) at 4 stages, 6 (10)
at 8 stages; a trial costs 100 ms at place 200, building and measuring aside.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import search_methods as methods
from outcome import Bar, arguments, at_most, finish
from search_methods import Case, Found

from autosplit import api, zoo
from autosplit.cli.plan import read_graph
from autosplit.graph import FusedGraph
from autosplit.hardware import cache
from autosplit.hardware.devices import available
from autosplit.planner import CostModel, to_workload
from autosplit.study.config import StudyConfig
from autosplit.study.correction import Measured
from autosplit.study.open import open_study
from autosplit.study.progress import Silent, Status
from autosplit.study.run import run_study
from autosplit.study.simulated import Simulation, chain
from autosplit.study.storage import quiet, storage_url

STAGES = (4, 8)
BARS = {4: (4, 8), 8: (6, 10)}  # stages: median and 90th percentile of the trials
TRIALS = 20  # of a study at most, its own default
CAP = 60  # trials of the other samplers
QUICK = ("squeezenet", "inception_v1", "layer_resnet50")
PLACE, COST_MS = 200, 100.0  # a trial far on in a study, and what it may cost
# a core of a small machine: operations and bytes a ms, and what a call costs
FLOPS_MS, BYTES_MS, CALL_MS = 2e7, 1e7, 0.005

Way = Callable[[Case, int], Sequence[Measured]]
WAYS: Mapping[str, tuple[Way, int]] = {
    "planner": (methods.planner, TRIALS),
    "TPE indices": (methods.tpe_on_indices, CAP),
    "TPE shares": (methods.tpe_on_shares, CAP),
    "random": (methods.randomly, CAP),
    "Coral": (methods.coral, 0),
    "plan": (methods.plan_alone, 1),
}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("workloads", type=Path, nargs="?", help="folder with graph files")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--graphs", default="", help="names, separated by commas; all without")
    parser.add_argument("--ways", default=",".join(WAYS), help="which to compare, separated by commas")
    parser.add_argument(
        "--jobs", type=int, default=len(available()), help="processes side by side (default: one a core)"
    )
    parser.add_argument("--quick", action="store_true", help="5 seeds of three graphs")
    args = parser.parse_args()
    quiet()
    seeds = 5 if args.quick else args.seeds
    names = set(filter(None, args.graphs.split(","))) or (set(QUICK) if args.quick else set())
    ways = args.ways.split(",")
    asked = [(name, costs, stages) for name, costs in graphs(args.workloads, names) for stages in STAGES]
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        rows = list(pool.map(row, *zip(*asked, strict=True), repeat(seeds), repeat(ways)))
    cells = [(r["graph"], r["ops"], r["stages"], *(told(way, r[way]) for way in ways)) for r in rows]
    notes = [
        f"{seeds} seeds a row; measured trials until it would end within 1 % of the optimum: median (90th percentile)",
        "Coral: of how many candidates it measures; plan: how far above the optimum the plan alone is",
    ]
    cost = [at_most(f"processor ms that trial {PLACE} costs", trial_ms(PLACE), COST_MS)]
    return finish("search", ("graph", "ops", "K", *ways), cells, notes=notes, bars=[*bars(rows), *cost], file=args.file)


def bars(rows: Sequence[Mapping[str, Any]]) -> Iterator[Bar]:
    """What the default sampler must reach on every graph."""
    for stages, (middle, high) in BARS.items():
        own = [r["planner"] for r in rows if r["stages"] == stages and "planner" in r]
        if own:
            yield at_most(f"K = {stages}: largest median of trials", max(s["trials"] for s in own), middle)
            yield at_most(f"K = {stages}: largest 90th percentile", max(s["trials 90 %"] for s in own), high)


def told(way: str, found: Mapping[str, float]) -> str:
    """A cell of the table."""
    if way == "plan":
        return f"{100 * found['loss']:.1f} ({100 * found['loss 90 %']:.1f}) % off"
    trials, high = ("never" if math.isinf(n) else f"{n:g}" for n in (found["trials"], found["trials 90 %"]))
    return f"{trials} ({high})" + (f" of {found['measured']:g}" if way == "Coral" else "")


class Stamps(Silent):
    """Notes the processor time at which each trial ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def trial(self, status: Status) -> None:
        self.ends.append(time.process_time())


def trial_ms(place: int) -> float:
    """The median over ten trials around a place of what one costs, in processor ms: sampler, SQLite, attributes."""
    bench, stamps = chain(60, [f"cores:{i}" for i in range(4)], Simulation()), Stamps()
    search = {"trials": place + 5, "converge": False}
    config = StudyConfig.model_validate({"name": "cost", "backend": "simulated", "stages": 4, "search": search})
    with tempfile.TemporaryDirectory() as folder:
        url = storage_url("cost", str(Path(folder) / "cost.db"))
        run_study(open_study(config, bench, url, stamps), stamps)
    return 1e3 * median(b - a for a, b in pairwise(stamps.ends[place - 6 :]))


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


def row(name: str, costs: CostModel, stages: int, seeds: int, ways: Sequence[str]) -> dict[str, Any]:
    """What each way needs on one graph."""
    quiet()
    start = time.process_time()
    cases = [Case(costs, stages, seed) for seed in range(seeds)]
    found = {way: [methods.judge(case, WAYS[way][0](case, WAYS[way][1])) for case in cases] for way in ways}
    print(f"{name}, {stages} stages: {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
    known = {"graph": name, "ops": len(costs.names), "stages": stages}
    return known | {way: summary(results) for way, results in found.items()}


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


if __name__ == "__main__":
    sys.exit(main())
