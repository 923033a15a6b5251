"""How much a model serves within a limit of the latency, against what a user would pick.

    python -m studies.benchmarks.serving [--only NET ...] [--cores N] [--batches N,N] [--trials N]
        [--seconds S] [--parts FOLDER] [-o FILE]
        [--exhaustive | --simulation | --overhead | --soak MINUTES]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. The limit of p99 is
five times the latency of a single item in onnxruntime on all cores. A study searches the deployment
of the greatest goodput at these batches. Its export and the unsplit model, in each runtime with one
thread, with all (OpenVINO's hint of latency), in replicas and by OpenVINO's hint of throughput, and
in Ray Serve with a replica a core and its default batching, then run under open load, each at its
own greatest rate. Bars: no export serves less than the best rival beyond the step of the search for
the rate; the geometric mean of the ratios is at least 1.15 on nets with large matrices and at least
1 on the others. ``--exhaustive`` measures each runtime, shape and batch of the unsplit model
instead. ``--simulation`` compares predicted goodputs with measured ones. ``--overhead`` and
``--soak`` are of the server. FOLDER keeps what is measured of each net, so that a run goes on where
another one ended. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
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
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.open_loop import load_test
from autosplit.hardware.measurement.results import SplitResults
from autosplit.planner.workload import Workload
from autosplit.planner.workload import served as simulated
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
from autosplit.study.record import study_record
from autosplit.zoo import catalog
from studies.benchmarks import serving_http, serving_ray
from studies.benchmarks.finished_study import finished, streamed
from studies.benchmarks.nets import BUILT, model_file
from studies.benchmarks.result import Bar, arguments, at_least, at_most, each, finish
from studies.benchmarks.result import write as write_json
from tests.nets import net as built

LIMIT = 5  # times the latency of a single item
LARGE = ("bert", "bvlc_alexnet", "mlp", "transformer", "vgg19", "zfnet512")  # large matrices
STEP = 0.03  # of the goodput, by which the search for it may err
DEPLOYMENTS = 10  # that are simulated
RUNTIMES = ("onnxruntime", "openvino")  # of them
MLP = "mlp"  # a net of nothing but large matrices
Part = dict[str, Any]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", default=[*catalog.NAMES, *BUILT, MLP], metavar="NET")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="cores (default 2)")
    parser.add_argument("--batches", default="1,4,16", help="batches (default 1,4,16)")
    parser.add_argument("--trials", type=int, default=8, help="of each study (default 8)")
    parser.add_argument("--seconds", type=float, default=5.0, help="a rate takes (default 5)")
    parser.add_argument("--parts", type=Path, metavar="FOLDER", help="what nets measured before")
    ways = parser.add_mutually_exclusive_group()
    for way in ("exhaustive", "simulation", "overhead"):
        ways.add_argument(f"--{way}", dest="way", action="store_const", const=way)
    ways.add_argument("--soak", type=float, metavar="MINUTES")
    args = parser.parse_args()
    args.batches = tuple(map(int, args.batches.split(",")))
    way = args.way or ("soak" if args.soak else "rivals")

    def part(net: str) -> Part:
        file = args.parts / f"{way}-{net}.json" if args.parts else None
        if file and file.exists():
            return dict(json.loads(file.read_text(encoding="utf-8")))
        with tempfile.TemporaryDirectory() as folder:
            measured = WAYS[way][0](net, args, Path(folder))
        print(f"{net}: {measured}", file=sys.stderr, flush=True)
        if file:
            write_json(file, measured)
        return measured

    parts, failures = each(args.only, part)
    rows = [(net, *map(_shown, p["row"].values())) for net, p in parts.items()]
    columns = ("net", *next(iter(parts.values()))["row"])
    bars = [*WAYS[way][1](parts), failures]
    return finish("serving", columns, rows, bars=bars, file=args.file)


def rivals(net: str, args: Any, folder: Path) -> Part:
    """The study of a net for its goodput, and its export beside the rivals."""
    path, model, limit = _limited(net, args, folder)
    _study(net, path, limit, args, folder / "out")
    rates = {
        run.name: _goodput(model, _unsplit(model, run), limit, args.seconds)
        for run in LocalBench(model, along(args.cores)).unsplit_runs()
    }
    try:
        with serving_ray.served(path, model, args.cores) as (clients, capacity):
            rates["Ray Serve"] = _load(clients, model, limit, args.seconds, capacity)
    except Exception as error:  # without Ray Serve the others compete
        print(f"{net}: no Ray Serve: {line_of(error)}", file=sys.stderr, flush=True)
    pipeline = autosplit.load(folder / "out", trace=True)
    shape = " | ".join(map(str, pipeline.replicas)) + f" replicas, batch {pipeline.batch}"
    ours = _goodput(model, pipeline, limit, args.seconds)
    best = max(rates, key=rates.__getitem__)
    row = {
        "limit, ms": limit,
        "deployment": shape,
        "goodput, items/s": ours,
        "best rival": best,
        "its goodput": rates[best],
        "ratio": ours / rates[best] if rates[best] else 0.0,
    }
    return {"row": row, "rates": rates}


def bars_of_rivals(parts: Mapping[str, Part]) -> list[Bar]:
    """What the exports of all nets must reach."""
    ratios = {net: part["row"]["ratio"] for net, part in parts.items()}
    bars = [at_least("smallest ratio to the best rival", min(ratios.values()), 1 - STEP)]
    for name, bar, is_large in (("large matrices", 1.15, True), ("other nets", 1.0, False)):
        group = [ratio for net, ratio in ratios.items() if (net in LARGE) is is_large]
        if group and min(group) > 0:
            bars.append(at_least(f"geometric mean, {name}", geometric_mean(group), bar))
    return bars


def exhaustive(net: str, args: Any, folder: Path) -> Part:
    """What the choice of a study serves, beside each way to run the unsplit model."""
    path, model, limit = _limited(net, args, folder)
    tried = _study(net, path, limit, args, folder / "out")
    rates = {}
    for name in api.load_model(path).runtimes:
        has_hint = model.runtime_of(name).has_hint
        for run in unsplit_runs(name, along(args.cores), has_hint, args.batches):
            with contextlib.suppress(autosplit.AutosplitError):  # one that cannot run it
                rates[run.name] = _goodput(model, _unsplit(model, run), limit, args.seconds)
    ours = _goodput(model, autosplit.load(folder / "out", trace=True), limit, args.seconds)
    best = max(rates, key=rates.__getitem__)
    row = {
        "goodput, items/s": ours,
        "best of all": best,
        "its goodput": rates[best],
        "share of the best": ours / max(ours, rates[best]),
        "configurations": len(rates),
        "tried": tried,
    }
    return {"row": row, "rates": rates}


def bars_of_exhaustive(parts: Mapping[str, Part]) -> list[Bar]:
    """How near the best studies come, and with how few measurements."""
    rows = [part["row"] for part in parts.values()]
    share = max(row["tried"] / row["configurations"] for row in rows)
    return [
        at_least("smallest share of the best", min(row["share of the best"] for row in rows), 0.95),
        at_most("largest share of the configurations measured", share, 0.1),
    ]


def simulation(net: str, args: Any, folder: Path) -> Part:
    """The predicted and the measured goodputs of deployments of a net."""
    _, model, limit = _limited(net, args, folder)
    bench, errors = LocalBench(model, along(args.cores), Budget(seconds=args.seconds)), {}
    for runtime, batch, count in product(RUNTIMES, args.batches, range(1, args.cores + 1)):
        deployment = _replicas(model, count, runtime, batch)
        measured = bench.measure(deployment)
        period, workload = measured.period_ms, Workload(limit_ms=limit)
        stages = deployment.stages
        predicted, delay = simulated(workload, stages, measured.stage_ms, period.median)
        test = bench.under_load(deployment, replace(workload, delay_ms=delay), period)
        goodput = test.goodput or 0.0
        if predicted or goodput:
            name = f"{runtime}, {count} replicas, batch {batch}"
            errors[name] = [predicted, goodput, predicted / goodput - 1 if goodput else 1.0]
    sizes = [abs(error) for *_, error in errors.values()] or [1.0]
    row = {"deployments": len(errors), "median error": median(sizes), "largest": max(sizes)}
    return {"row": row, "errors": errors}


def bars_of_simulation(parts: Mapping[str, Part]) -> list[Bar]:
    """How far the simulation is from what was measured."""
    errors = [abs(error) for part in parts.values() for *_, error in part["errors"].values()]
    return [
        at_most("median error of the predicted goodput", median(errors or [1.0]), 0.05),
        at_least("deployments", len(errors), DEPLOYMENTS),
    ]


def server(net: str, args: Any, folder: Path) -> Part:
    """The server of a net in onnxruntime, a replica a core, under load."""
    _, model, limit = _limited(net, args, folder)
    write_split(model, _replicas(model, args.cores), folder / "out", SplitResults(), onnx=False)
    items = model.items(3)
    pipeline = autosplit.load(folder / "out", trace=True)
    if args.soak:
        rate = max(1.0, 0.8 * _goodput(model, pipeline, limit, args.seconds))
        bars = serving_http.soak(folder / "out", items, rate, args.soak)
    else:
        with pipeline:
            period = streamed(pipeline, items, Budget(seconds=args.seconds)).median
        rate = 500 / period
        bars = serving_http.overhead(folder / "out", items, rate, args.seconds)
    return {"row": {"rate": rate}, "bars": [vars(bar) for bar in bars]}


def bars_of_server(parts: Mapping[str, Part]) -> list[Bar]:
    """What the server of each net must reach."""
    return [Bar(**bar) for part in parts.values() for bar in part["bars"]]


WAYS: Mapping[str, tuple[Callable[..., Part], Callable[..., list[Bar]]]] = {
    "rivals": (rivals, bars_of_rivals),
    "exhaustive": (exhaustive, bars_of_exhaustive),
    "simulation": (simulation, bars_of_simulation),
    "overhead": (server, bars_of_server),
    "soak": (server, bars_of_server),
}


def _mlp(layers: int = 6, width: int = 1024) -> Any:
    lines = [f"p{i} = MatMul(x{i}, w{i}) x{i + 1} = Relu(p{i})" for i in range(layers)]
    text = f"g (float[1,{width}] x0) => (float[1,{width}] x{layers}) {{ {' '.join(lines)} }}"
    return built(text, {f"w{i}": (width, width) for i in range(layers)})


def _limited(net: str, args: Any, folder: Path) -> tuple[Path, Any, float]:
    """The file of a net, its model and the limit of p99 in ms."""
    if net == MLP:
        path = folder / f"{net}.onnx"
        path.write_bytes(_mlp().SerializeToString())
    else:
        path = model_file(net, folder)
    model = api.load_model(path)
    with _unsplit(model, UnsplitRun("onnxruntime", _all(args.cores))) as lone:
        limit = LIMIT * measure.latency(lone, model.items(3), Budget()).median
    return path, model, limit


def _study(net: str, path: Path, limit: float, args: Any, folder: Path) -> int:
    """Export what a study advises for the limit; returns how many measurements it took."""
    document = {
        "name": net,
        "model": str(path),
        "export": str(folder),
        "cores": args.cores,
        "batch": list(args.batches),
        "workload": {"p99_ms": limit},
        "measure": {"seconds": args.seconds},
        "search": {"trials": args.trials},
    }
    with finished(StudyConfig.model_validate(document)) as opened:
        export_best_split(opened)
        record = study_record(opened.study.user_attrs)
        return len(opened.study.trials) + len(record.baselines)


def _all(cores: int) -> tuple[Cores, ...]:
    return (Cores(tuple(available()[:cores])),)


def _replicas(model: Any, count: int, runtime: str = "onnxruntime", batch: int = 1) -> Deployment:
    """The unsplit model on each of some cores."""
    devices = list(map(str, along(count)))
    return Deployment((Stage.on(range(len(model.graph.ops)), runtime, devices, batch),))


def _unsplit(model: Any, run: UnsplitRun) -> Pipeline:
    """A pipeline of the unsplit model, trace and all."""
    variant = model.at_batch(run.batch)
    variant.runtime_of(run.runtime).prepare(run.devices)
    pipeline: Pipeline = variant.whole(run.runtime, *run.devices, by_hint=run.by_hint, trace=True)
    return pipeline


def _goodput(model: Any, pipeline: Pipeline, limit: float, seconds: float) -> float:
    """The greatest rate of a pipeline within the limit, in items a second."""
    with contextlib.closing(pipeline):
        model.require_equal(pipeline, [])
        period = streamed(pipeline, model.items(3), Budget(seconds=seconds)).median
        return _load(pipeline, model, limit, seconds, 1e3 / period)


def _load(pipeline: Any, model: Any, limit: float, seconds: float, capacity: float) -> float:
    workload = Workload(limit_ms=limit)
    return load_test(pipeline, model.items(3), workload, seconds, capacity).goodput or 0.0


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
