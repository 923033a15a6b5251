"""How few measurements the search for stages, replicas and threads needs, on simulated cores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import product, repeat
from pathlib import Path
from statistics import median
from typing import NamedTuple

from autosplit.study.config.study_file import StudyConfig
from autosplit.study.record import result_of
from autosplit.study.results import best_of_study
from autosplit.study.storage import silence_optuna_logs
from studies.benchmarks.finished_study import finished
from studies.benchmarks.result import Bar, at_most, finish, number, percentile
from studies.simulation.command import Hardware, open_bench

OPS, TRIALS, NEAR = 60, 20, 0.01
MEDIAN, PERCENTILE = 6, 12  # trials at most
CORES = (8, 16)
SHARES = {"1": None, "1/2": 1 / 2, "1/3": 1 / 3, "1/4": 1 / 4}  # of the model, a replica's memory
COLUMNS = ("cores", "memory", "trials", "ends after", "at loss %")


class Found(NamedTuple):
    """The trials until one was near the optimum, infinite for never; all trials; the last loss."""

    trials: float
    measured: int
    loss: float


def compare(pool: Executor, seeds: Sequence[int], file: Path | None) -> int:
    """The table of all numbers of cores and limits of memory."""
    rows, bars = [], list[Bar]()
    for cores, share in product(CORES, SHARES):
        results = list(pool.map(search, repeat(cores), repeat(share), seeds))
        rows.append(row(cores, share, results))
        bars += bars_of(cores, share, results)
    notes = [f"trials: median / 90th percentile over {len(seeds)} seeds"]
    return finish("deployment_search", COLUMNS, rows, notes=notes, bars=bars, file=file)


def search(cores: int, share: str, seed: int) -> Found:
    """One study, up to its own end."""
    silence_optuna_logs()
    limit = SHARES[share]
    document = {
        "name": "search",
        "model": "net.onnx",
        "cores": [f"0-{cores - 1}"],
        "memory": None if limit is None else 1e6 * OPS * limit,
        "search": {"trials": TRIALS, "seed": seed},
    }
    config = StudyConfig.model_validate(document)
    bench = open_bench(config, Hardware(ops=OPS, seed=seed, contention=0.02))
    with finished(config, bench) as opened:
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
