"""Regions of an external backend on a device of their own."""

from pathlib import Path
from typing import Any

import pytest

import autosplit
from autosplit import api
from autosplit.errors import ConfigError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.measurement.measure import Budget
from autosplit.lowering.external.backend import Backend
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import OpenStudy, open_study
from autosplit.study.loop.run import run_study
from autosplit.study.record import record_of
from autosplit.study.storage import storage_url
from tests import external_backend, nets

NAME = external_backend.NAME
NET = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
    a = Tanh(x)  b = Softmax<axis=1>(a)  c = Conv(b, w0)  d = Conv(c, w1)
    e = Softmax<axis=1>(d)  y = Tanh(e)
}"""
TWO = tuple(map(str, api.device.along(2)))
apart = pytest.mark.skipif(len(set(TWO)) < 2, reason="this machine has one core")


@pytest.fixture
def model(save):
    external_backend.register()
    file = save(nets.net(NET, dict.fromkeys(("w0", "w1"), (4, 4, 1, 1))))
    yield autosplit.load_model(file, backends=[Backend(NAME, external_backend.patterns())])
    external_backend.unregister()


class PlannedBench(LocalBench):
    """A bench in this process that a study may plan with."""

    device_kinds = Bench.device_kinds
    cost_table = Bench.cost_table


def study(model: Any, folder: Path, device: str | None, **asked: Any) -> OpenStudy:
    config = StudyConfig.model_validate(
        {
            "name": "s",
            "model": str(model.path),
            "devices": list(TWO),
            "search": {"trials": 12, "converge": False},
            "regions": [{"backend": NAME, **({"device": device} if device else {})}],
            **asked,
        }
    )
    bench = PlannedBench(
        model, api.device.along(2, TWO), Budget(seconds=0.02, items=4, latency_items=1)
    )
    return open_study(config, bench, storage_url("s", str(folder / "s.db")))


@pytest.mark.integration
@apart
@pytest.mark.parametrize("stages", [2, "auto"])
@pytest.mark.parametrize("place", [0, 1])
def test_every_candidate_has_the_regions_on_their_device(model, tmp_path, place, stages):
    opened = study(model, tmp_path, TWO[place], stages=stages)
    run_study(opened)
    convolutions = set(model.lowered.regions[NAME])
    assert len(convolutions) == 2
    measured = [t for t in opened.study.trials if t.state.name == "COMPLETE"]
    assert measured
    for trial in measured:
        stages = opened.space.deployment(opened.space.candidate(record_of(trial).key)).stages
        on_device = [s.ops for s in stages if s.devices == (TWO[place],)]
        assert convolutions <= {op for ops in on_device for op in ops}
        assert record_of(trial).max_rel_error < 1e-3  # against onnxruntime on the whole net
    assert opened.study.user_attrs["result"]["stopped"].startswith("exhausted")


@pytest.mark.integration
@apart
def test_regions_elsewhere_are_another_study(model, tmp_path):
    study(model, tmp_path, TWO[0])
    with pytest.raises(
        ConfigError, match=f"regions on was '{NAME} {TWO[0]}', is '{NAME} {TWO[1]}'"
    ):
        study(model, tmp_path, TWO[1])


@pytest.mark.integration
@apart
def test_a_plan_puts_them_there_too(model):
    for place, name in enumerate(TWO):
        split = api.plan(model, 2, TWO, regions={NAME: name})
        assert set(model.lowered.regions[NAME]) <= set(split.stages[place])
        assert split.devices == TWO
        with split.pipeline() as pipeline:
            assert external_backend.close(
                pipeline.run(model.items(2)), model.expected(model.items(2)), 1e-4
            )
    with pytest.raises(
        ConfigError,
        match=f"'{NAME}' are for device 'cores:{TWO[0][6:]},{TWO[1][6:]}', which is not one of",
    ):
        api.plan(model, 2, TWO, regions={NAME: f"cores:{TWO[0][6:]},{TWO[1][6:]}"})
