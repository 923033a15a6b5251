"""How few measurements the search for a deployment needs, on simulated cores.

    python -m studies.benchmarks.deployment_search [--seeds 20] [--cores 8 16] [-o FILE]

A chain of 60 ops whose known times are wrong by 35 %; a measured time has 2 % noise, each busy core
slows the others down by 2 %, and a further thread adds 0.7 of a core. A replica has memory for the
whole model, a half, a third and a quarter of it. Counted is the number of trials after which the
best measured deployment is within 1 % of the true optimum, which is planned for the hidden costs.
Bars: at most 6 trials in the median and 12 at the 90th percentile of the seeds, in each row.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple
from unittest.mock import patch

from autosplit.hardware.devices.device import available
from autosplit.study.acquisition import Acquisition, generator
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.progress import Progress
from autosplit.study.record import result_of
from autosplit.study.results import best_of_study
from autosplit.study.space import Candidate
from autosplit.study.storage import silence_optuna_logs, storage_url
from autosplit.study.surrogate.correction import Factors
from studies.benchmarks.result import Bar, arguments, at_most, finish
from studies.benchmarks.search import number, percentile
from studies.simulation.command import Hardware, open_bench

OPS, TRIALS, NEAR = 60, 20, 0.01
MEDIAN, PERCENTILE = 6, 12  # trials at most
SHARES = {"1": None, "1/2": 1 / 2, "1/3": 1 / 3, "1/4": 1 / 4}  # of the model, a replica's memory
COLUMNS = ("cores", "memory", "trials", "ends after", "at loss %")


class Found(NamedTuple):
    """The trials until one was near the optimum, infinite for never; all trials; the last loss."""

    trials: float
    measured: int
    loss: float


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cores", type=int, nargs="+", default=[8, 16], metavar="N")
    parser.add_argument("--jobs", type=int, default=len(available()), help="processes side by side")
    parser.add_argument(
        "--criterion",
        choices=CRITERIA,
        default="improvement",
        help="how the next trial is chosen; the others are for comparison",
    )
    args = parser.parse_args()
    by_case: dict[tuple[int, str], list[Found]] = {}
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for cores in args.cores:
            for name in SHARES:
                cases = repeat(cores), repeat(name), range(args.seeds)
                results = list(pool.map(search, *cases, repeat(args.criterion)))
                by_case[cores, name] = results
                print(
                    *row(cores, name, by_case[cores, name]), sep="\t", file=sys.stderr, flush=True
                )
    rows = [row(*key, results) for key, results in by_case.items()]
    notes = [f"trials: median / 90th percentile over {args.seeds} seeds"]
    bars = [bar for key, results in by_case.items() for bar in bars_of(*key, results)]
    return finish("deployment_search", COLUMNS, rows, notes=notes, bars=bars, file=args.file)


def _by_plan(view: Acquisition) -> Candidate | None:
    """The free candidate of least value under the corrected costs."""
    return _least(view, view.corrected.mean)


def _by_draw(view: Acquisition) -> Candidate | None:
    """The free candidate of least value under one draw of the costs (Thompson sampling)."""
    return _least(view, view.corrected.draw(generator(len(view.history.measured), 1)))


def _least(view: Acquisition, costs: Factors) -> Candidate | None:
    free = list(view.gains)
    batch = view.space.evaluator.batch(free)
    values = view.goal.values(view.corrected, batch, costs)
    return free[int(values.argmin())] if free else None


CRITERIA = {
    "improvement": Acquisition.best,
    "plan": property(_by_plan),
    "thompson": property(_by_draw),
}


def search(cores: int, share: str, seed: int, criterion: str) -> Found:
    """One study, up to its own end."""
    silence_optuna_logs()
    limit = SHARES[share]
    config = StudyConfig.model_validate(
        {
            "name": "search",
            "model": "net.onnx",
            "cores": [f"0-{cores - 1}"],
            "memory": None if limit is None else 1e6 * OPS * limit,
            "search": {"trials": TRIALS, "seed": seed},
        }
    )
    bench = open_bench(config, Hardware(ops=OPS, seed=seed, contention=0.02))
    chosen = patch.object(Acquisition, "best", CRITERIA[criterion])
    with tempfile.TemporaryDirectory() as folder, chosen:
        url = storage_url("search", str(Path(folder) / "search.db"))
        opened = open_study(config, bench, url, Progress())
        run_study(opened, Progress())
        trials, best = opened.study.get_trials(), best_of_study(opened.study)
    optimum = bench.optimum().period
    losses = []
    for trial in trials:
        candidate = opened.space.candidate(result_of(trial).key)
        losses.append(bench.truth(candidate).period / optimum - 1)
    near = [count for count, loss in enumerate(losses, 1) if loss <= NEAR]
    return Found(min(near, default=math.inf), len(losses), losses[best.number] if best else 1.0)


def row(cores: int, share: str, results: Sequence[Found]) -> tuple[str, ...]:
    """The cells of one number of cores and one limit of memory."""
    trials, losses = [f.trials for f in results], [f.loss for f in results]
    return (
        str(cores),
        share,
        f"{number(median(trials), TRIALS)} / {number(percentile(trials), TRIALS)}",
        f"{median(f.measured for f in results):g}",
        f"{100 * median(losses):.1f} / {100 * percentile(losses):.1f}",
    )


def bars_of(cores: int, share: str, results: Sequence[Found]) -> Iterator[Bar]:
    """The bars of one row."""
    trials = [f.trials for f in results]
    where = f"{cores} cores, {share} of the model"
    yield at_most(f"trials, median, {where}", median(trials), MEDIAN)
    yield at_most(f"trials, 90th percentile, {where}", percentile(trials), PERCENTILE)


if __name__ == "__main__":
    sys.exit(main())
