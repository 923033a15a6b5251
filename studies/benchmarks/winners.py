"""What studies of deployments end with, against what a user would pick without them.

    python -m studies.benchmarks.winners [NET ...] [--runtime NAME] [--cores N | --stages N]
        [--trials N] [--seconds S] [-o FILE]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. A study searches
stages, replicas, threads and runtimes on N cores, or with ``--stages`` splits into N stages of one
core, and its winner is exported. With ``--runtime`` all stages are in that runtime. Then, in turns,
run the winner as the study built it, the export, and the unsplit model in the ways that were
fastest in the study: each runtime with one thread, with N, in replicas and by OpenVINO's hint.
Replicas of the unsplit model are loaded one by one, as a user does without autosplit; those of a
deployment in onnxruntime share their weights. ``same``: the winner is that way of running the
unsplit model. Last, OpenVINO's own benchmark_app runs the model by its throughput hint, in single
precision and in bfloat16, whose outputs are not compared. ``prediction error``: the median of
|predicted / measured - 1| over the trials after the first five. Bars: no winner is slower than the
fastest unsplit model beyond noise, the export is within 5 % of the winner, predictions are within
5 %, and with all runtimes at least 3 winners are faster beyond noise. Leave the machine alone while
it runs.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import autosplit
from autosplit import api
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices.device import Cores, along, available
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement.baselines import baseline_name
from autosplit.hardware.measurement.measure import Budget, Contender, compare_interleaved
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.profiling.timing import on_cores
from autosplit.hardware.runtimes.registry import AUTO, ONNXRUNTIME, RUNTIMES
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
from autosplit.study.record import record_of, study_record
from autosplit.study.results import best_of_study
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished, streamed
from studies.benchmarks.result import (
    Bar,
    arguments,
    at_least,
    at_most,
    compared,
    each,
    finish,
    shown,
)
from tests import mobile_nets, user_nets

BUILT: Mapping[str, Callable[[], Any]] = {**user_nets.NETS, **mobile_nets.NETS}
GAINS, AGREEMENT, ERROR = 3, 0.05, 5.0  # winners; a share; percent
FIRST = 5  # trials that correct the costs before predictions count
COLUMNS = (
    "net",
    "deployment",
    "winner, ms",
    "export, ms",
    "fastest unsplit, ms",
    "which",
    "throughput ratio",
    "outcome",
    "prediction error, %",
    "benchmark_app f32, ms",
    "benchmark_app bf16, ms",
)
PRECISIONS = ("f32", "bf16")
APP_SECONDS = 5


class Winner(NamedTuple):
    """The periods in ms of a study's winner, of its export and of the fastest unsplit model.

    ``unsplit`` is the winner's name as a way to run the unsplit model, None where it is none.
    ``errors`` are those of the predicted periods in percent. ``app_ms`` has the time an item of
    benchmark_app in each of PRECISIONS, None where it fails.
    """

    deployment: str
    unsplit: str | None
    period: Spread
    exported: Spread
    rival: str
    rival_period: Spread
    errors: tuple[float, ...]
    app_ms: tuple[float | None, ...]

    @property
    def outcome(self) -> str:
        """``gain``, ``loss``, ``tie`` or ``same`` against the fastest unsplit model."""
        # The same thing measured twice differs by chance alone.
        return "same" if self.unsplit == self.rival else compared(self.period, self.rival_period)

    @property
    def disagreement(self) -> float:
        """By which share the period of the export differs from the winner's."""
        return abs(self.exported.median / self.period.median - 1)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=[*catalog.NAMES, *BUILT])
    parser.add_argument("--runtime", choices=(AUTO, *RUNTIMES), default=AUTO)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--cores", type=int, default=2, metavar="N", help="cores (default 2)")
    shape.add_argument(
        "--stages", type=int, metavar="N", help="search splits into N stages instead"
    )
    parser.add_argument("--trials", type=int, default=8, help="of each study (default 8)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="a candidate is measured for (default 5)"
    )
    args = parser.parse_args()
    settings = {
        "runtime": args.runtime,
        **({"stages": args.stages} if args.stages else {"cores": args.cores}),
        "measure": {"seconds": args.seconds},
        "search": {"trials": args.trials},
    }
    winners, failures = each(args.nets, lambda net: winner(net, settings))
    rows = [_row(net, w) for net, w in winners.items()]
    bars = [*bars_of(winners.values(), args.runtime), failures]
    return finish("winners", COLUMNS, rows, bars=bars, file=args.file)


def bars_of(winners: Collection[Winner], runtime: str) -> list[Bar]:
    """What the winners of all nets must reach; a tie is no gain."""
    outcomes = [w.outcome for w in winners]
    errors = [error for w in winners for error in w.errors]
    bars = [
        at_most("winners slower beyond noise", outcomes.count("loss"), 0),
        at_most("largest difference of bench", max(w.disagreement for w in winners), AGREEMENT),
    ]
    if errors:
        bars.append(at_most("median error of predicted periods, %", median(errors), ERROR))
    if runtime == AUTO:
        bars.append(at_least("winners faster beyond noise", outcomes.count("gain"), GAINS))
    return bars


def winner(net: str, settings: Mapping[str, Any]) -> Winner:
    """The study of a net, and its winner beside the export and the unsplit model.

    ``settings`` are keys of its study file.
    """
    cores = settings.get("cores") or settings["stages"]
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = model_file(net, Path(temporary)), Path(temporary, "out")
        document = {**settings, "name": net, "model": str(path), "export": str(folder)}
        with finished(StudyConfig.model_validate(document)) as opened:
            best = best_of_study(opened.study)
            assert best is not None  # else the study would have raised
            deployment = best.record.deployment()
            errors = prediction_errors(opened.study.get_trials(deepcopy=False))
            export_best_split(opened)
            rivals = [
                baseline.name
                for baseline in study_record(opened.study.user_attrs).compared_baselines()
            ]
        model = api.load_model(path, runtime=settings["runtime"])
        with contextlib.ExitStack() as stack:
            names, contenders = _unsplit(stack, model, cores, rivals)
            ways = model.pipeline(deployment, trace=True), autosplit.load(folder, trace=True)
            contenders[:0] = [_contender(stack, model, pipeline) for pipeline in ways]
            budget = Budget(seconds=max(3.0, settings["measure"]["seconds"]))
            period, exported, *others = compare_interleaved(contenders, budget)
        app_ms = tuple(benchmark_app_ms(path, cores, precision) for precision in PRECISIONS)
    rival = min(range(len(others)), key=lambda i: others[i].median)
    columns = zip(deployment.replicas, deployment.threads, deployment.runtimes, strict=True)
    shape = " | ".join(f"{replicas} x {threads} {name}" for replicas, threads, name in columns)
    # Its replicas share weights, and those of the unsplit model here do not.
    is_other = ONNXRUNTIME in deployment.runtimes
    unsplit = None if is_other else baseline_name(deployment)
    rival_period = others[rival]
    return Winner(shape, unsplit, period, exported, names[rival], rival_period, errors, app_ms)


def model_file(net: str, folder: Path) -> Path:
    """The ONNX file of a net; one that is built for it goes into ``folder``."""
    if net not in BUILT:
        return catalog.cached(net)
    path = folder / f"{net}.onnx"
    path.write_bytes(BUILT[net]().SerializeToString())
    return path


def prediction_errors(trials: Sequence[Any]) -> tuple[float, ...]:
    """How far, in percent, predictions were from what was then measured, after the first trials."""
    errors = []
    for trial in sorted(trials, key=lambda t: t.number):
        predicted = record_of(trial).predicted_ms
        if trial.values and predicted is not None:
            errors.append(100 * abs(predicted / trial.values[0] - 1))
    return tuple(errors[FIRST:])


def _unsplit(
    stack: contextlib.ExitStack, model: Any, cores: int, rivals: Sequence[str]
) -> tuple[list[str], list[Contender]]:
    """The names and the contenders of those ways to run the unsplit model that are ``rivals``."""
    bench = LocalBench(model, along(cores))
    wiring = model.wiring([range(len(model.graph.ops))])
    (ports,) = wiring.stages
    names, contenders = [], []
    for run in bench.unsplit_runs():
        if run.name in rivals:
            runtime = model.runtime_of(run.runtime)
            runtime.prepare(run.devices)
            replicas = [runtime.whole(ports, [device], run.by_hint) for device in run.devices]
            pipeline = Pipeline(wiring, [list(chain(*replicas))], trace=True)
            names.append(run.name)
            contenders.append(_contender(stack, model, pipeline))
    return names, contenders


def _contender(stack: contextlib.ExitStack, model: Any, pipeline: Pipeline) -> Contender:
    """A pipeline kept full of items; open while ``stack`` is, and right first."""
    stack.enter_context(pipeline)
    model.require_equal(pipeline, [])
    return partial(streamed, pipeline, model.items(3))


def benchmark_app_ms(model: Path, cores: int, precision: str) -> float | None:
    """The time an item, by the throughput hint on some cores; None where the program fails."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "-m": model,
            "-hint": "throughput",
            "-infer_precision": precision,
            "-t": APP_SECONDS,
            "-report_type": "no_counters",
            "-report_folder": folder,
        }
        words = [str(word) for pair in options.items() for word in pair]
        program = "from openvino.tools.benchmark.main import main; main()"
        command = [sys.executable, "-c", program, *words, "-json_stats"]
        # The process inherits the cores of the thread that starts it.
        run = partial(subprocess.run, command, capture_output=True, check=False)
        places = Cores(available()[:cores])
        if on_cores(places, run).returncode:
            return None
        report = json.loads(Path(folder, "benchmark_report.json").read_text(encoding="utf-8"))
    return 1e3 / float(report["execution_results"]["throughput"])


def _row(net: str, won: Winner) -> tuple[str, ...]:
    ratio = won.rival_period.median / won.period.median
    low = won.rival_period.low / won.period.high
    high = won.rival_period.high / won.period.low
    return (
        net,
        won.deployment,
        shown(won.period),
        shown(won.exported),
        shown(won.rival_period),
        won.rival,
        f"{ratio:.2f} ({low:.2f} to {high:.2f})",
        won.outcome,
        f"{median(won.errors):.1f}" if won.errors else "",
        *("" if ms is None else f"{ms:.3g}" for ms in won.app_ms),
    )


if __name__ == "__main__":
    sys.exit(main())
