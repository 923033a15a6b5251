"""A study of its own, kept only while it is looked at, and duels between splits.

What several benchmarks need.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from autosplit import api
from autosplit.cuts.stages import Stages
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget, Contender, compare_interleaved
from autosplit.hardware.measurement.parity import compare, require_equal
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.benches import open_bench
from autosplit.study.loop.open import OpenStudy, open_study
from autosplit.study.loop.run import run_study
from autosplit.study.progress import progress
from autosplit.study.record import record_of
from autosplit.study.results import best_of_study
from autosplit.zoo import catalog

BUILT = ("branches", "transformer")  # made by the zoo itself; the others come with the onnx package
ONNX_NETS = tuple(name for name in catalog.NAMES if name not in BUILT)


def config_of(net: str, runtime: str, seconds: float, **search: Any) -> StudyConfig:
    """A study of two stages of a zoo net; a candidate is measured for at most ``seconds``."""
    document = {
        "name": net,
        "zoo": net,
        "runtime": runtime,
        "stages": 2,
        "measure": {"seconds": seconds},
        "search": search,
    }
    return StudyConfig.model_validate(document)


@contextlib.contextmanager
def finished(config: StudyConfig) -> Iterator[OpenStudy]:
    """A study that was run to its end in a temporary database, with its bench still open."""
    print(
        f"study of {config.zoo or config.model}, {config.runtime} stages",
        file=sys.stderr,
        flush=True,
    )
    reporter, bench = progress(), open_bench(config)
    try:
        with tempfile.TemporaryDirectory() as folder:
            opened = open_study(
                config, bench, f"sqlite:///{Path(folder) / f'{config.name}.db'}", reporter
            )
            run_study(opened, reporter)
            yield opened
    finally:
        reporter.close()
        bench.close()


def best_split(opened: OpenStudy) -> Stages:
    """What a finished study ends with."""
    best = best_of_study(opened.study)
    assert best is not None  # else the study would have raised
    return best.record.stages


def stages_of(trial: Any) -> Stages:
    """The split of a trial."""
    return record_of(trial).stages


def in_turns(
    model: Any, splits: Sequence[Stages], budget: Budget, others: Sequence[Contender] = ()
) -> list[Spread]:
    """The periods in ms of splits of a model, and of ``others``, measured in turns.

    Every split is right first.
    """
    items = model.items()
    expected = model.expected(items)
    with contextlib.ExitStack() as stack:
        contenders = [contender(stack, model, stages, items, expected) for stages in splits]
        return compare_interleaved([*contenders, *others], budget)


def contender(
    stack: contextlib.ExitStack,
    model: Any,
    stages: Stages,
    items: Sequence[Item],
    expected: Sequence[Item],
) -> Contender:
    """A split's pipeline, kept full of ``items``; open while ``stack`` is, and right first."""
    pipeline = stack.enter_context(api.Split(model, stages).pipeline(trace=True))
    require_equal(compare(pipeline.run(items), expected))
    return partial(streamed, pipeline, items)


def streamed(pipeline: Pipeline, items: Sequence[Item], budget: Budget) -> Spread:
    """The period in ms of a pipeline that is kept full."""
    return measure.period_and_busy(pipeline, items, budget)[0]


def looped(session: Any, items: Sequence[Item], budget: Budget) -> Spread:
    """The time in ms between two results of a plain loop, averaged over neighbours as a pipeline's
    is.
    """
    stream = cycle(items)
    session.run(None, next(stream))
    ends = [time.perf_counter()]
    deadline = ends[0] + budget.seconds
    while len(ends) <= budget.items or ends[-1] < deadline:
        session.run(None, next(stream))
        ends.append(time.perf_counter())
    return spread(measure.gaps(ends))


def load(net: str, runtime: str) -> Any:
    """A zoo net whose stages run on a runtime."""
    return api.load_model(catalog.cached(net), runtime=runtime)
