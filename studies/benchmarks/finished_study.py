"""A finished study in a temporary database, and the period of a pipeline."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Spread
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.benches import open_bench
from autosplit.study.loop.open import OpenStudy, open_study, silent
from autosplit.study.loop.run import run_study


@contextlib.contextmanager
def finished(config: StudyConfig, bench: Bench | None = None) -> Iterator[OpenStudy]:
    """Run a study to its end in a temporary database; its bench is still open inside.

    Without ``bench``, that of the study file is used, and messages of the study are printed.
    """
    notify = silent if bench else lambda line: print(line, file=sys.stderr, flush=True)
    notify(f"study of {config.zoo or config.model}, {config.runtime} stages")
    bench = bench or open_bench(config)
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / f'{config.name}.db'}"
            opened = open_study(config, bench, url, notify)
            run_study(opened)
            yield opened
    finally:
        bench.close()


def streamed(pipeline: Pipeline, items: Sequence[Item], budget: Budget) -> Spread:
    """The period in ms of a pipeline that is kept full."""
    return measure.period_and_busy(pipeline, items, budget)[0]
