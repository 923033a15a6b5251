"""The best two-stage pipeline of onnxruntime stages against onnxruntime's own two threads on the
unsplit model.

    python -m studies.benchmarks.onnxruntime_threads [NET ...] [--trials N] [--seconds S] [-o FILE]

For each net a short study (planner) finds the split; then its pipeline and a plain loop over one
session with two intra-op threads, as onnxruntime sets them up by default, work in turns, A B B A,
in one process. A net gains only where the 95 % intervals of the two periods do not overlap; else it
is a tie. Bars: seven in nine nets gain, the geometric mean of the throughput gained is 1.05. Leave
the machine alone while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any

from autosplit.cuts.stages import Stages
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.parity import compare, require_equal
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_session
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import (
    ONNX_NETS,
    best_split,
    config_of,
    finished,
    in_turns,
    load,
    looped,
)
from studies.benchmarks.result import Bar, arguments, at_least, compared, finish, shown

MEAN, SHARE = 1.05, 7 / 9


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=ONNX_NETS)
    parser.add_argument(
        "--trials", type=int, default=5, help="of the study of each net (default 5)"
    )
    parser.add_argument(
        "--study-seconds", type=float, default=2.0, help="a candidate is measured for (default 2)"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="each way works in the comparison (default 10)"
    )
    args = parser.parse_args()
    rows, gains, results = [], [], []
    for net in args.nets:
        with finished(
            config_of(net, "onnxruntime", args.study_seconds, trials=args.trials)
        ) as opened:
            stages = best_split(opened)
        split, threads = duelled(net, stages, Budget(seconds=args.seconds))
        gains.append(threads.median / split.median)
        results.append(compared(split, threads))
        ops = f"{len(stages[0])} + {len(stages[1])}"
        rows.append((net, ops, shown(split), shown(threads), f"{gains[-1]:.3f}", results[-1]))
    columns = (
        "net",
        "fused ops",
        "two stages, ms",
        "two threads, ms",
        "throughput gained",
        "result",
    )
    return finish("onnxruntime", columns, rows, bars=bars(results, gains), file=args.file)


def bars(results: Sequence[str], gains: Sequence[float]) -> list[Bar]:
    """What the nets' results and gains must reach; a tie is no gain."""
    gained = results.count("gain")
    count = f"{gained} of {len(results)}, {results.count('tie')} ties"
    return [
        Bar("nets with more throughput", count, "at least 7 of 9", gained >= SHARE * len(results)),
        at_least("geometric mean of the throughput gained", geometric_mean(gains), MEAN, ".3f"),
    ]


def duelled(net: str, stages: Stages, budget: Budget) -> tuple[Spread, Spread]:
    """The periods of the pipeline and of the session with two threads, measured in turns.

    Both are right first.
    """
    model = load(net, "onnxruntime")
    items = model.items()
    whole: Any = onnxruntime_session(catalog.cached(net), threads=2)
    names = [o.name for o in whole.get_outputs()]
    outputs = [dict(zip(names, whole.run(names, item), strict=True)) for item in items]
    require_equal(compare(outputs, model.expected(items)))
    split, threads = in_turns(model, [stages], budget, [partial(looped, whole, items)])
    return split, threads


if __name__ == "__main__":
    sys.exit(main())
