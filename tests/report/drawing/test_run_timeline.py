import itertools
from xml.etree import ElementTree

import numpy as np
import pytest

from autosplit.cli import main
from autosplit.deploy.load import load
from autosplit.hardware.execution.engine import StageEvent
from autosplit.report.drawing import timeline
from autosplit.report.drawing.canvas import Canvas


@pytest.fixture
def drawn(monkeypatch):
    """The arguments of the picture."""
    arguments = {}

    def draw(rows, names, replicas):
        arguments.update(rows=rows, names=names, replicas=replicas)
        return Canvas(1, 1)

    monkeypatch.setattr(timeline, "timeline", draw)
    return arguments


def test_bench_draws_the_events_of_its_run(export, drawn, tmp_path, capsys):
    file = tmp_path / "run.svg"
    command = ["bench", str(export.folder), "--seconds", "0.1", "--timeline", str(file)]
    assert main(command) == 0
    assert file.read_bytes() == Canvas(1, 1).render()
    assert "items/s" in capsys.readouterr().out
    assert [n.split(",")[0] for n in drawn["names"]] == ["stage 0", "stage 1", "stage 2"]
    items = range(1 + max(row.item for row in drawn["rows"]))
    assert {row[:2] for row in drawn["rows"]} == set(itertools.product(range(3), items))
    assert drawn["replicas"] == [1, 1, 1]


def test_an_item_is_computed_by_one_stage_after_the_other(exported):
    with load(exported, trace=True) as pipeline:
        pipeline.run([{p.name: np.ones(p.shape, p.dtype) for p in pipeline.wiring.inputs}] * 6)
        rows = list(pipeline.events)
    at = {(row.stage, row.item): (row.start, row.end) for row in rows}
    assert len(at) == len(rows) == 18
    assert all(
        at[stage, item][1] <= at[stage + 1, item][0] for stage in (0, 1) for item in range(6)
    )
    assert all(
        at[stage, item][1] <= at[stage, item + 1][0] for stage in range(3) for item in range(5)
    )


def test_a_run_is_drawn(tmp_path):
    events = [StageEvent(0, 0, 1.0, 2.0), StageEvent(0, 1, 1.5, 2.5, replica=1)]
    timeline.write(events, [["cores:0", "cores:1"]], tmp_path / "run.svg")
    picture = ElementTree.fromstring((tmp_path / "run.svg").read_bytes())
    assert picture.tag.endswith("svg")
    assert "2 items in 1500 ms" in "".join(picture.itertext())


@pytest.mark.parametrize("name", ["run.txt", "run", ".svg", "run.png"])
def test_another_suffix_is_refused_before_anything_runs(said, tmp_path, name):
    code, line = said("bench", tmp_path / "nothing", "--timeline", tmp_path / name)
    assert (code, line.partition("is not an .svg file; name it ")[1]) == (
        2,
        "is not an .svg file; name it ",
    )
