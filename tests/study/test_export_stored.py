"""The split of a stored trial is exported only from the hardware it was measured on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import optuna
import pytest

from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.bench.simulated import SimulatedBench
from autosplit.study.export import export_best_split, export_stored_split
from autosplit.study.loop import benches
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.run import run_study
from autosplit.study.progress import Silent

Make = Callable[..., SimulatedBench]
Open = Callable[..., OpenStudy]


class Exporting(SimulatedBench):
    """Simulated hardware that claims to build stages, and records exports and closing."""

    closed = False
    written: ClassVar[list[Any]] = []

    def export(self, *arguments: Any) -> None:
        self.written.append(arguments)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bench(chain_bench: Make) -> Exporting:
    simulated = chain_bench(ops=8, stages=2)
    return Exporting(simulated.graph, simulated.costs, simulated.devices, simulated.simulation)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, bench: Exporting) -> list[Any]:
    """What is handed on to be exported."""
    monkeypatch.setattr(Exporting, "written", [])
    monkeypatch.setattr(benches, "open_bench", lambda config: bench)
    return Exporting.written


def test_the_best_is_exported_by_default_with_what_was_measured(
    bench: Exporting, opened: Open, written: list[Any], tmp_path: Path
) -> None:
    on = opened(bench, trials=3)
    run_study(on, Silent())
    assert export_stored_split(on.study, tmp_path / "out") == tmp_path / "out" / "split.json"
    ((deployment, folder, known),) = written
    duel = {e["number"]: e["period_ms"]["median"] for e in on.study.user_attrs["duel"]["entries"]}
    best = on.study.trials[min(duel, key=lambda n: duel[n])]
    assert folder == tmp_path / "out"
    assert deployment.splits == tuple(map(tuple, best.user_attrs["stages"]))
    assert known.measured.stage_ms == tuple(best.user_attrs["stage_ms"])
    assert known.measured.latency_ms.median == best.user_attrs["latency_ms"]["median"]
    assert known.predicted == best.user_attrs["predicted_ms"]
    assert [b.name for b in known.baselines] == ["one core", "all cores", "replicas"]
    assert known.verdict == on.study.user_attrs["verdict"]["text"]
    assert bench.closed


def test_a_trial_is_exported_by_its_number(
    bench: Exporting, opened: Open, written: list[Any], tmp_path: Path
) -> None:
    on = opened(bench, trials=3)
    run_study(on, Silent())
    for trial in on.study.trials:
        export_stored_split(on.study, tmp_path / "out", trial.number)
        deployment, _, known = written[-1]
        assert deployment.splits == tuple(map(tuple, trial.user_attrs["stages"]))
        assert known.measured.period_ms.median == trial.user_attrs["period_ms"]["median"]


def test_where_nothing_was_measured_there_is_nothing_to_export(
    bench: Exporting, opened: Open, written: list[Any], tmp_path: Path
) -> None:
    on = opened(bench)
    with pytest.raises(Infeasible, match="study 's' has no completed trial"):
        export_stored_split(on.study, tmp_path / "out")
    with pytest.raises(
        ConfigError, match="trial 0 does not exist; those that can be exported are none"
    ):
        export_stored_split(on.study, tmp_path / "out", 0)
    running = on.study.ask()
    with pytest.raises(ConfigError, match=f"trial {running.number} is running"):
        export_stored_split(on.study, tmp_path / "out", running.number)
    assert not written


def test_other_hardware_or_another_model_is_not_exported_from(
    bench: Exporting, opened: Open, written: list[Any], tmp_path: Path
) -> None:
    on = opened(bench, trials=1)
    run_study(on, Silent())
    bench.identity = {**bench.identity, "model": "another"}
    with pytest.raises(
        ConfigError, match=r"study 's' measured something else: .*another.*; .*--force"
    ):
        export_stored_split(on.study, tmp_path / "out")
    assert not written
    assert bench.closed


def test_simulated_hardware_has_nothing_to_export(
    chain_bench: Make, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = chain_bench(ops=8, stages=2)
    monkeypatch.setattr(benches, "open_bench", lambda config: plain)
    on = opened(plain, trials=1)
    run_study(on, Silent())
    with pytest.raises(ConfigError, match="simulated hardware has no stages to export"):
        export_stored_split(on.study, tmp_path / "out")


def test_a_study_that_names_no_folder_exports_nothing(
    bench: Exporting, opened: Open, written: list[Any]
) -> None:
    on = opened(bench, trials=1)
    run_study(on, Silent())
    assert export_best_split(on) is None
    assert not written


def test_of_several_trials_that_failed_the_one_asked_for_says_why(
    bench: Exporting, opened: Open, tmp_path: Path
) -> None:
    on = opened(bench)
    for reason in ("no room", "too slow"):
        on.study.ask().set_user_attr("error", reason)
    for number in (0, 1):
        on.study.tell(number, state=optuna.trial.TrialState.FAIL)
    for number, reason in enumerate(("no room", "too slow")):
        with pytest.raises(ConfigError, match=rf"trial {number} failed \({reason}\)"):
            export_stored_split(on.study, tmp_path / "out", number)
