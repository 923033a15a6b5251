"""How few measurements the search needs, on simulated hardware.

    python -m studies.benchmarks.search [FOLDER] [--seeds 20] [--graphs NAME,NAME] [-o FILE]
    python -m studies.benchmarks.search --deployments [--seeds 20] [-o FILE]
    python -m studies.benchmarks.search --overhead [-o FILE]

Graphs: the zoo's and the graph files in FOLDER (msr-fiddle/dnn-partitioning), split into 4 and 8
stages. Op costs are known to 35 %; each measured stage time has 2 % noise. Counted is the number
of trials after which the best measured split is within 1 % of the true optimum.

- A seed draws the hidden true costs (each op's known time times a lognormal factor) and the
  noise of every measurement. The true optimum is the exact plan for the true costs.
- A trial measures one split: a time for each of its stages. After its n-th trial a search is
  taken to end: the few best measured splits are compared once more, with a quarter of the
  noise, as at the end of a study, and the winner's true period is compared with the optimum.
  The result is the first n whose winner is within 1 %, infinite if there is none. The
  measurements of that final comparison are not counted.
- "ends after": the trials after which the study stops by itself, at most 20. "at loss %": how
  far the winner then is from the optimum, median / 90th percentile.

The default sampler: median / 90th percentile over the seeds. Medians over some of the seeds for
Optuna's TPE on the places of the cuts (with the plan as first trial) and for random splits, all
up to a cap (> 40: not within it); for Coral's partitioner the number of stages it measures, and
its loss; and the loss of the plan alone. A zoo graph has times by its ops' operations and bytes.
--deployments searches stages, replicas and threads instead, for a chain of 60 ops on 8 and 16
cores, where each busy core slows the others down by 2 % and a further thread adds 0.7 of a core.
Counted is the number of trials after which one is within 1 % of the optimum. --overhead measures
the time of a trial beside building and measuring."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, pairwise, product, repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from autosplit import api
from autosplit.graph import FusedGraph
from autosplit.hardware import cache
from autosplit.hardware.devices.device import available
from autosplit.hardware.profiling.graph_file import read_graph, save_graph
from autosplit.planner import CostModel
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.storage import silence_optuna_logs
from autosplit.study.surrogate.correction import Measured
from autosplit.zoo import catalog
from studies.benchmarks import search_deployments
from studies.benchmarks import search_methods as methods
from studies.benchmarks.finished_study import finished
from studies.benchmarks.result import Bar, arguments, at_most, finish, number, percentile
from studies.benchmarks.search_methods import Case, Found
from studies.simulation.bench import SimulatedBench, Simulation, costs_of, graph_of, on_devices

BARS = {4: (4, 8), 8: (6, 10)}  # stages: median and 90th percentile of the trials
TRIALS = 20  # of a study at most, its own default
CAP = 40  # trials of the other samplers
SHARE = 4  # the other ways are tried on every so many of the seeds
OVERHEAD_STAGES, OVERHEAD_TRIALS, OVERHEAD_MS = (4, 8), 210, 100.0
EARLY, LATE = 40, 190  # trials up to, and from which on, a median is taken
FLOPS_MS, BYTES_MS, CALL_MS = (
    2e7,
    1e7,
    0.005,
)  # a core of a small machine: operations and bytes a ms; ms for a call

Way = Callable[[Case, int], Sequence[Measured]]
SAMPLERS: Mapping[str, Way] = {"TPE": methods.tpe, "random": methods.randomly}
COLUMNS = (
    "graph",
    "ops",
    "K",
    "trials",
    "ends after",
    "at loss %",
    *SAMPLERS,
    "Coral: stages",
    "Coral: loss %",
    "plan: loss %",
)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="folder with graph files")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--graphs", default="", help="names, separated by commas; all without")
    parser.add_argument("--jobs", type=int, default=len(available()), help="processes side by side")
    parser.add_argument("--deployments", action="store_true", help="stages, replicas and threads")
    parser.add_argument("--overhead", action="store_true", help="the time of a trial")
    args = parser.parse_args()
    silence_optuna_logs()
    names, seeds = set(filter(None, args.graphs.split(","))), range(args.seeds)
    if args.overhead:
        return overhead(names or {"inception_v1", "densenet121"}, args.file)
    if args.deployments:
        with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
            return search_deployments.compare(pool, seeds, args.file)
    models = list(graphs(args.folder, names))
    asked = [(costs, stages) for _, costs in models for stages in BARS]
    keys = [(name, len(costs.names), stages) for name, costs in models for stages in BARS]
    with ProcessPoolExecutor(
        args.jobs, get_context("spawn")
    ) as pool:  # graph files take longest and stand last
        results = pool.map(compared, *zip(*reversed(asked), strict=True), repeat(seeds))
        by_graph = dict(zip(keys, reversed(list(results)), strict=True))
    notes = [
        f"trials: median / 90th percentile over the seeds {seeds[0]} to {seeds[-1]}; "
        "the other ways over "
        f"{len(seeds[::SHARE])} of them, up to {CAP} trials",
        *(
            []
            if args.folder
            else ["no folder with graph files was given: the shared workloads are left out"]
        ),
    ]
    rows = [(*map(str, key), *row(ways)) for key, ways in by_graph.items()]
    judged = {key: ways["planner"] for key, ways in by_graph.items()}
    return finish("search", COLUMNS, rows, notes=notes, bars=[*bars(judged)], file=args.file)


def graphs(folder: Path | None, names: set[str]) -> Iterator[tuple[str, CostModel]]:
    """The cost models asked for, all without a name."""
    for name in catalog.NAMES:
        if not names or name in names:
            yield name, zoo_costs(name)
    for file in sorted(folder.glob("*.json")) if folder else ():
        if not names or file.stem in names:
            yield file.stem, read_graph(file)


def zoo_costs(name: str) -> CostModel:
    """A net of the zoo with times by its ops' operations and bytes.

    Kept as a graph file, lowering it takes seconds.
    """

    def make(file: Path) -> None:
        graph = api.load_model(catalog.cached(name)).graph
        save_graph(file, costs_of(graph, op_times(graph)), 1)

    key = cache.digest(name, repr((FLOPS_MS, BYTES_MS, CALL_MS)))
    return read_graph(cache.keep(cache.folder() / "bench-search" / f"{name}-{key}.json", make))


def op_times(graph: FusedGraph) -> list[float]:
    """The roofline of each op, in ms: its operations or its bytes, whichever takes longer, and its
    call.
    """
    times = []
    for op in graph.ops:
        moved_bytes = op.weight_bytes + sum(
            graph.tensors[t].bytes for t in (*op.inputs, *op.outputs)
        )
        times.append(max(op.flops / FLOPS_MS, moved_bytes / BYTES_MS) + CALL_MS)
    return times


def compared(costs: CostModel, stages: int, seeds: Sequence[int]) -> dict[str, list[Found]]:
    """What each way finds on one graph, a result a seed."""
    silence_optuna_logs()
    start = time.process_time()
    cases = [Case(costs, stages, seed) for seed in seeds]
    ways = {"planner": [methods.judge(case, methods.planner(case, TRIALS)) for case in cases]}
    ways["plan"] = [methods.judge(case, methods.plan_alone(case)) for case in cases]
    for name, way in SAMPLERS.items():
        ways[name] = [methods.judge(case, way(case, CAP)) for case in cases[::SHARE]]
    ways["Coral"] = [methods.coral(case) for case in cases[::SHARE]]
    seconds = time.process_time() - start
    print(
        f"{costs.name}, {stages} stages, {seconds:.0f} s:", *row(ways), file=sys.stderr, flush=True
    )
    return ways


def row(ways: Mapping[str, Sequence[Found]]) -> list[str]:
    """The cells of one graph after its name, ops and stages."""
    default, coral = ways["planner"], ways["Coral"]
    return [
        f"{number(median(f.trials for f in default), TRIALS)} / "
        f"{number(percentile([f.trials for f in default]), TRIALS)}",
        number(median(f.measured for f in default), TRIALS),
        f"{percent(default)} / {100 * percentile([f.loss for f in default]):.1f}",
        *(number(median(f.trials for f in ways[name]), CAP) for name in SAMPLERS),
        number(median(f.measured for f in coral), math.inf),
        percent(coral),
        percent(ways["plan"]),
    ]


def bars(judged: Mapping[tuple[str, int, int], Sequence[Found]]) -> Iterator[Bar]:
    """The trials of the default sampler: of each graph, the worst one named."""
    kinds: dict[str, Callable[[Sequence[float]], float]] = {
        "median": median,
        "90th percentile": percentile,
    }
    for stages, limits in BARS.items():
        judged_by_name = {
            name: [f.trials for f in results]
            for (name, _, k), results in judged.items()
            if k == stages
        }
        for (what, of), limit in zip(kinds.items(), limits, strict=True):
            worst = max(judged_by_name, key=lambda name: of(judged_by_name[name]), default="")
            if worst:
                yield at_most(
                    f"trials, {what}, K={stages}, worst graph ({worst})",
                    of(judged_by_name[worst]),
                    limit,
                )
                yield at_most(
                    f"trials, {what}, K={stages}, all graphs",
                    of(list(chain(*judged_by_name.values()))),
                    limit,
                )


def percent(ways: Sequence[Found]) -> str:
    """The median loss in percent."""
    return f"{100 * median(f.loss for f in ways):.1f}"


def overhead(nets: Iterable[str], file: Path | None) -> int:
    """The table of the time between trials, in ms, early in a study and late."""
    rows, bars = [], []
    for name, stages in product(sorted(nets), OVERHEAD_STAGES):
        between = gaps(zoo_costs(name), stages, OVERHEAD_TRIALS)
        early, late = (1000 * median(part) for part in (between[:EARLY], between[LATE:]))
        rows.append((name, stages, f"{early:.0f}", f"{late:.0f}"))
        bars.append(at_most(f"ms about trial 200, {name}, K={stages}", late, OVERHEAD_MS))
    columns = ("graph", "K", f"trials 1 to {EARLY}, ms", "about trial 200, ms")
    return finish("overhead", columns, rows, bars=bars, file=file)


def gaps(costs: CostModel, stages: int, trials: int) -> list[float]:
    """Seconds from the begin of a trial to that of the next, in a study in SQLite that does not
    converge; on simulated hardware a measurement takes no time.
    """
    devices = [f"cores:{i}" for i in range(stages)]
    question = on_devices(costs, devices)
    bench = SimulatedBench(graph_of(costs), costs, question, devices, Simulation())
    document = {
        "name": "overhead",
        "model": "net.onnx",
        "stages": stages,
        "search": {"trials": trials, "converge": False},
    }
    config = StudyConfig.model_validate(document)
    with finished(config, bench) as opened:
        starts = [trial.datetime_start for trial in opened.study.get_trials(deepcopy=False)]
    return [(b - a).total_seconds() for a, b in pairwise(starts) if a and b]


if __name__ == "__main__":
    sys.exit(main())
