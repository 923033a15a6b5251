"""The best split of a study with runtime auto against the best single session of any runtime.

    python -m studies.benchmarks.runtimes [NET ...] [--trials N] [--seconds S] [--single] [-o FILE]

NET is a net of the zoo, one of tests.user_nets or one of tests.mobile_nets. A study of two stages
searches the split and the runtime of each stage. Its best split and the unsplit model in every
runtime, with one thread and with two, are then measured in turns. With ``--single`` the best splits
of the same study in each runtime alone take part as well. Bars: a geometric mean of the throughput
ratios of at least 1.05, no net slower beyond noise unless its longest op alone takes as long, and
no study slower than one in a single runtime. Leave the machine alone while it runs.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.runtimes.registry import AUTO, EXACT, is_installed
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import OpenStudy
from autosplit.study.results import best_of_study
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished
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
MEAN = 1.05
COLUMNS = (
    "net",
    "best split, ms",
    "runtimes",
    "best session, ms",
    "session",
    "throughput ratio",
    "longest op, ms",
    "best in a single runtime, ms",
)


class Compared(NamedTuple):
    """Periods in ms, measured in turns; ``longest_ms`` is the time of the longest op."""

    runtimes: tuple[str, ...]
    split: Spread
    sessions: Mapping[str, Spread]
    single: Mapping[str, Spread]
    longest_ms: float

    @property
    def session(self) -> str:
        """The fastest session."""
        return min(self.sessions, key=lambda name: self.sessions[name].median)

    @property
    def ratio(self) -> float:
        """The throughput of the split over that of the fastest session."""
        return self.sessions[self.session].median / self.split.median

    @property
    def is_slower(self) -> bool:
        """Whether the split is slower beyond noise, and not because of one op."""
        session = self.sessions[self.session]
        return compared(self.split, session) == "loss" and self.longest_ms < session.low

    @property
    def loses_to_single(self) -> bool:
        """Whether a study in one runtime alone ended with a faster split, beyond noise."""
        return any(compared(self.split, period) == "loss" for period in self.single.values())


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=[*catalog.NAMES, *BUILT])
    parser.add_argument("--trials", type=int, default=20, help="of each study (default 20)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="a candidate is measured for (default 5)"
    )
    parser.add_argument("--single", action="store_true", help="also studies in each runtime alone")
    args = parser.parse_args()
    results, failures = each(
        args.nets, lambda net: compare(net, args.trials, args.seconds, args.single)
    )
    rows = [row(net, measured) for net, measured in results.items()]
    ratios = [measured.ratio for measured in results.values()]
    slower = sum(measured.is_slower for measured in results.values())
    bars: list[Bar] = [
        at_least("geometric mean of the throughput ratios", geometric_mean(ratios), MEAN),
        at_most("nets slower beyond noise without a long op", slower, 0),
        failures,
    ]
    if args.single:
        lost = sum(measured.loses_to_single for measured in results.values())
        bars.append(at_most("studies slower than one in a single runtime", lost, 0))
    return finish("runtimes", COLUMNS, rows, bars=bars, file=args.file)


def compare(net: str, trials: int, seconds: float, single: bool) -> Compared:
    """The studies of a net, then their best splits and the sessions in turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = model_file(net, Path(folder))

        def config(runtime: str) -> StudyConfig:
            return StudyConfig.model_validate(
                {
                    "name": f"{net}-{runtime}",
                    "model": str(path),
                    "runtime": runtime,
                    "stages": 2,
                    "measure": {"seconds": seconds},
                    "search": {"trials": trials},
                }
            )

        installed = list(filter(is_installed, EXACT)) if single else []
        others = {name: best_deployment(config(name)) for name in installed}
        with finished(config(AUTO)) as opened:
            return _in_turns(opened, others)


def model_file(net: str, folder: Path) -> Path:
    """The ONNX file of a net; one that is built for it goes into ``folder``."""
    if net not in BUILT:
        return catalog.cached(net)
    path = folder / f"{net}.onnx"
    path.write_bytes(BUILT[net]().SerializeToString())
    return path


def best_deployment(config: StudyConfig) -> Deployment:
    """The best split of a study of its own."""
    with finished(config) as opened:
        return _best(opened)


def _best(opened: OpenStudy) -> Deployment:
    best = best_of_study(opened.study)
    assert best is not None  # else the study would have raised
    return best.record.deployment()


def _in_turns(opened: OpenStudy, others: Mapping[str, Deployment]) -> Compared:
    best = _best(opened)
    names = [
        f"{r}, {t}" for r in opened.bench.description.runtimes for t in ("1 thread", "2 threads")
    ]
    measurements, baselines = opened.bench.compare_interleaved([best, *others.values()], names)
    periods = [measurement.period_ms for measurement in measurements]
    sessions = {name: baseline.period_ms for name, baseline in baselines.items()}
    # No split is faster than its longest op where that is fastest.
    least = [min(each) for each in zip(*(r.times for r in opened.space.costs.rows), strict=True)]
    longest = max(t for t in least if t < math.inf)
    single = dict(zip(others, periods[1:], strict=True))
    return Compared(best.runtimes, periods[0], sessions, single, longest)


def row(net: str, measured: Compared) -> tuple[str, ...]:
    """The line of a net in the table."""
    session = measured.sessions[measured.session]
    low, high = session.low / measured.split.high, session.high / measured.split.low
    single = min(measured.single, key=lambda name: measured.single[name].median, default=None)
    return (
        net,
        shown(measured.split),
        ", ".join(measured.runtimes),
        shown(session),
        measured.session,
        f"{measured.ratio:.2f} ({low:.2f} to {high:.2f})",
        f"{measured.longest_ms:.2f}",
        "" if single is None else f"{shown(measured.single[single])}, {single}",
    )


if __name__ == "__main__":
    sys.exit(main())
