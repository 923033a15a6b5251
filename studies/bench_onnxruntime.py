"""The best two-stage pipeline of onnxruntime stages against onnxruntime's own two threads on the unsplit model.

    python studies/bench_onnxruntime.py [NET ...] [--trials N] [--seconds S]

For each net a short study (planner) finds the split; then its pipeline and a plain loop over one session with two intra-op
threads, as onnxruntime sets them up by default, work in turns, A B B A, in one process. Prints the periods with their 95 %
intervals, the throughput gained and its geometric mean. Exits 1 where fewer than seven in nine nets gain, or the mean is below
1.05. Leave the machine alone while it runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from autosplit import api, zoo
from autosplit.cli.output import emit_table
from autosplit.hardware import measure
from autosplit.hardware.bench import Stages
from autosplit.hardware.devices import along
from autosplit.hardware.duel import duel
from autosplit.hardware.measure import Budget
from autosplit.hardware.pipeline import Item, Pipeline
from autosplit.hardware.reference import compare, onnxruntime_session, require_equal
from autosplit.hardware.results import Spread
from autosplit.hardware.stats import spread
from autosplit.report.environment import environment
from autosplit.study.benches import open_bench
from autosplit.study.conclude import best_trial
from autosplit.study.config import StudyConfig
from autosplit.study.open import open_study
from autosplit.study.progress import progress
from autosplit.study.run import run_study

NETS = tuple(name for name in zoo.NAMES if name not in ("branches", "transformer"))  # those of the onnx package
MEAN, SHARE = 1.05, 7 / 9
PACKAGES = ("machine", "onnxruntime", "python")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", default=NETS)
    parser.add_argument("--trials", type=int, default=5, help="of the study of each net (default 5)")
    parser.add_argument("--seconds", type=float, default=20.0, help="each way works in the comparison (default 20)")
    args = parser.parse_args()
    rows, gains = [], []
    for net in args.nets:
        stages = best_split(net, args.trials)
        split, own = compared(net, stages, Budget(seconds=args.seconds))
        gains.append(own.median / split.median)
        rows.append((net, f"{len(stages[0])} + {len(stages[1])}", shown(split), shown(own), f"{gains[-1]:.3f}"))
    emit_table("", ("net", "fused ops", "two stages, ms", "two threads, ms", "throughput gained"), rows)
    mean, better = geometric_mean(gains), sum(gain > 1 for gain in gains)
    print(f"more throughput on {better} of {len(gains)} nets, geometric mean {mean:.3f}")
    print(", ".join(f"{k} {v}" for k, v in environment().items() if k in PACKAGES))
    return int(mean < MEAN or better < SHARE * len(gains))


def best_split(net: str, trials: int) -> Stages:
    """The best split of a study of its own, kept only while it runs."""
    config = StudyConfig.model_validate(
        {"name": net, "zoo": net, "backend": "onnxruntime", "stages": 2, "search": {"trials": trials}}
    )
    told, bench = progress(), open_bench(config)
    with tempfile.TemporaryDirectory() as folder:
        try:
            on = open_study(config, bench, f"sqlite:///{Path(folder) / 'study.db'}", told)
            run_study(on, told)
            best = best_trial(on.study.get_trials(deepcopy=False), on.study.user_attrs)
        finally:
            told.close()
            bench.close()
    assert best is not None  # else the study would have raised
    return tuple(tuple(map(int, ops)) for ops in best[0].user_attrs["stages"])


def compared(net: str, stages: Stages, budget: Budget) -> tuple[Spread, Spread]:
    """The periods of the pipeline and of the session with two threads, measured in turns; both are right first."""
    model = api.load_model(api.zoo_model(net), backend="onnxruntime")
    items = model.items()
    expected = model.expected(items)
    whole = onnxruntime_session(api.zoo_model(net), threads=2)
    names = [o.name for o in whole.get_outputs()]
    require_equal(compare([dict(zip(names, whole.run(names, item), strict=True)) for item in items], expected))
    with model.pipeline(stages, along(2), trace=True) as pipeline:
        require_equal(compare(pipeline.run(items), expected))
        split, own = duel(
            [lambda turn: streamed(pipeline, items, turn), lambda turn: looped(whole, items, turn)], budget
        )
    return split, own


def streamed(pipeline: Pipeline, items: list[Item], budget: Budget) -> Spread:
    return measure.period_and_stages(pipeline, items, budget)[0]


def looped(session: Any, items: list[Item], budget: Budget) -> Spread:
    """The time between two results of a plain loop, averaged over neighbours as a pipeline's is."""
    stream = cycle(items)
    session.run(None, next(stream))
    ends = [time.perf_counter()]
    deadline = ends[0] + budget.seconds
    while len(ends) <= budget.items or ends[-1] < deadline:
        session.run(None, next(stream))
        ends.append(time.perf_counter())
    return spread(measure.gaps(ends))


def shown(value: Spread) -> str:
    return f"{value.median:.2f} ({value.low:.2f} to {value.high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
