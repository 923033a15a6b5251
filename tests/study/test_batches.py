import json

import pytest

from autosplit.cli import main
from autosplit.deployment import Row, Stage
from autosplit.errors import ConfigError
from autosplit.planner.costs import CostModel, Kind, RowCosts
from autosplit.planner.problem import Question
from autosplit.planner.workload import Workload, served
from autosplit.study.acquisition import Goal, acquisition
from autosplit.study.config.study_file import StudyConfig, load
from autosplit.study.history import TrialReader
from autosplit.study.space import Space
from tests.hardware.test_batches import loaded


def config(batch):
    document = {"name": "s", "model": "net.onnx", "stages": 2, "batch": batch}
    return StudyConfig.model_validate(document).batch


def test_a_study_file_has_one_batch_several_or_auto():
    assert [config(batch) for batch in (8, [4, 1], "auto")] == [[8], [1, 4], "auto"]


@pytest.mark.parametrize("batch", ["0", "[]", '"all"', "[1.5]", "true", "[5000]"])
def test_a_study_file_refuses_other_batches(tmp_path, batch):
    file = tmp_path / "s.toml"
    file.write_text(f'model = "net.onnx"\nstages = 2\nbatch = {batch}\n')
    with pytest.raises(ConfigError, match=r"batch must be a number from 1 to 4096, .*, not"):
        load(file)


@pytest.mark.integration
@pytest.mark.usefixtures("in_this_process")
def test_a_study_of_a_batch_exports_it(save, as_json, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded(save)
    text = 'model = "net.onnx"\ncores = 1\nruntime = "onnxruntime"\n[measure]\nseconds = 0.1\n'
    (tmp_path / "s.toml").write_text(f"{text}[search]\ntrials = 2\n")
    study = as_json("run", "s.toml", "--batch", "4")
    assert {trial["batch"] for trial in study["trials"]} == {4}
    assert any(baseline["name"].endswith("batch 4") for baseline in study["baselines"])
    assert main(["export", "s.toml", "-o", "out"]) == 0
    assert json.loads((tmp_path / "out" / "split.json").read_text())["batch"] in (1, 4)
    assert main(["verify", "out"]) == 0
    assert main(["bench", "out", "--seconds", "0.2"]) == 0


TIGHT = Workload(limit_ms=30.0)  # for batches that take 20 ms


def test_a_batch_waits_as_long_as_serves_most():
    stages = (Stage.on([0], "tvm", ["cpu:0", "cpu:1"], batch=16),)
    rate, delay = served(TIGHT, stages, [20 / 16], 10 / 16)
    assert delay == pytest.approx(9)
    fixed = Workload(limit_ms=30.0, delay_ms=0.0)
    assert rate > 300 > served(fixed, stages, [20 / 16], 10 / 16)[0]


def test_a_single_item_does_not_wait():
    stages = (Stage.on([0], "tvm", ["cpu:0"]),)
    assert served(TIGHT, stages, [20.0], 20.0)[1] == 0


@pytest.mark.parametrize(
    ("goal", "batch"),
    [
        (Goal("goodput", workload=Workload(limit_ms=30.0)), 4),
        (Goal("goodput", workload=Workload(limit_ms=60.0)), 4),
        (Goal("goodput", workload=Workload(limit_ms=400.0)), 16),
        (Goal(latency_ms=30.0), 4),
        (Goal(), 16),
    ],
)
def test_the_best_batch_within_a_limit_is_tried_first(goal, batch):
    # An item takes less time the larger the batch is; a batch of 4 takes 16 ms, one of 16 takes 58.
    per_item = {1: 5.0, 4: 2.0, 16: 1.8}
    rows = tuple(RowCosts(Row("core", "tvm", 1, n), (ms, ms)) for n, ms in per_item.items())
    costs = CostModel("net", ("a", "b"), (0, 1), rows, (Kind("core"),))
    space = Space(costs, Question.of_cores({"core": 2}), cores={"core": (0, 1)})
    view = acquisition(space, goal, TrialReader(space).history([]))
    assert view.best[0].options[0].row.batch == batch
