"""Devices of which a study may leave some out: ``stages = "auto"`` with a list of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autosplit.deployment import Row
from autosplit.planner import CostModel, Kind, RowCosts
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import OpenStudy, open_study
from autosplit.study.loop.run import run_study
from autosplit.study.record import record_of
from autosplit.study.results import best_of_study
from autosplit.study.storage import storage_url
from studies.simulation.bench import SimulatedBench, Simulation, graph_of, on_devices

OPS = 24


def unlike(*speeds: float, seed: int = 0, **simulation: Any) -> SimulatedBench:
    """A bench over a chain on devices of some speeds; equal ones are of one kind."""
    names = [f"cuda:{n}" for n in range(len(speeds))]
    kinds = dict(zip(reversed(speeds), reversed(names), strict=True))
    rows = tuple(
        RowCosts(Row(kinds[speed], ""), tuple((1 + i % 3) / speed for i in range(OPS)))
        for speed in dict.fromkeys(speeds)
    )
    before = tuple(1 << i - 1 if i else 0 for i in range(OPS))
    every_kind = tuple(Kind(kinds[speed]) for speed in dict.fromkeys(speeds))
    costs = CostModel("c", tuple(f"op{i}" for i in range(OPS)), before, rows, every_kind)
    question = on_devices(costs, names, is_auto=True)
    along = Simulation(error=simulation.pop("error", 0.2), seed=seed, **simulation)
    return SimulatedBench(graph_of(costs), costs, question, names, along)


def study(folder: Path, bench: SimulatedBench, **search: Any) -> OpenStudy:
    document = {"name": "s", "model": "net.onnx", "stages": "auto"}
    config = StudyConfig.model_validate(
        {**document, "devices": list(bench.description.devices), "search": {"trials": 8, **search}}
    )
    opened = open_study(config, bench, storage_url("s", str(folder / "s.db")))
    run_study(opened)
    return opened


def test_a_device_that_slows_the_others_down_is_left_out(tmp_path):
    opened = study(tmp_path, unlike(1.0, 0.01, contention=0.3))
    verdict = opened.study.user_attrs["result"]["verdict"]
    assert verdict["choice"] == "leave"
    assert verdict["text"].startswith("Leave the model whole: simulated on cuda:0.")


def test_replicas_on_unlike_devices_take_items_as_fast_as_they_can(tmp_path):
    opened = study(tmp_path, unlike(1.0, 0.5))
    best = best_of_study(opened.study)
    assert best is not None
    assert isinstance(opened.bench, SimulatedBench)
    candidate = opened.space.candidate(best.record.key)
    loss = opened.bench.truth(candidate).period / opened.bench.optimum().period - 1
    assert loss < 0.02
    shapes = [record_of(t).devices for t in opened.study.trials]
    assert (("cuda:0", "cuda:1"),) in shapes
