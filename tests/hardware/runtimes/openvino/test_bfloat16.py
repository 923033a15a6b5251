from dataclasses import replace

import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.openvino import runtime
from autosplit.hardware.runtimes.openvino.stage import supports
from autosplit.hardware.runtimes.registry import OPENVINO_BFLOAT16
from tests import nets

pytestmark = pytest.mark.integration
needs_bfloat16 = pytest.mark.skipif(not supports("BF16"), reason="needs a processor with bfloat16")


@pytest.fixture
def model(transformer):
    return replace(transformer, runtime_name=OPENVINO_BFLOAT16)


def outputs(pipeline, items):
    with pipeline:
        return pipeline.run(items)


@needs_bfloat16
def test_outputs_are_rounded_but_within_the_tolerance_of_bfloat16(model):
    with autosplit.plan(model, 2).pipeline() as pipeline:
        accuracy = model.require_equal(pipeline, [OPENVINO_BFLOAT16])
    assert 1e-4 < accuracy.max_rel_error < 5e-2


@needs_bfloat16
def test_a_mask_from_outside_is_read_as_what_it_is(save):
    attention = """g (float[1,4,64,32] q, float[1,4,32,64] k, float[1,4,64,32] v,
    float[1,1,1,64] mask) => (float[1,4,64,32] y) {
        s = MatMul(q, k)  a = Add(s, mask)  p = Softmax<axis=-1>(a)  y = MatMul(p, v)
    }"""
    model = autosplit.load_model(save(nets.net(attention)), runtime=OPENVINO_BFLOAT16)
    nets.judge(model, model.split([]), items=2)


@needs_bfloat16
@pytest.mark.parametrize("in_process", [False, True])
def test_an_export_computes_what_the_pipeline_does(model, tmp_path, monkeypatch, in_process):
    if in_process:
        monkeypatch.setattr(runtime, "runs_here", lambda cores: False)
    split = autosplit.plan(model, 2)
    folder = split.export(tmp_path / "out").parent
    items = model.items(2)
    same = compare(outputs(autosplit.load(folder), items), outputs(split.pipeline(), items))
    assert same.max_abs_error == 0
    assert verify(folder).accuracy.equal


def test_a_processor_without_bfloat16_is_refused(model, monkeypatch):
    monkeypatch.setattr(runtime, "supports", lambda capability: False)
    with pytest.raises(ConfigError, match="which this one lacks; use runtime openvino"):
        model.check(devices.along(1))
