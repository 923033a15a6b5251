"""How few measurements a study needs, on simulated hardware, where the true optimum is known.

    python -m studies.benchmarks.search [FOLDER] [--seeds 20] [--graphs NAME,NAME] [-o FILE]
    python -m studies.benchmarks.search --deployments [--seeds 20] [-o FILE]

Graphs: the zoo's, with times by the operations and bytes of each op, and the graph files in FOLDER
(msr-fiddle/dnn-partitioning), split into 4 and 8 stages. The known op times are wrong by 35 %
(lognormal), each measured stage time by 2 %.

- "trials": until one is within 1 % of the optimum by its true period; infinite if none is. The
  measurements of the final comparison are not counted.
- "ends after": the trials after which the study stops by itself, at most 20. "at loss %": how
  far what it ends with is from the optimum.

Median / 90th percentile over the seeds. Further columns have the medians of Optuna's TPE and of
random search on the same space over some of the seeds, up to 40 trials (>40: more), and the loss of
the plan alone. --deployments searches stages, replicas and threads instead, for a chain of 60 ops
on 8 and 16 cores, where each busy core slows the others down by 2 % and a further thread adds 0.7
of a core; a replica may hold the whole model, or a share of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import chain, product, repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from autosplit import api
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import available
from autosplit.hardware.profiling.graph_file import from_document, read_graph_file, to_document
from autosplit.planner import CostModel
from autosplit.report.documents.record import read
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.record import record_of
from autosplit.study.storage import silence_optuna_logs
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished
from studies.benchmarks.result import Bar, arguments, at_most, finish, percentile
from studies.simulation.bench import Hardware, SimulatedBench, costs_of, graph_of, on_devices

QUANTILES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "median": median,
    "90th percentile": percentile,
}
NEAR = 0.01  # of the true optimum
BARS = {4: (4, 8), 8: (6, 10)}  # stages: median and 90th percentile of the trials
DEPLOYMENT_BARS = 6, 12
OPS, CORES = 60, (8, 16)
SHARES = {"1": None, "1/2": 1 / 2, "1/3": 1 / 3, "1/4": 1 / 4}  # of the model that a replica holds
TRIALS = 20  # of a study at most, its own default
CAP = 40  # trials of the other samplers
SHARE = 4  # the other samplers are tried on every fourth seed
SAMPLERS = ("tpe", "random")
# A core of a small machine: operations and bytes a ms, and ms for a call.
FLOPS_MS, BYTES_MS, CALL_MS = 2e7, 1e7, 0.005


class Found(NamedTuple):
    """The trials until one was near the optimum, infinite if none was; all trials.

    ``first_loss`` and ``loss``: how far, as a share, the first and best trial exceed the optimum.
    """

    trials: float
    measured: int
    first_loss: float
    loss: float


def main() -> int:
    parser = arguments(__doc__, seeds=20, jobs=len(available()))
    parser.add_argument("folder", type=Path, nargs="?", help="folder with graph files")
    parser.add_argument("--graphs", default="", help="names, separated by commas; all without")
    parser.add_argument("--deployments", action="store_true", help="stages, replicas and threads")
    args = parser.parse_args()
    seeds = range(args.seeds)
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        if args.deployments:
            return deployments(pool, seeds, args.file)
        names = args.graphs.split(",") if args.graphs else []
        return splits(pool, graphs(args.folder, names), seeds, args.file)


def splits(
    pool: Executor, models: Iterator[CostModel], seeds: Sequence[int], file: Path | None
) -> int:
    """The table of all graphs and numbers of stages."""
    rows, trials = [], dict[tuple[int, str], list[float]]()
    for costs, stages in product(models, BARS):
        asked = repeat(costs), repeat(stages)
        default = list(pool.map(split_search, *asked, repeat("planner"), seeds))
        trials[stages, costs.name] = [f.trials for f in default]
        row = {"graph": costs.name, "ops": len(costs.names), "K": stages, **cells_of(default)}
        for sampler in SAMPLERS:
            others = pool.map(split_search, *asked, repeat(sampler), seeds[::SHARE])
            row[sampler] = number(median(f.trials for f in others), CAP)
        row["plan: loss %"] = f"{100 * median(f.first_loss for f in default):.1f}"
        rows.append(row)
        print(*row.values(), file=sys.stderr, flush=True)
    notes = [
        f"trials: median / 90th percentile over {len(seeds)} seeds; the other samplers over "
        f"{len(seeds[::SHARE])} of them, up to {CAP} trials"
    ]
    return finish("search", rows, notes=notes, bars=split_bars(trials), file=file)


def split_search(costs: CostModel, stages: int, sampler: str, seed: int) -> Found:
    """Search for a split with one device per stage; other samplers have up to ``CAP`` trials."""
    most = TRIALS if sampler == "planner" else CAP
    settings = {"sampler": sampler, "trials": most, "seed": seed}
    devices = [f"cores:{i}" for i in range(stages)]
    question, hardware = on_devices(costs, devices), Hardware(seed=seed)
    bench = SimulatedBench(graph_of(costs), costs, question, devices, hardware)
    return searched(config_of(stages=stages, search=settings), bench)


def split_bars(trials: Mapping[tuple[int, str], Sequence[float]]) -> Iterator[Bar]:
    """The bars of the default sampler: for the worst graph, by name, and for all graphs."""
    for stages, limits in BARS.items():
        of_graphs = {name: values for (count, name), values in trials.items() if count == stages}
        for (what, of), limit in zip(QUANTILES.items(), limits, strict=True):
            value, worst = max((of(values), name) for name, values in of_graphs.items())
            name = f"trials, {what}, K={stages}"
            yield at_most(f"{name}, worst graph ({worst})", value, limit)
            yield at_most(f"{name}, all graphs", of(list(chain(*of_graphs.values()))), limit)


def deployments(pool: Executor, seeds: Sequence[int], file: Path | None) -> int:
    """The table of all numbers of cores and limits of memory."""
    rows, bars = [], list[Bar]()
    for cores, share in product(CORES, SHARES):
        results = list(pool.map(deployment_search, repeat(cores), repeat(share), seeds))
        rows.append({"cores": cores, "memory": share, **cells_of(results)})
        for (what, of), limit in zip(QUANTILES.items(), DEPLOYMENT_BARS, strict=True):
            name = f"trials, {what}, {cores} cores, {share} of the model"
            bars.append(at_most(name, of([f.trials for f in results]), limit))
    notes = [f"trials: median / 90th percentile over {len(seeds)} seeds"]
    return finish("deployment_search", rows, notes=notes, bars=bars, file=file)


def deployment_search(cores: int, share: str, seed: int) -> Found:
    """The search for stages, replicas and threads on some cores."""
    limit = SHARES[share]
    config = config_of(
        cores=[f"0-{cores - 1}"],
        memory=None if limit is None else 1e6 * OPS * limit,
        search={"trials": TRIALS, "seed": seed},
    )
    return searched(config, Hardware(ops=OPS, seed=seed, contention=0.02).bench(config))


def config_of(**keys: Any) -> StudyConfig:
    """A study file with these keys."""
    return StudyConfig.model_validate({"name": "search", "model": "net.onnx", **keys})


def searched(config: StudyConfig, bench: SimulatedBench) -> Found:
    """Run one study until it ends by itself."""
    silence_optuna_logs()
    with finished(config, bench) as opened:
        best, trials = read(opened.study).best(), opened.study.get_trials()
        optimum, losses = bench.optimum().period, dict[int, float]()
        for trial in (trial for trial in trials if trial.values):
            candidate = opened.space.candidate(record_of(trial).key)
            losses[trial.number] = bench.truth(candidate).period / optimum - 1
    near = [count for count, loss in enumerate(losses.values(), 1) if loss <= NEAR]
    last = losses[best.number] if best else math.inf
    return Found(min(near, default=math.inf), len(losses), losses[min(losses)], last)


def cells_of(results: Sequence[Found]) -> dict[str, str]:
    """The trials until one is near the optimum, the trials of the study, and its loss in %."""
    trials, losses = [f.trials for f in results], [100 * f.loss for f in results]
    return {
        "trials": f"{number(median(trials), TRIALS)} / {number(percentile(trials), TRIALS)}",
        "ends after": f"{median(f.measured for f in results):g}",
        "at loss %": f"{median(losses):.1f} / {percentile(losses):.1f}",
    }


def number(trials: float, cap: int) -> str:
    """A number of trials as text; more than the cap if it is infinite."""
    return f"{trials:g}" if trials < math.inf else f">{cap}"


def graphs(folder: Path | None, names: Sequence[str]) -> Iterator[CostModel]:
    """The cost models asked for, all without a name."""
    for name in catalog.NAMES:
        if not names or name in names:
            yield zoo_costs(name)
    for file in sorted(folder.glob("*.json")) if folder else ():
        if not names or file.stem in names:
            yield read_graph_file(file).costs


def zoo_costs(name: str) -> CostModel:
    """A net of the zoo with times by its ops' operations and bytes, as a graph file has them."""
    graph = api.load_model(catalog.cached(name)).graph
    return from_document(to_document(costs_of(graph, op_times(graph))), name)


def op_times(graph: FusedGraph) -> list[float]:
    """The roofline time of each op in ms: operations or bytes, whichever is longer, and a call."""
    times = []
    for op in graph.ops:
        tensors = sum(graph.tensors[t].bytes for t in (*op.inputs, *op.outputs))
        moved_bytes = op.weight_bytes + tensors
        times.append(max(op.flops / FLOPS_MS, moved_bytes / BYTES_MS) + CALL_MS)
    return times


if __name__ == "__main__":
    sys.exit(main())
