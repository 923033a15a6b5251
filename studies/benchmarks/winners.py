"""The deployments that studies find, compared with those that a user would pick without a study.

    python -m studies.benchmarks.winners [NET ...] [--runtime NAME] [--cores N | --stages N]
        [--trials N] [--seconds S] [-o FILE]

NET is a net of the zoo, one of tests.user_nets or tests.mobile_nets, or one of ``architectures``,
which need the packages timm and transformers. A study searches
stages, replicas, threads and runtimes on N cores, or with ``--stages`` splits into N stages of one
core; with ``--runtime`` all stages are in that runtime. Its final comparison measures, in turns,
its best deployments and the unsplit model in each runtime with one thread, with N, in replicas and
by OpenVINO's hint. ``same``: the winner is the fastest way of running the unsplit model. Then the
export runs in turns with the winner. ``prediction error``: the median of |predicted / measured - 1|
over the trials after the first five. Bars: no winner is slower than the fastest unsplit model
beyond noise, the export is within 5 % of the winner, predictions are within 5 %, and with all
runtimes at least 3 winners are faster beyond noise. Leave the machine alone while it runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import autosplit
from autosplit import api
from autosplit.deployment import Deployment
from autosplit.hardware.measurement.measure import Budget, compare_interleaved
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES
from autosplit.report.documents.record import Trial, read
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished, streamed
from studies.benchmarks.nets import BUILT, model_file
from studies.benchmarks.result import Bar, arguments, at_least, at_most, each, finish

GAINS, AGREEMENT, ERROR = 3, 0.05, 5.0  # winners; a share; percent
FIRST = 5  # trials that correct the costs before predictions count


class Winner(NamedTuple):
    """The periods in ms of a study's winner and of the fastest unsplit model, its rival.

    ``unsplit`` is the rival's name where the winner runs in the same way, else None.
    ``export_ratio``: the period of the export over that of the winner. ``errors`` are those of the
    predicted periods in percent.
    """

    deployment: str
    unsplit: str | None
    period: Spread
    export_ratio: float
    rival: str
    rival_period: Spread
    errors: tuple[float, ...]

    @property
    def outcome(self) -> str:
        """``gain``, ``loss``, ``tie`` or ``same`` against the fastest unsplit model."""
        if self.unsplit == self.rival:
            return "same"  # two measurements of it differ by chance alone
        if self.period.high < self.rival_period.low:
            return "gain"
        return "loss" if self.period.low > self.rival_period.high else "tie"


def main() -> int:
    parser = arguments(__doc__, [*catalog.NAMES, *BUILT], trials=8, seconds=3.0)
    parser.add_argument("--runtime", choices=(AUTO, *RUNTIMES), default=AUTO)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--cores", type=int, default=2, metavar="N", help="cores (2)")
    shape.add_argument("--stages", type=int, metavar="N", help="search splits into N stages")
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
    return finish("winners", rows, bars=bars, file=args.file)


def bars_of(winners: Collection[Winner], runtime: str) -> list[Bar]:
    """The bars for the winners of all nets; a tie is not a gain."""
    outcomes = [w.outcome for w in winners]
    errors = [error for w in winners for error in w.errors]
    difference = max(abs(w.export_ratio - 1) for w in winners)
    bars = [
        at_most("winners slower beyond noise", outcomes.count("loss"), 0),
        at_most("largest difference of bench", difference, AGREEMENT),
    ]
    if errors:
        bars.append(at_most("median error of predicted periods, %", median(errors), ERROR))
    if runtime == AUTO:
        bars.append(at_least("winners faster beyond noise", outcomes.count("gain"), GAINS))
    return bars


def winner(net: str, settings: Mapping[str, Any]) -> Winner:
    """Run the study of a net; compare its winner with the unsplit model and with the export.

    ``settings`` are keys of the study file.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = model_file(net, Path(temporary)), Path(temporary, "out")
        name = net.replace("/", "-")
        document = {**settings, "name": name, "model": str(path), "export": str(folder)}
        with finished(StudyConfig.model_validate(document)) as opened:
            study = read(opened.study)
            export_best_split(opened)
        model = api.load_model(path, runtime=settings["runtime"])
        advised = study.best() if "stages" in settings else study.advised()
        rival = study.rival
        # Without a result the study would have raised an error.
        assert advised
        assert rival
        deployment: Deployment | None
        period: Spread | None
        if isinstance(advised, Trial):
            deployment, period = advised.record.deployment(), advised.figures.period_ms
        else:
            deployment = advised.deployment(len(model.graph.ops))
            period = advised.period_ms
        assert deployment
        assert period
        with (
            model.pipeline(deployment, trace=True) as built,
            autosplit.load(folder, trace=True) as exported,
        ):
            for pipeline in (built, exported):
                model.require_equal(pipeline, [])
            budget = Budget(seconds=max(3.0, settings["measure"]["seconds"]))
            ways = [partial(streamed, pipeline, model.items(3)) for pipeline in (built, exported)]
            winning, of_export = compare_interleaved(ways, budget)
    shape, whole = _shape(deployment), rival.deployment(len(model.graph.ops))
    is_rival = whole is not None and (_shape(whole), whole.batch) == (shape, deployment.batch)
    return Winner(
        shape,
        rival.name if is_rival else None,
        period,
        of_export.median / winning.median,
        rival.name,
        rival.period_ms,
        prediction_errors(study.trials),
    )


def _shape(deployment: Deployment) -> str:
    columns = zip(deployment.replicas, deployment.threads, deployment.runtimes, strict=True)
    return " | ".join(f"{replicas} x {threads} {name}" for replicas, threads, name in columns)


def prediction_errors(trials: Sequence[Trial]) -> tuple[float, ...]:
    """How far, in percent, predictions were from what was then measured, after the first trials."""
    pairs = [(t.record.predicted_ms, t.record.period_ms) for t in trials]
    errors = [
        100 * abs(predicted / period.median - 1)
        for predicted, period in pairs
        if predicted is not None and period
    ]
    return tuple(errors[FIRST:])


def _row(net: str, won: Winner) -> dict[str, object]:
    ratio = won.rival_period.median / won.period.median
    low = won.rival_period.low / won.period.high
    high = won.rival_period.high / won.period.low
    return {
        "net": net,
        "deployment": won.deployment,
        "winner, ms": won.period,
        "export / winner": f"{won.export_ratio:.3f}",
        "fastest unsplit, ms": won.rival_period,
        "which": won.rival,
        "throughput ratio": f"{ratio:.2f} ({low:.2f} to {high:.2f})",
        "outcome": won.outcome,
        "prediction error, %": f"{median(won.errors):.1f}" if won.errors else None,
    }


if __name__ == "__main__":
    sys.exit(main())
