"""What studies of deployments end with, against what a user would pick without them.

    python -m studies.benchmarks.winners [NET ...] [--runtime NAME] [--cores N | --stages N]
        [--trials N] [--seconds S] [-o FILE]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. A study searches
stages, replicas, threads and runtimes on N cores, or with ``--stages`` splits into N stages of one
core; with ``--runtime`` all stages are in that runtime. Its final comparison measures, in turns,
its best deployments and the unsplit model in each runtime with one thread, with N, in replicas and
by OpenVINO's hint. ``same``: the winner is the fastest way of running the unsplit model. Then the
export runs in turns with the winner. Last, OpenVINO's own benchmark_app runs the model by its
throughput hint, in single precision and in bfloat16, whose outputs are not compared. ``prediction
error``: the median of |predicted / measured - 1| over the trials after the first five. Bars: no
winner is slower than the fastest unsplit model beyond noise, the export is within 5 % of the
winner, predictions are within 5 %, and with all runtimes at least 3 winners are faster beyond
noise. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import autosplit
from autosplit import api
from autosplit.hardware.devices.device import Cores, available
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement.baselines import baseline_name
from autosplit.hardware.measurement.measure import Budget, Contender, compare_interleaved
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.profiling.timing import on_cores
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES
from autosplit.report.documents.record import Trial, read
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
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
    "export / winner",
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
    """The periods in ms of a study's winner and of the fastest unsplit model, its rival.

    ``unsplit`` is the winner's name as a way to run the unsplit model, None where it is none.
    ``export_ratio``: the period of the export over that of the winner. ``errors`` are those of the
    predicted periods in percent. ``app_ms`` has the time an item of benchmark_app in each of
    PRECISIONS, None where it fails.
    """

    deployment: str
    unsplit: str | None
    period: Spread
    export_ratio: float
    rival: str
    rival_period: Spread
    errors: tuple[float, ...]
    app_ms: tuple[float | None, ...]

    @property
    def outcome(self) -> str:
        """``gain``, ``loss``, ``tie`` or ``same`` against the fastest unsplit model."""
        # The same thing measured twice differs by chance alone.
        return "same" if self.unsplit == self.rival else compared(self.period, self.rival_period)


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
        at_most(
            "largest difference of bench", max(abs(w.export_ratio - 1) for w in winners), AGREEMENT
        ),
    ]
    if errors:
        bars.append(at_most("median error of predicted periods, %", median(errors), ERROR))
    if runtime == AUTO:
        bars.append(at_least("winners faster beyond noise", outcomes.count("gain"), GAINS))
    return bars


def winner(net: str, settings: Mapping[str, Any]) -> Winner:
    """The study of a net, its winner beside the unsplit model, and the export beside the winner.

    ``settings`` are keys of its study file.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = model_file(net, Path(temporary)), Path(temporary, "out")
        document = {**settings, "name": net, "model": str(path), "export": str(folder)}
        with finished(StudyConfig.model_validate(document)) as opened:
            study = read(opened.study)
            export_best_split(opened)
        best, rival = study.best(), study.rival
        # Else the study would have raised.
        assert best
        assert best.figures.period_ms
        assert rival
        deployment = best.record.deployment()
        model = api.load_model(path, runtime=settings["runtime"])
        with contextlib.ExitStack() as stack:
            ways = model.pipeline(deployment, trace=True), autosplit.load(folder, trace=True)
            contenders = [_contender(stack, model, pipeline) for pipeline in ways]
            budget = Budget(seconds=max(3.0, settings["measure"]["seconds"]))
            built, exported = compare_interleaved(contenders, budget)
        cores = settings.get("cores") or settings["stages"]
        app_ms = tuple(benchmark_app_ms(path, cores, precision) for precision in PRECISIONS)
    columns = zip(deployment.replicas, deployment.threads, deployment.runtimes, strict=True)
    return Winner(
        " | ".join(f"{replicas} x {threads} {name}" for replicas, threads, name in columns),
        baseline_name(deployment),
        best.figures.period_ms,
        exported.median / built.median,
        rival.name,
        rival.period_ms,
        prediction_errors(study.trials),
        app_ms,
    )


def model_file(net: str, folder: Path) -> Path:
    """The ONNX file of a net; one that is built for it goes into ``folder``."""
    if net not in BUILT:
        return catalog.cached(net)
    path = folder / f"{net}.onnx"
    path.write_bytes(BUILT[net]().SerializeToString())
    return path


def prediction_errors(trials: Sequence[Trial]) -> tuple[float, ...]:
    """How far, in percent, predictions were from what was then measured, after the first trials."""
    errors = []
    for record in (trial.record for trial in trials):
        if record.period_ms and record.predicted_ms is not None:
            errors.append(100 * abs(record.predicted_ms / record.period_ms.median - 1))
    return tuple(errors[FIRST:])


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
        f"{won.export_ratio:.3f}",
        shown(won.rival_period),
        won.rival,
        f"{ratio:.2f} ({low:.2f} to {high:.2f})",
        won.outcome,
        f"{median(won.errors):.1f}" if won.errors else "",
        *("" if ms is None else f"{ms:.3g}" for ms in won.app_ms),
    )


if __name__ == "__main__":
    sys.exit(main())
