"""The goodput of a model within a latency limit, compared with what a user would pick.

    python -m studies.benchmarks.serving [--only NET ...] [--cores N] [--batches N,N] [--trials N]
        [--seconds S] [--parts FOLDER] [-o FILE]
        [--exhaustive | --simulation | --overhead | --soak MINUTES]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. The limit of p99 is
five times the latency of a single item in onnxruntime on all cores. A study searches the deployment
of the greatest goodput at these batches. Rivals are the unsplit model in onnxruntime and in
OpenVINO, with one thread, with all (OpenVINO's latency hint), in replicas and with OpenVINO's
throughput hint, and Ray Serve with one replica per core and its default batching. The export and
the rivals run under open load, each at its own greatest rate; the export and the best rival take
turns, unless they are the same. Bars: no export serves less than the best rival beyond the step of
the search for the rate; the geometric mean of the ratios is at least 1.15 on nets with large
matrices and at least 1 on the others. ``--exhaustive`` tries each runtime, shape, batch and delay
of the unsplit model instead, and notes what Triton's quick search would find; what computes less
than the best serves is not run under load. ``--simulation --only sleep`` compares predicted with
measured goodputs of stages that sleep; ``--overhead`` and ``--soak`` test the server. FOLDER keeps
all measured figures, so that a later run continues; each row names its machine. Leave the machine
alone while it runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import autosplit
from autosplit import api
from autosplit.deploy.export import write_split
from autosplit.deployment import Deployment, Stage
from autosplit.errors import line_of
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices.device import Cores, along, available
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.baselines import UnsplitRun, unsplit_runs
from autosplit.hardware.measurement.measure import MS, Budget
from autosplit.hardware.measurement.open_loop import load_test
from autosplit.hardware.measurement.results import SplitResults
from autosplit.planner.workload import Workload
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
from autosplit.study.record import study_record
from autosplit.versions import machine
from autosplit.zoo import catalog
from studies.benchmarks import quick_search, serving_http, serving_ray, serving_simulation
from studies.benchmarks.finished_study import finished, streamed
from studies.benchmarks.nets import BUILT, model_file
from studies.benchmarks.result import Bar, arguments, at_least, at_most, each, finish
from studies.benchmarks.result import write as write_json
from studies.benchmarks.serving_simulation import LIMIT
from tests.nets import net as built

TURNS = 7  # of the export and the best rival, since a few pauses of a machine decide a p99
LARGE = ("bert", "bvlc_alexnet", "mlp", "transformer", "vgg19", "zfnet512")  # large matrices
STEP = 0.03  # the relative error of the search for the goodput
RUNTIMES = ("onnxruntime", "openvino")  # of the rivals
MLP = "mlp"  # a net of nothing but large matrices
EXHAUSTIVE = "exhaustive"
Part = dict[str, Any]
Run = tuple[UnsplitRun, float | None]  # with the delay of its batches


class Net:
    """A net with the limit of its p99 in ms; all its measured figures are kept in a folder."""

    def __init__(self, name: str, args: Any, folder: Path) -> None:
        self.name, self.args, self.folder = name, args, folder
        if name == MLP:
            self.path = folder / f"{name}.onnx"
            self.path.write_bytes(_mlp().SerializeToString())
        else:
            self.path = model_file(name, folder)
        self.model = api.load_model(self.path)
        self.limit: float = kept(folder, "limit", self._limit)

    def _limit(self) -> float:
        cores = (Cores(tuple(available()[: self.args.cores])),)
        with self.unsplit(UnsplitRun("onnxruntime", cores)) as lone:
            return LIMIT * measure.latency(lone, self.model.items(3), Budget()).median

    def unsplit(self, run: UnsplitRun) -> Pipeline:
        """A traced pipeline of the unsplit model, after a check of its outputs."""
        variant = self.model.at_batch(run.batch)
        variant.runtime_of(run.runtime).prepare(run.devices)
        how = {"by_hint": run.by_hint, "trace": True}
        pipeline: Pipeline = variant.whole(run.runtime, *run.devices, **how)
        self.model.require_equal(pipeline, [])
        return pipeline

    def goodputs(
        self, load: Callable[[], Pipeline], delay: float | None = None, least: float = 0.0
    ) -> tuple[float, float, float]:
        """The ``serving_simulation.goodputs`` of a pipeline within the limit."""
        workload = Workload(limit_ms=self.limit, delay_ms=delay)
        items, seconds = self.model.items(3), self.args.seconds
        return serving_simulation.goodputs(load, items, workload, seconds, least)

    def measured(self, runs: Iterable[Run]) -> dict[str, Sequence[float]]:
        """The goodputs of ways to run the unsplit model.

        A way that cannot be the best is not run under load.
        """
        goodputs: dict[str, Sequence[float]] = {}
        for run, delay in runs:
            name = _name(run, delay)
            least = max((rate for _, rate, _ in goodputs.values()), default=0.0)
            measured = partial(self.goodputs, partial(self.unsplit, run), delay, least)
            with contextlib.suppress(autosplit.AutosplitError):  # a runtime that cannot run it
                goodputs[name] = kept(self.folder, f"{self.args.way} {name}", measured)
        return goodputs

    def study(self) -> int:
        """Export what a study advises for the limit; returns how many measurements it took."""
        document = {
            "name": self.name,
            "model": str(self.path),
            "export": str(self.folder / "out"),
            "cores": self.args.cores,
            "batch": list(self.args.batches),
            "workload": {"p99_ms": self.limit},
            "measure": {"seconds": self.args.seconds},
            "search": {"trials": self.args.trials},
        }
        with finished(StudyConfig.model_validate(document)) as opened:
            export_best_split(opened)
            record = study_record(opened.study.user_attrs)
            return len(opened.study.trials) + len(record.baselines)


def kept(folder: Path, name: str, measured: Callable[[], Any]) -> Any:
    """A figure from the folder; if it is missing, it is measured and stored there."""
    file = folder / f"{name}.json"
    if not file.exists():
        write_json(file, {"value": measured()})
    return json.loads(file.read_text(encoding="utf-8"))["value"]


def main() -> int:
    parser = arguments(__doc__, cores=2, trials=8, seconds=5.0)
    parser.add_argument("--only", nargs="+", default=[*catalog.NAMES, *BUILT, MLP], metavar="NET")
    parser.add_argument("--batches", default="1,4,16", help="batches (default 1,4,16)")
    parser.add_argument("--parts", type=Path, metavar="FOLDER", help="what was measured before")
    ways = parser.add_mutually_exclusive_group()
    for way in (EXHAUSTIVE, "simulation", "overhead"):
        ways.add_argument(f"--{way}", dest="way", action="store_const", const=way)
    ways.add_argument("--soak", type=float, metavar="MINUTES")
    args = parser.parse_args()
    args.batches = tuple(map(int, args.batches.split(",")))
    args.way = args.way or ("soak" if args.soak else "rivals")
    with tempfile.TemporaryDirectory() as temporary:

        def part_of(net: str) -> Part:
            folder = (args.parts or Path(temporary)) / net
            folder.mkdir(parents=True, exist_ok=True)
            measured: Part = kept(folder, args.way, lambda: WAYS[args.way][0](net, args, folder))
            print(f"{net}: {measured}", file=sys.stderr, flush=True)
            return measured

        parts, failures = each(args.only, part_of)
    rows = [{"net": net} | {k: _shown(v) for k, v in p["row"].items()} for net, p in parts.items()]
    bars = [*WAYS[args.way][1](parts), failures]
    notes = list[str]()
    for net, part in parts.items() if args.way == EXHAUSTIVE else ():
        notes += quick_search.outcomes(net, part["goodputs"])
    return finish("serving", rows, notes=notes, bars=bars, file=args.file)


def compared(name: str, args: Any, folder: Path) -> Part:
    """Compare the goodput of a study's export with that of ways to run the unsplit model."""
    net, is_exhaustive = Net(name, args, folder), args.way == EXHAUSTIVE
    tried = kept(folder, "study", net.study)
    bench = LocalBench(net.model, along(args.cores))
    # Replicas, the last ones, mostly serve most: run first, they rule out many others.
    unsplit = [run for run in reversed(bench.unsplit_runs()) if run.runtime in RUNTIMES]
    every: list[Run] = [*_every(net)] if is_exhaustive else [(run, None) for run in unsplit]
    goodputs = net.measured(every)
    rates = {way: rate for way, (_, rate, _) in goodputs.items()}
    if not is_exhaustive:
        try:
            rates["Ray Serve"] = kept(folder, "Ray Serve", partial(_ray_serve, net))
        except Exception as error:  # without Ray Serve the others compete
            print(f"{name}: no Ray Serve: {line_of(error)}", file=sys.stderr, flush=True)
    load = partial(autosplit.load, folder / "out", trace=True)
    with load() as exported:
        batch = exported.batch
        stages = [(s.runtime, [r.device for r in s.replicas]) for s in exported.document.stages]
        net.model.require_equal(exported, [])
    best = max(rates, key=rates.__getitem__)
    rival = next((run for run in every if _name(*run) == best), None)

    def turn() -> tuple[float, float]:
        if rival is None:
            return net.goodputs(load)[1], rates[best]
        run, delay = rival
        is_same = [(run.runtime, list(map(str, run.devices)))] == stages and not run.by_hint
        if is_same and run.batch == batch == 1:
            return rates[best], rates[best]  # it is the export
        return net.goodputs(load)[1], net.goodputs(partial(net.unsplit, run), delay)[1]

    turns = [kept(folder, f"{args.way} turn {number}", turn) for number in range(TURNS)]
    ratios = sorted(ours / theirs if theirs else 0.0 for ours, theirs in turns)
    ours, theirs = map(median, zip(*turns, strict=True))
    row = {
        "limit, ms": net.limit,
        "deployment": " | ".join(f"{way} on {' and '.join(on)}" for way, on in stages),
        "batch": batch,
        "goodput, items/s": ours,
        "best other": best,
        "its goodput": theirs,
        "ratio": median(ratios),
        "ratios": f"{ratios[0]:.3g} to {ratios[-1]:.3g}",
        "measured": tried,
        "others": len(rates),
        "machine": machine(),
    }
    return {"row": row, "goodputs": goodputs}


def _name(run: UnsplitRun, delay: float | None) -> str:
    return run.name if delay is None else f"{run.name}, {delay:.3g} ms"


def _every(net: Net) -> Iterator[Run]:
    """Each way to run the unsplit model, the likeliest delay of a batch first."""
    for name in net.model.runtimes:
        has_hint = net.model.runtime_of(name).has_hint
        for run in unsplit_runs(name, along(net.args.cores), has_hint, net.args.batches):
            for delay in Workload(limit_ms=net.limit).delays(run.batch):
                yield run, delay


def _ray_serve(net: Net) -> float:
    workload, items, seconds = Workload(limit_ms=net.limit), net.model.items(3), net.args.seconds
    with serving_ray.served(net.path, net.model, net.args.cores) as (clients, capacity):
        clients_as_pipeline: Any = clients
        return load_test(clients_as_pipeline, items, workload, seconds, capacity).goodput or 0.0


def bars_of_rivals(parts: Mapping[str, Part]) -> list[Bar]:
    """The bars for the exports of all nets."""
    ratios = {net: part["row"]["ratio"] for net, part in parts.items()}
    bars = [at_least("smallest ratio to the best rival", min(ratios.values()), 1 - STEP)]
    for name, bar, is_large in (("large matrices", 1.15, True), ("other nets", 1.0, False)):
        group = [ratio for net, ratio in ratios.items() if (net in LARGE) is is_large]
        if group and min(group) > 0:
            bars.append(at_least(f"geometric mean, {name}", geometric_mean(group), bar))
    return bars


def bars_of_exhaustive(parts: Mapping[str, Part]) -> list[Bar]:
    """The bars for how near studies come to the best, and with how few measurements."""
    rows = [part["row"] for part in parts.values()]
    share = max(row["measured"] / row["others"] for row in rows)
    return [
        at_least("smallest ratio to the best", min(row["ratio"] for row in rows), 0.95),
        at_most("largest share of the configurations measured", share, 0.1),
    ]


def simulation(name: str, args: Any, folder: Path) -> Part:
    """The predicted and the measured goodputs of pipelines whose stages sleep."""
    results = serving_simulation.of_sleepers(args.seconds)
    errors = [serving_simulation.error(*result) for result in results.values()]
    row = {"deployments": len(errors), "median error": median(errors), "largest": max(errors)}
    bar = at_most("median error of the predicted goodput", median(errors), 0.05)
    return {"row": row, "bars": [vars(bar)], "goodputs": results}


def server(name: str, args: Any, folder: Path) -> Part:
    """The server of a net in onnxruntime, a replica a core, under load."""
    net, out = Net(name, args, folder), folder / "replicas"
    devices = list(map(str, along(args.cores)))
    whole = Stage.on(range(len(net.model.graph.ops)), "onnxruntime", devices)
    write_split(net.model, Deployment((whole,)), out, SplitResults(), onnx=False)
    items, seconds = net.model.items(3), args.seconds
    load = partial(autosplit.load, out, trace=True)
    if args.soak:
        rate = max(1.0, 0.8 * net.goodputs(load)[1])
        figures, bars = dict[str, float](), serving_http.soak(out, items, rate, args.soak)
    else:
        with load() as pipeline:
            rate = MS / streamed(pipeline, items, Budget(seconds=seconds)).median / 2
        figures, bars = serving_http.overhead(out, items, rate, seconds)
    return {"row": {"rate": rate, **figures}, "bars": [vars(bar) for bar in bars]}


def bars_of_each(parts: Mapping[str, Part]) -> list[Bar]:
    """The bars for each net by itself."""
    return [Bar(**bar) for part in parts.values() for bar in part["bars"]]


WAYS: Mapping[str, tuple[Callable[..., Part], Callable[..., list[Bar]]]] = {
    "rivals": (compared, bars_of_rivals),
    EXHAUSTIVE: (compared, bars_of_exhaustive),
    "simulation": (simulation, bars_of_each),
    "overhead": (server, bars_of_each),
    "soak": (server, bars_of_each),
}


def _mlp(layers: int = 6, width: int = 1024) -> Any:
    lines = [f"p{i} = MatMul(x{i}, w{i}) x{i + 1} = Relu(p{i})" for i in range(layers)]
    text = f"g (float[1,{width}] x0) => (float[1,{width}] x{layers}) {{ {' '.join(lines)} }}"
    return built(text, {f"w{i}": (width, width) for i in range(layers)})


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
