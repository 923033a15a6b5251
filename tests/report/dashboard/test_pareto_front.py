"""The Pareto front of a study of throughput and latency, on the page and on the dashboard."""

from __future__ import annotations

import optuna
import pytest

from autosplit.cli import main
from autosplit.cuts import downsets
from autosplit.report.dashboard.snapshot import Pictures, copy, decorate
from autosplit.report.documents.record import read
from autosplit.report.drawing.charts import throughput_latency
from autosplit.report.html import page, tables

STUDY = """
runtime = "simulated"
stages = "auto"
devices = ["cuda:0", "cuda:1", "cuda:2"]
objective = ["throughput", "latency"]
[search]
trials = 6
converge = false
[simulated]
ops = 20
overhead = 2.0
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> optuna.Study:
    folder = tmp_path_factory.mktemp("front")
    (folder / "front.toml").write_text(STUDY, encoding="utf-8")
    assert (
        main(
            ["run", str(folder / "front.toml"), "--storage", str(folder / "front.db"), "-f", "json"]
        )
        == 0
    )
    return optuna.load_study(study_name="front", storage=f"sqlite:///{folder / 'front.db'}")


def drawn_front(study: optuna.Study) -> set[str]:
    chart = throughput_latency(read(study))
    (front,) = (s for s in chart.series if s.name == "Pareto front of the trials")
    return set(front.texts)


def test_the_front_on_the_plot_is_the_one_that_optuna_tells(study: optuna.Study) -> None:
    assert drawn_front(study) == {str(t.number) for t in study.best_trials}
    assert len(study.best_trials) >= 2


def test_the_dashboard_has_both_objectives_by_name(study: optuna.Study) -> None:
    shown = copy(study)
    assert len(shown.directions) == 2
    assert shown.metric_names == ["period in ms", "latency in ms"]


def test_the_page_marks_the_trials_of_the_front_and_draws_it(study: optuna.Study) -> None:
    record = read(study)
    table = tables.trials(record, tables.plain)
    place = table.columns.index("Pareto front")
    assert {row[0] for row in table.rows if row[place]} == {
        str(t.number) for t in study.best_trials
    }
    assert "Pareto front of the trials" in page.page(record)


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
    used = [
        sum(map(bool, t.user_attrs["stages"])) for t in study.trials if t.state.name == "COMPLETE"
    ]
    assert min(used) < 3
    assert len(pictures) == 2 * len(used)
    assert all(draw().startswith(b"<svg") for draw in pictures.values())
