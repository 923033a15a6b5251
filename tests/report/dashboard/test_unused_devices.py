"""A study whose trials leave devices unused, on the page and on the dashboard."""

from __future__ import annotations

import optuna
import pytest

from autosplit.cuts import downsets
from autosplit.report.dashboard.snapshot import Pictures, copy, decorate
from autosplit.report.documents.record import read
from autosplit.report.html import page
from autosplit.study.record import record_of
from studies.simulation.command import main

STUDY = """
model = "net.onnx"
stages = "auto"
devices = ["cuda:0", "cuda:1", "cuda:2"]
objective = "latency"
[search]
trials = 6
converge = false
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> optuna.Study:
    folder = tmp_path_factory.mktemp("unused")
    file, database = folder / "unused.toml", folder / "unused.db"
    file.write_text(STUDY, encoding="utf-8")
    hardware = ["ops=20", "overhead=2"]
    assert main([*hardware, "run", str(file), "--storage", str(database), "-f", "json"]) == 0
    return optuna.load_study(study_name="unused", storage=f"sqlite:///{database}")


def test_a_study_tells_the_periods_of_its_legal_cuts(study: optuna.Study) -> None:
    record = read(study)
    assert record.graph
    assert len(record.cut_periods) == len(downsets(record.graph)) - 2
    assert min(period for _, period in record.cut_periods) >= (record.bound_ms or 0) * (1 - 1e-9)
    assert f"All {len(record.cut_periods)} legal cuts with predicted periods" in page.page(record)


@pytest.mark.integration
def test_a_trial_that_leaves_devices_unused_has_its_picture(study: optuna.Study) -> None:
    pictures = Pictures()
    decorate(copy(study), read(study), pictures)
    used = [sum(map(bool, record_of(t).stages)) for t in study.trials if t.state.name == "COMPLETE"]
    assert min(used) < 3
    assert len(pictures) == 2 * len(used)
    assert all(draw().startswith(b"<svg") for draw in pictures.values())
