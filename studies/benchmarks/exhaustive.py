"""A study of at most five trials against every legal two-stage split, measured.

    python -m studies.benchmarks.exhaustive [NET ...] [--runtime tvm] [--within 1.5] [-o FILE]

For each net the planner's study ends first. Then every legal split is measured once, shortly; those
that the profile predicts to be slower than ``--within`` times its best are left out. The best few
and the study's best then work in turns. A net counts where the study's best is the best of them, or
a tie with it: their 95 % intervals overlap. Bar: seven nets in eight.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, cast

from autosplit.cuts.stages import Stages
from autosplit.errors import AutosplitError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread
from autosplit.planner import evaluate
from autosplit.study.space.search_space import Space
from studies.benchmarks.finished_study import (
    ONNX_NETS,
    best_split,
    config_of,
    finished,
    in_turns,
    load,
)
from studies.benchmarks.result import Bar, arguments, compared, finish, shown

SHARE = 7 / 8
RIVALS = 4  # of all measured splits, in the last comparison
FEWEST = 6  # results that a short measurement times


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=[name for name in ONNX_NETS if name != "vgg19"])
    parser.add_argument("--runtime", choices=("tvm", "onnxruntime"), default="onnxruntime")
    parser.add_argument("--trials", type=int, default=5, help="of the study at most (default 5)")
    parser.add_argument(
        "--study-seconds", type=float, default=1.0, help="it measures a candidate for (default 1)"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=1.5,
        help="times the best prediction; slower ones are left out",
    )
    parser.add_argument(
        "--screen", type=float, default=0.1, help="seconds for each of all splits (default 0.1)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="each works in the last comparison (default 3)"
    )
    args = parser.parse_args()
    rows, results, left_out = [], [], 0
    for net in args.nets:
        with finished(
            config_of(net, args.runtime, args.study_seconds, trials=args.trials)
        ) as opened:
            pick, trials, space = (
                best_split(opened),
                len(opened.study.get_trials(deepcopy=False)),
                opened.space,
            )
        splits = promising(cast("Space", space), args.within)
        left_out += len(space.listed) - len(splits)
        model = load(net, args.runtime)
        best = screened(net, model, splits, Budget(args.screen, items=FEWEST, latency_items=1))
        study_best, *others = in_turns(
            model, list(dict.fromkeys([pick, *best])), Budget(seconds=args.seconds)
        )
        least = min([study_best, *others], key=lambda period: period.median)
        results.append(placed(study_best, least))
        cells = (
            shown(least),
            shown(study_best),
            f"{study_best.median / least.median:.3f}",
            results[-1],
        )
        rows.append((net, len(space.listed), len(splits), trials, *cells))
    columns = (
        "net",
        "legal splits",
        "measured",
        "trials",
        "best of all, ms",
        "study's best, ms",
        "ratio",
        "result",
    )
    notes = [
        f"{left_out} splits were left out: predicted to be slower than {args.within:g} times "
        "the best prediction"
    ]
    good = len(results) - results.count("WORSE")
    bars = [
        Bar(
            "studies within the noise of the best",
            f"{good} of {len(results)}",
            "7 of 8",
            good >= SHARE * len(results),
        )
    ]
    name = "exhaustive" if args.runtime == "onnxruntime" else f"exhaustive_{args.runtime}"
    return finish(name, columns, rows, notes=notes, bars=bars, file=args.file)


def placed(study_best: Spread, least: Spread) -> str:
    """How a period stands to the least of all."""
    return (
        "the best"
        if study_best is least
        else "a tie"
        if compared(study_best, least) == "tie"
        else "WORSE"
    )


def promising(space: Space, within: float) -> list[Stages]:
    """The legal splits but for those predicted to be slower than ``within`` times the best."""
    predicted = {stages: evaluate(space.costs, stages).period for stages in space.listed}
    return [
        stages for stages, period in predicted.items() if period <= within * min(predicted.values())
    ]


def screened(net: str, model: Any, splits: Sequence[Stages], budget: Budget) -> list[Stages]:
    """The best few of all splits, each measured once; what cannot be built is told and left."""
    bench, start = LocalBench(model, along(2), budget), time.monotonic()
    periods: dict[Stages, float] = {}
    for stages in splits:
        try:
            deployment = model.deployment(stages, bench.devices)
            periods[stages] = bench.measure(deployment).period_ms.median
        except AutosplitError as error:
            print(f"{net}: {error}", file=sys.stderr)
    spent = time.monotonic() - start
    print(f"{net}: {len(periods)} splits measured in {spent:.0f} s", file=sys.stderr, flush=True)
    return sorted(periods, key=periods.__getitem__)[:RIVALS]


if __name__ == "__main__":
    sys.exit(main())
