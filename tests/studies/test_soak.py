"""An exported pipeline under load: ten thousand items, and a stage that fails in the middle of
them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autosplit
from autosplit.errors import StageError
from autosplit.hardware.runtimes import stage_file as loading
from studies.benchmarks import soak as soaking
from tests.hardware.fakes import fake_pipeline, graph

ITEMS, FATAL, SECONDS = 10_000, 5_000, 300


class Tampered:
    """A stage of the export whose run number ``at`` does something else."""

    def __init__(self, stage: Any, at: int, instead: Any) -> None:
        self._stage, self._at, self._instead, self.runs = stage, at, instead, 0

    def open(self) -> None:
        self._stage.open()

    def close(self) -> None:
        self._stage.close()

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        self.runs += 1
        if self.runs - 1 == self._at:
            return self._instead(self._stage, values)
        return self._stage.run(values)


@pytest.fixture
def tamper(exported: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the export with one stage tampered with.

    The first runs are those that make what is expected.
    """

    def load(stage: int, at: int, instead: Any) -> Any:
        runtime_class, loaded = loading.runtime_class, list[Any]()

        def load_stages(runtime: str, *arguments: Any) -> Any:
            (one,) = runtime_class(runtime).load_stages(*arguments)
            if len(loaded) == stage:
                one = Tampered(one, at + soaking.DIFFERENT, instead)
            loaded.append(one)
            return [one]

        monkeypatch.setattr(
            loading,
            "runtime_class",
            lambda name: SimpleNamespace(load_stages=partial(load_stages, name)),
        )
        return autosplit.load(exported)

    return load


def refuse(stage: Any, values: Sequence[Any]) -> Sequence[Any]:
    raise RuntimeError("the device is gone")


def stage_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("stage ", "submitter"))]


def failing_soak(pipeline: Any, items: int, fatal: int) -> None:
    taken: list[int] = []
    with (
        pipeline,
        pytest.raises(
            StageError, match=r"stage 1 failed: RuntimeError: the device is gone"
        ) as caught,
    ):
        soaking.soak(pipeline, lambda number: taken.append(number) or number < items)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert fatal <= taken[-1] <= fatal + pipeline.capacity
    assert stage_threads() == []


def test_a_stage_that_fails_reaches_the_caller_and_ends_everything(tamper: Any) -> None:
    failing_soak(tamper(1, 20, refuse), 1000, 20)


def test_every_result_is_compared(exported: Path) -> None:
    with autosplit.load(exported) as pipeline:
        soak = soaking.soak(pipeline, lambda number: number < 150)
    assert (soak.results, soak.wrong, len(soak.memory)) == (150, None, 1)
    assert stage_threads() == []


def test_streams_with_states_are_reset_before_their_items_repeat() -> None:
    net = graph([("y", ["x", "h"]), ("z", ["y"])], ["x", "h"], ["z", "y"])
    pipeline, _ = fake_pipeline(net, [[0], [1]], ["z", "y"], states={"h": "y"})
    with pipeline:
        soak = soaking.soak(pipeline, lambda number: number < 700, streams=3)
    assert (soak.results, soak.wrong) == (700, None)


def test_an_exchanged_item_is_noticed(tamper: Any) -> None:
    def another(stage: Any, values: Sequence[Any]) -> Sequence[Any]:
        return stage.run([value[..., ::-1].copy() for value in values])

    with tamper(0, 30, another) as pipeline:
        assert soaking.soak(pipeline, lambda number: number < 60).wrong == 30
    assert stage_threads() == []


def test_memory_that_grows_is_told_from_memory_that_is_flat() -> None:
    flat = [10**8 + 10**6 * (i % 3) for i in range(100)]
    warming = [10**7 * min(i, 20) for i in range(100)]
    leaking = [10**8 + 2 * 10**5 * i for i in range(100)]
    assert [soaking.Soak(1, None, 1.0, tuple(m)).sound for m in (flat, warming, leaking, ())] == [
        1,
        1,
        0,
        1,
    ]


@pytest.mark.slow
def test_five_minutes_and_ten_thousand_items_come_out_right_in_order_and_memory_is_flat(
    exported: Path,
) -> None:
    end = time.monotonic() + SECONDS
    submitted: list[int] = []
    with autosplit.load(exported) as pipeline:
        soak = soaking.soak(
            pipeline,
            lambda number: (
                (number < ITEMS or time.monotonic() < end) and submitted.append(number) is None
            ),
        )
    assert soak.wrong is None
    assert soak.results == len(submitted) >= ITEMS
    assert len(soak.memory) in (0, soak.results // soaking.SAMPLE)
    assert soak.grown <= soaking.GROWTH


@pytest.mark.slow
def test_a_stage_that_fails_at_item_five_thousand(tamper: Any) -> None:
    failing_soak(tamper(1, FATAL, refuse), ITEMS, FATAL)


@pytest.mark.slow
def test_the_program_says_what_it_found(
    exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak.py", str(exported), "--minutes", "0.1"])
    assert soaking.main() == 0
    assert "all right and in order, memory" in capsys.readouterr().out
