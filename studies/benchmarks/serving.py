"""How much a model serves within a limit of the latency, against what a user would pick.

    python -m studies.benchmarks.serving [NET ...] [--cores N] [--batches N,N] [--trials N]
        [--seconds S] [-o FILE]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. The limit of p99 is
five times the latency of a single item in onnxruntime on all cores. A study searches the deployment
of the greatest goodput at these batches. Its export and the unsplit model, in each runtime with one
thread, with all, in replicas and by OpenVINO's hint, then run under open load, each at its own
greatest rate. Bars: no export serves less than the best rival beyond the step of the search for the
rate; the geometric mean of the ratios is at least 1.15 on nets with large matrices and at least 1
on the others. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import autosplit
from autosplit import api
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices.device import along
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.open_loop import load_test
from autosplit.hardware.measurement.results import LoadTest
from autosplit.planner.workload import Workload
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished, streamed
from studies.benchmarks.result import Bar, arguments, at_least, each, finish
from studies.benchmarks.winners import BUILT, model_file

LIMIT = 5  # times the latency of a single item
LARGE = ("alexnet", "mlp", "transformer", "vgg16")  # nets with large matrices
STEP = 0.03  # of the goodput, by which the search for it may err
COLUMNS = (
    "net",
    "limit, ms",
    "deployment",
    "goodput, items/s",
    "best rival",
    "its goodput",
    "ratio",
)


@dataclass(frozen=True)
class Served:
    """The export of a study and the rival that serves most, within a limit of p99 in ms."""

    limit_ms: float
    deployment: str
    ours: float
    rival: str
    theirs: float

    @property
    def ratio(self) -> float:
        """How many times as much the export serves."""
        return self.ours / self.theirs if self.theirs else float("inf")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=[*catalog.NAMES, *BUILT])
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="cores (default 2)")
    parser.add_argument("--batches", default="1,4,16", help="batches (default 1,4,16)")
    parser.add_argument("--trials", type=int, default=8, help="of each study (default 8)")
    parser.add_argument("--seconds", type=float, default=5.0, help="a rate takes (default 5)")
    args = parser.parse_args()
    settings = {
        "cores": args.cores,
        "batch": list(map(int, args.batches.split(","))),
        "measure": {"seconds": args.seconds},
        "search": {"trials": args.trials},
    }
    served, failures = each(args.nets, lambda net: serve(net, settings))
    rows = [_row(net, s) for net, s in served.items()]
    return finish("serving", COLUMNS, rows, bars=[*bars_of(served), failures], file=args.file)


def bars_of(served: Mapping[str, Served]) -> list[Bar]:
    """What the exports of all nets must reach."""
    ratios = {net: s.ratio for net, s in served.items()}
    bars = [at_least("smallest ratio to the best rival", min(ratios.values()), 1 - STEP)]
    for name, bar, is_large in (("large matrices", 1.15, True), ("other nets", 1.0, False)):
        group = [ratio for net, ratio in ratios.items() if (net in LARGE) is is_large]
        if group:
            bars.append(at_least(f"geometric mean, {name}", geometric_mean(group), bar))
    return bars


def serve(net: str, settings: Mapping[str, Any]) -> Served:
    """The study of a net for its goodput, and its export beside the unsplit model."""
    seconds, cores = settings["measure"]["seconds"], settings["cores"]
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = model_file(net, Path(temporary)), Path(temporary, "out")
        model = api.load_model(path)
        rivals = _unsplit(model, cores)
        lone = rivals[f"onnxruntime, {cores} threads" if cores > 1 else "onnxruntime, 1 thread"]
        limit = LIMIT * measure.latency(lone, model.items(3), Budget()).median
        for pipeline in rivals.values():
            pipeline.close()
        document = {**settings, "name": net, "model": str(path), "export": str(folder)}
        document["workload"] = {"p99_ms": limit}
        with finished(StudyConfig.model_validate(document)) as opened:
            export_best_split(opened)
        workload, rates = Workload(limit_ms=limit), dict[str, float]()
        for name, pipeline in _unsplit(model, cores).items():
            rates[name] = _goodput(model, pipeline, workload, seconds)
        pipeline = autosplit.load(folder, trace=True)
        ours = _goodput(model, pipeline, workload, seconds)
    best = max(rates, key=rates.__getitem__)
    shape = " | ".join(map(str, pipeline.replicas)) + f" replicas, batch {pipeline.batch}"
    return Served(limit, shape, ours, best, rates[best])


def _unsplit(model: Any, cores: int) -> dict[str, Pipeline]:
    """A pipeline of each way to run the unsplit model, by its name."""
    wiring = model.wiring([range(len(model.graph.ops))])
    (ports,) = wiring.stages
    pipelines = {}
    for run in LocalBench(model, along(cores)).unsplit_runs():
        runtime = model.runtime_of(run.runtime)
        runtime.prepare(run.devices)
        replicas = [runtime.whole(ports, [device], run.by_hint) for device in run.devices]
        pipelines[run.name] = Pipeline(wiring, [list(chain(*replicas))], trace=True)
    return pipelines


def _goodput(model: Any, pipeline: Pipeline, workload: Workload, seconds: float) -> float:
    """The greatest rate of a pipeline within the limit, in items a second."""
    items = model.items(3)
    with contextlib.closing(pipeline):
        model.require_equal(pipeline, [])
        period = streamed(pipeline, items, Budget(seconds=seconds))
        test: LoadTest = load_test(pipeline, items, workload, seconds, 1e3 / period.median)
    return test.goodput or 0.0


def _row(net: str, served: Served) -> Sequence[str]:
    ours, theirs = f"{served.ours:.4g}", f"{served.theirs:.4g}"
    limit, ratio = f"{served.limit_ms:.3g}", f"{served.ratio:.2f}"
    return net, limit, served.deployment, ours, served.rival, theirs, ratio


if __name__ == "__main__":
    sys.exit(main())
