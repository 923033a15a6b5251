"""The figures of the search and of the final comparison, wherever a program can read them."""

import optuna
import pytest

from autosplit.cli import main
from autosplit.hardware.measurement.results import Spread
from autosplit.report.dashboard.optuna_copy import copy
from autosplit.report.documents.record import read
from autosplit.study.record import record_of
from studies.simulation.bench import Hardware, simulated

STUDY = 'model = "net.onnx"\nstages = 3\n[search]\ntrials = 9\nsampler = "random"\n'


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study in which luck decides: the noise of the comparison is a quarter of the search's."""
    folder = tmp_path_factory.mktemp("figures")
    (folder / "f.toml").write_text(STUDY, encoding="utf-8")
    storage = folder / "f.db"
    with simulated(Hardware(ops=20, noise=0.3, seed=0)):
        assert main(["run", str(folder / "f.toml"), "--storage", str(storage), "-f", "json"]) == 0
        yield optuna.load_study(study_name="f", storage=f"sqlite:///{storage}")


@pytest.fixture
def shown(study, as_json):
    """What ``show -f json`` prints."""
    return as_json("show", study._storage._backend.url.removeprefix("sqlite:///"))


def test_search_and_final_comparison_are_never_mixed(study, shown):
    entries = {entry["number"]: entry for entry in study.user_attrs["final_comparison"]["entries"]}
    for trial, document in zip(study.trials, shown["trials"], strict=True):
        assert Spread(**document["period_ms"]) == record_of(trial).period_ms
        assert trial.value == document["period_ms"]["median"]
        entry = entries.get(trial.number)
        assert (document["final"] is None) == (entry is None)
        for key in ("period_ms", "latency_ms", "stage_ms"):
            assert entry is None or document["final"][key] == entry[key]
    best = shown["best"]
    assert best == {**best, **shown["trials"][best["number"]]}
    final = best["final"]
    assert max(final["stage_ms"]) == pytest.approx(final["period_ms"]["median"])
    assert final["period_ms"]["median"] == min(e["period_ms"]["median"] for e in entries.values())
    of_optuna_dashboard = copy(study, read(study)).trials
    assert [trial.value for trial in of_optuna_dashboard] == [t.value for t in study.trials]
