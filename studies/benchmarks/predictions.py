"""Studies of two stages on this machine: how well periods are predicted, and what the best split is
worth.

    python -m studies.benchmarks.predictions [NET ...] [--runtime onnxruntime] [-o FILE]
    python -m studies.benchmarks.predictions [NET ...] --repeat 3

For each net a study measures ``--trials`` splits without stopping early. Told are the median of
|predicted / measured - 1| over the trials after the first five, and from the final comparison, in
turns, the periods of the best split, of the unsplit model on one core and on all, and of replicas.
Bar: 5 % for the median of the errors over all nets.

With ``--repeat`` each net is studied that many times from scratch. Bar: the same split each time,
or splits whose periods, measured in turns, are a tie.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from autosplit.cuts.stages import Stages
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread
from autosplit.study.record import record_of, study_record
from autosplit.study.results import best_of_study
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import best_split, config_of, finished, in_turns, load
from studies.benchmarks.result import Bar, arguments, at_most, compared, finish, shown

FIRST = 5  # trials that the costs are corrected by before predictions count
ERROR = 5.0  # percent
DIFFERENT = "DIFFERENT splits"
WAYS = ("1 thread", "2 threads", "2 replicas")  # in the runtime of the stages


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "nets", nargs="*", default=[name for name in catalog.NAMES if name != "vgg19"]
    )
    parser.add_argument(
        "--runtime",
        choices=("tvm", "onnxruntime"),
        default="tvm",
        help="what runs stages (default tvm)",
    )
    parser.add_argument("--trials", type=int, default=10, help="of each study (default 10)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="a candidate is measured for (default 2)"
    )
    parser.add_argument(
        "--repeat", type=int, default=1, help="studies of each net, from scratch (default 1)"
    )
    args = parser.parse_args()
    if args.repeat > 1:
        return repeated(args)
    if args.trials <= FIRST:
        parser.error(f"--trials {args.trials}: predictions count after {FIRST} trials; give more")
    return once(args)


def once(args: Any) -> int:
    """Prediction and worth, a study a net."""
    rows, errors = [], []
    for net in args.nets:
        with finished(
            config_of(net, args.runtime, args.seconds, trials=args.trials, converge=False)
        ) as opened:
            trials, best = opened.study.get_trials(deepcopy=False), best_of_study(opened.study)
            stored = study_record(opened.study.user_attrs)
        assert best is not None  # else the study would have raised
        net_errors = prediction_errors(trials)
        errors += net_errors
        ways = {b.name: b.period_ms for b in stored.compared_baselines()}
        error = f"{median(net_errors):.1f}" if net_errors else ""  # a small net has no more splits
        rows.append(
            (
                net,
                error,
                shown(best.period_ms),
                *(against(best.period_ms, ways.get(f"{args.runtime}, {way}")) for way in WAYS),
                stored.verdict.choice,
            )
        )
    columns = ("net", "error %", "best split, ms", *(f"{way}, ms" for way in WAYS), "verdict")
    bars = [
        at_most("median error of predicted periods, %", median(errors or [float("nan")]), ERROR)
    ]
    notes = [
        f"error: median of |predicted / measured - 1| over the trials after the first {FIRST}",
        "after each period of the unsplit model: the throughput of the best split over its own",
    ]
    name = "study" if args.runtime == "tvm" else f"study_{args.runtime}"
    return finish(name, columns, rows, notes=notes, bars=bars, file=args.file)


def prediction_errors(trials: Sequence[Any]) -> list[float]:
    """How far, in percent, predictions were from what was then measured, after the first few
    trials.
    """
    errors = []
    for trial in sorted(trials, key=lambda t: t.number):
        predicted = record_of(trial).predicted_ms
        if trial.values and predicted is not None:
            errors.append(100 * abs(predicted / trial.values[0] - 1))
    return errors[FIRST:]


def against(best: Spread, other: Spread | None) -> str:
    """Another way's period, and what the best split is to it."""
    if other is None:
        return ""
    return f"{shown(other)}: {other.median / best.median:.2f}, {compared(best, other)}"


def repeated(args: Any) -> int:
    """Several studies a net: do they end alike?"""
    rows, bars = [], []
    for net in args.nets:
        picks: list[Stages] = []
        for _ in range(args.repeat):
            with finished(config_of(net, args.runtime, args.seconds, trials=args.trials)) as opened:
                picks.append(best_split(opened))
        different = list(dict.fromkeys(picks))
        periods = in_turns(
            load(net, args.runtime), different, Budget(seconds=max(args.seconds, 5.0))
        )
        result_text = ending(periods)
        rows.append((net, args.repeat, len(different), "; ".join(map(shown, periods)), result_text))
        bars.append(
            Bar(
                f"{net}: {args.repeat} studies end with",
                result_text,
                "the same split, or a tie",
                result_text != DIFFERENT,
            )
        )
    columns = ("net", "studies", "different splits", "their periods in turns, ms", "result")
    name = "repeat" if args.runtime == "tvm" else f"repeat_{args.runtime}"
    return finish(name, columns, rows, bars=bars, file=args.file)


def ending(periods: Sequence[Spread]) -> str:
    """What studies end with whose different splits have these periods."""
    if len(periods) == 1:
        return "the same split"
    return "a tie" if all(compared(a, b) == "tie" for a in periods for b in periods) else DIFFERENT


if __name__ == "__main__":
    sys.exit(main())
