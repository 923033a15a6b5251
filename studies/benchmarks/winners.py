"""What studies of deployments end with, against what a user would pick without them.

    python -m studies.benchmarks.winners [NET ...] [--cores N] [--trials N] [--seconds S] [-o FILE]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. A study searches
stages, replicas, threads and runtimes on N cores. Its final comparison measures the best
deployments and the unsplit model (each runtime with one thread, with N, in replicas and with
OpenVINO's throughput hint) in turns. The winner is then exported and measured again by ``bench``.
``same``: the winner is that way of running the unsplit model. Bars: no winner is slower than the
fastest unsplit model beyond noise, at least 3 are faster beyond noise, and ``bench`` is within 5 %
of the study. Leave the machine alone while it runs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from autosplit.deploy.verify import bench
from autosplit.hardware.measurement.baselines import baseline_name
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_best_split
from autosplit.study.persistence import records
from autosplit.study.persistence.attributes import compared_baselines
from autosplit.study.trials.results import best_trial
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished
from studies.benchmarks.result import arguments, at_least, at_most, compared, finish, shown
from studies.benchmarks.runtimes import BUILT, model_file

GAINS, AGREEMENT = 3, 0.05
COLUMNS = (
    "net",
    "deployment",
    "study, ms",
    "bench, ms",
    "fastest unsplit, ms",
    "which",
    "throughput ratio",
    "winner",
)


class Winner(NamedTuple):
    """The periods in ms of a study's winner and of the fastest unsplit model, in its comparison;
    ``again`` is the winner's once exported. ``unsplit`` is its name as a way to run the unsplit
    model, None for any other.
    """

    deployment: str
    unsplit: str | None
    period: Spread
    again: Spread
    rival: str
    rival_period: Spread

    @property
    def outcome(self) -> str:
        """``gain``, ``loss``, ``tie`` or ``same`` against the fastest unsplit model."""
        # The same thing measured twice differs by chance alone.
        return "same" if self.unsplit == self.rival else compared(self.period, self.rival_period)

    @property
    def disagreement(self) -> float:
        """By which share the period of the export differs from the study's."""
        return abs(self.again.median / self.period.median - 1)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=[*catalog.NAMES, *BUILT])
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="cores (default 2)")
    parser.add_argument("--trials", type=int, default=8, help="of each study (default 8)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="a candidate is measured for (default 1)"
    )
    args = parser.parse_args()
    winners = {net: winner(net, args.cores, args.trials, args.seconds) for net in args.nets}
    outcomes = [w.outcome for w in winners.values()]
    bars = [
        at_most("winners slower beyond noise", outcomes.count("loss"), 0),
        at_least("winners faster beyond noise", outcomes.count("gain"), GAINS),
        at_most(
            "largest difference of bench", max(w.disagreement for w in winners.values()), AGREEMENT
        ),
    ]
    rows = [_row(net, w) for net, w in winners.items()]
    return finish("winners", COLUMNS, rows, bars=bars, file=args.file)


def winner(net: str, cores: int, trials: int, seconds: float) -> Winner:
    """The study of a net, and what its export takes."""
    with tempfile.TemporaryDirectory() as folder:
        document = {
            "name": net,
            "model": str(model_file(net, Path(folder))),
            "cores": cores,
            "export": str(Path(folder, "out")),
            "measure": {"seconds": seconds},
            "search": {"trials": trials},
        }
        with finished(StudyConfig.model_validate(document)) as opened:
            attributes = opened.study.user_attrs
            best = best_trial(opened.study.get_trials(deepcopy=False), attributes)
            assert best is not None  # else the study would have raised
            trial, period = best
            rival = min(compared_baselines(attributes), key=lambda b: b.period_ms.median)
            key = trial.user_attrs[records.KEY]
            deployment = opened.deployment(opened.space.split(key), opened.space.runtimes_of(key))
            exported = export_best_split(opened)
            assert exported is not None  # the study names a folder
        again = bench(exported, Budget(seconds=max(3.0, seconds))).period
    columns = zip(deployment.replicas, deployment.threads, deployment.runtimes, strict=True)
    shape = " | ".join(f"{replicas} x {threads} {name}" for replicas, threads, name in columns)
    return Winner(shape, baseline_name(deployment), period, again, rival.name, rival.period_ms)


def _row(net: str, won: Winner) -> tuple[str, ...]:
    ratio = won.rival_period.median / won.period.median
    low = won.rival_period.low / won.period.high
    high = won.rival_period.high / won.period.low
    return (
        net,
        won.deployment,
        shown(won.period),
        shown(won.again),
        shown(won.rival_period),
        won.rival,
        f"{ratio:.2f} ({low:.2f} to {high:.2f})",
        won.outcome,
    )


if __name__ == "__main__":
    sys.exit(main())
