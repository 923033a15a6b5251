"""Which splits compete in the final comparison, and whether it has to be held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Baseline, Measurement
from autosplit.planner import CostModel
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop import final_comparison
from autosplit.study.loop.benches import open_bench
from autosplit.study.loop.final_comparison import covers, finalists
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.loop.time_left import FINALISTS
from autosplit.study.persistence.storage import storage_url
from autosplit.study.progress import Progress
from autosplit.study.space.search_space import Space
from autosplit.study.surrogate.cost_correction import Measured
from autosplit.study.trials.results import best_trial


def chosen_of(times: tuple[float, ...], slow: int = -1) -> tuple[list[int], list[int]]:
    """The finalists among all splits of a chain into two, and all splits, best first, by number.

    The best split has the highest number. The one at ``slow`` was measured in next to no time.
    """
    costs = CostModel(
        "c", tuple("abcdefgh"), tuple(1 << i - 1 if i else 0 for i in range(8)), (times,)
    )
    space = Space(costs, 2)
    periods = {s: space.evaluate(s).period for s in space.listed}
    splits = sorted(space.listed, key=periods.__getitem__)
    numbers = list(range(len(splits)))[::-1]
    measured = [
        Measured(n, s, space.evaluate(s).loads, 0.5 if n == slow else periods[s])
        for n, s in zip(numbers, splits, strict=True)
    ]
    corrected = corrected_costs(space, tuple(measured))
    return [m.number for m in finalists(corrected, measured)], numbers


def test_of_many_that_may_be_the_best_the_likeliest_few_compete() -> None:
    finalist_numbers, numbers = chosen_of((10.0, *(0.0001,) * 7))
    assert finalist_numbers == sorted(finalist_numbers)
    assert len(finalist_numbers) == FINALISTS < len(numbers)


def test_a_split_that_is_clearly_worse_does_not_compete() -> None:
    finalist_numbers, numbers = chosen_of((1.0,) * 8)
    assert numbers[0] in finalist_numbers
    assert numbers[-1] not in finalist_numbers


def test_within_three_times_the_noise_of_the_best_a_split_competes() -> None:
    expected = {((0,),): 1.0, ((1,),): 1.29, ((2,),): 1.31}
    measured = [Measured(n, stages, (1.0,), 1.0 + n) for n, stages in enumerate(expected)]
    corrected: Any = SimpleNamespace(noise=0.1, period=lambda stages, _: expected[stages])
    assert [m.number for m in finalists(corrected, measured)] == [0, 1]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"measured": 3, "entries": [{"number": 0}, {"number": 2}]}, True),
        ({"measured": 2, "entries": [{"number": 0}, {"number": 2}]}, False),
        ({"measured": 3, "entries": [{"number": 0}, {"number": 1}]}, False),
        ({"measured": 3}, False),
        (None, False),
    ],
)
def test_a_comparison_counts_for_the_same_rivals_with_nothing_measured_since(
    stored: Any, expected: bool
) -> None:
    rivals = [Measured(n, ((0,), (1,)), (1.0, 1.0), 1.0) for n in (0, 2)]
    assert covers(stored, rivals, 3) is expected


def test_the_one_measured_fastest_always_competes() -> None:
    for times in ((1.0,) * 8, (10.0, *(0.0001,) * 7)):
        finalist_numbers, _ = chosen_of(times, slow=0)
        assert 0 in finalist_numbers
        assert finalist_numbers == sorted(finalist_numbers)
        assert len(finalist_numbers) <= FINALISTS


def test_nothing_measured_has_no_finalists() -> None:
    costs = CostModel("c", ("a", "b"), (0, 1), ((1.0, 1.0),))
    assert finalists(corrected_costs(Space(costs, 2), ()), []) == []


def shared(deployment: Deployment) -> Deployment | None:
    """As ``sharing``, for a runtime that is simulated."""
    stage, *others = deployment.stages
    if others or len(stage.devices) == 1:
        return None
    return Deployment((replace(stage, shared=True),))


@pytest.mark.parametrize(("factor", "wins"), [(0.5, True), (1.0, False)])
def test_replicas_share_their_model_where_that_is_faster(
    factor: float, wins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = {"runtime": "simulated", "simulated": {"ops": 8}}
    config = StudyConfig.model_validate(
        {"name": "s", "cores": 2, "search": {"trials": 3}, **simulated}
    )
    bench: Any = open_bench(config)
    compare = bench.compare_interleaved

    def compared(
        candidates: Sequence[Deployment], names: Sequence[str]
    ) -> tuple[list[Measurement], Mapping[str, Baseline]]:
        measured, baselines = compare(candidates, names)
        pairs = zip(measured, candidates, strict=True)
        return [m.scaled(factor) if d.stages[0].shared else m for m, d in pairs], baselines

    bench.compare_interleaved = compared
    monkeypatch.setattr(final_comparison, "sharing", shared)
    opened = open_study(config, bench, storage_url("s", str(tmp_path / "s.db")), Progress())
    run_study(opened, Progress())
    best = best_trial(opened.study.trials, opened.study.user_attrs)
    assert best is not None
    assert best[0].user_attrs["shared"] is wins
    assert best[0].value == pytest.approx(best[1].median)
