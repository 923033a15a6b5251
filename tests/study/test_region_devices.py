"""Regions of an external backend on a device of their own."""

import pytest

import autosplit
from autosplit import api
from autosplit.errors import ConfigError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.measurement.measure import Budget
from autosplit.lowering.external.backend import Backend
from autosplit.study.loop.run import run_study
from autosplit.study.record import record_of
from tests import external_backend, nets
from tests.study.conftest import stopped

NAME = external_backend.NAME
NET = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
    a = Tanh(x)  b = Softmax<axis=1>(a)  c = Conv(b, w0)  d = Conv(c, w1)
    e = Softmax<axis=1>(d)  y = Tanh(e)
}"""
TWO = tuple(map(str, api.device.along(2)))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(len(set(TWO)) < 2, reason="this machine has one core"),
]


@pytest.fixture
def model(save):
    external_backend.register()
    file = save(nets.net(NET, dict.fromkeys(("w0", "w1"), (4, 4, 1, 1))))
    yield autosplit.load_model(file, backends=[Backend(NAME, external_backend.patterns())])
    external_backend.unregister()


class PlannedBench(LocalBench):
    """A bench in this process that a study may plan with."""

    cost_table = Bench.cost_table


@pytest.fixture
def study(model, new_study):
    """Open a study of the model with the regions on a device."""

    def open_it(device, **asked):
        document = {"model": str(model.path), "devices": list(TWO), **asked}
        document["regions"] = [{"backend": NAME, "device": device}]
        budget = Budget(seconds=0.02, items=4, latency_items=1)
        bench = PlannedBench(model, api.device.along(2, TWO), budget)
        return new_study(bench, asked=document, trials=12, converge=False)

    return open_it


@pytest.mark.parametrize(("place", "stages"), [(0, 2), (1, "auto")])
def test_every_candidate_has_the_regions_on_their_device(model, study, place, stages):
    opened = study(TWO[place], stages=stages)
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
    assert stopped(opened).startswith("exhausted")


def test_regions_elsewhere_are_another_study(study):
    study(TWO[0])
    other = f"regions on was '{NAME} {TWO[0]}', is '{NAME} {TWO[1]}'"
    with pytest.raises(ConfigError, match=other):
        study(TWO[1])


def test_a_plan_puts_them_there_too(model):
    for place, name in enumerate(TWO):
        split = api.plan(model, 2, TWO, regions={NAME: name})
        assert set(model.lowered.regions[NAME]) <= set(split.stages[place])
        assert split.devices == TWO
        nets.judge(model, split, items=2)
    both = f"cores:{TWO[0][6:]},{TWO[1][6:]}"
    with pytest.raises(ConfigError, match=f"'{NAME}' are for device '{both}', which is not one of"):
        api.plan(model, 2, TWO, regions={NAME: both})
