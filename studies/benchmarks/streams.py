"""One stream with states: a pipeline of two cores against one core and two threads.

    python -m studies.benchmarks.streams [NET ...] [--trials N] [--seconds S] [-o FILE]

NET is a net of the zoo with states. A study searches the split into two stages, in any runtime. Its
final comparison measures, in turns, the best splits and the unsplit model in each runtime with one
thread and with two. ``planned ratio``: the throughput that the op times allow, over that of one
core. The bar is at least 1.6 times the throughput of the fastest single core; it holds for nets
whose planned ratio is as high. Leave the machine alone while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from autosplit.hardware.measurement.results import Baseline
from autosplit.report.documents.record import read
from autosplit.study.config.study_file import StudyConfig
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished
from studies.benchmarks.result import arguments, at_least, finish

LEAST = 1.6


def main() -> int:
    args = arguments(__doc__, list(catalog.STREAMS), trials=4, seconds=5.0).parse_args()
    rows, bars = [], []
    for net in args.nets:
        row, ratio, planned = _measured(net, args.trials, args.seconds)
        rows.append(row)
        if planned >= LEAST:
            bars.append(at_least(f"{net}: throughput of a stream over one core", ratio, LEAST))
    return finish("streams", rows, bars=bars, file=args.file)


def _measured(net: str, trials: int, seconds: float) -> tuple[dict[str, object], float, float]:
    """The row of a net, its throughput over one core, and the planned one."""
    document = {
        "name": net,
        "zoo": net,
        "stages": 2,
        "states": "auto",
        "search": {"trials": trials},
        "measure": {"seconds": seconds},
    }
    with finished(StudyConfig.model_validate(document)) as opened:
        study = read(opened.study)
    best, record = study.best(), study.record
    # Without a result the study would have raised an error.
    assert best
    assert best.figures.period_ms
    names = {b.name for b in record.final_comparison.baselines if b}
    compared = [b for b in study.baselines if b.name in names]
    one_core, two_threads = _fastest(compared, "1 thread"), _fastest(compared, "2 threads")
    assert one_core  # of three runtimes; the final comparison has four baselines
    least = min(sum(profile.op_ms) for profile in record.profile if profile.op_ms)
    planned = least / min(t.record.predicted_ms for t in study.trials if t.record.predicted_ms)
    ratio = one_core.period_ms.median / best.figures.period_ms.median
    row = {
        "net": net,
        "pipeline, ms": best.figures.period_ms,
        "runtimes": " | ".join(best.record.runtimes),
        "one core, ms": one_core.period_ms,
        "runtime": one_core.runtime,
        "two threads, ms": two_threads and two_threads.period_ms,
        "throughput ratio": ratio,
        "planned ratio": planned,
    }
    return row, ratio, planned


def _fastest(baselines: Sequence[Baseline], threads: str) -> Baseline | None:
    """The fastest way to run the unsplit model with so many threads."""
    ways = [b for b in baselines if b.name.endswith(f", {threads}")]
    return min(ways, key=lambda b: b.period_ms.median, default=None)


if __name__ == "__main__":
    sys.exit(main())
