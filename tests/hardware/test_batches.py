import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import bench, verify
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError, ModelError
from autosplit.hardware.batches import batched_profiles, checked_profiles, mismatch
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Profile
from tests.deploy.exports import Export
from tests.nets import judge, net

BODY = """hidden = Gemm(x, w)  relu = Relu(hidden)  rows = Reshape(relu, shape)
    y = ReduceSum<keepdims=0>(rows, axis)"""
WEIGHTS = {"w": (4, 6), "shape": np.array([1, 2, 3]), "axis": np.array([1])}


def loaded(save, body=BODY, weights=WEIGHTS, ports="float[1,4] x", **options):
    proto = net(f"g ({ports}) => (float[] y) {{ {body} }}", weights)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return autosplit.load_model(save(proto), **{"runtime": "onnxruntime", **options})


@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm"])
@pytest.mark.parametrize("size", [1, "N"])
def test_a_batch_computes_each_item_as_alone(save, runtime, size):
    shapes = {"x": (1, 4)} if size == "N" else None
    model = loaded(save, ports=f"float[{size},4] x", runtime=runtime, shapes=shapes)
    whole = [range(len(model.graph.ops))]
    for batch in (1, 3):
        deployment = Deployment.of_split(whole, ["cores:0"], [runtime], batch=batch)
        with model.pipeline(deployment) as pipeline:
            assert model.require_equal(pipeline, [runtime]).items == 8
            assert pipeline.run([]) == []


@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm"])
def test_kernels_may_have_other_names_in_a_batch(save, runtime):
    body = "late = Add(x, p)  hidden = MatMul(late, w)  y = Add(hidden, late)"
    model = loaded(save, body, {"p": (1, 4), "w": (4, 4)}, runtime=runtime)
    names = [[op.name for op in each.graph.ops] for each in (model, model.at_batch(3))]
    assert names[0] != names[1]
    deployment = Deployment.of_split([range(len(names[0]))], ["cores:0"], [runtime], batch=3)
    with model.pipeline(deployment) as pipeline:
        assert model.require_equal(pipeline, [runtime]).items == 8


@pytest.mark.integration
def test_auto_ends_where_an_item_gets_no_faster(save, monkeypatch):
    model = loaded(save)
    monkeypatch.setattr(Profile, "whole_ms", property(lambda p: {1: 8, 2: 5, 4: 4.9}[p.batch]))
    assert [profile.batch for profile in batched_profiles(model, along(1), "auto")] == [1, 2, 4]


@pytest.mark.integration
def test_items_that_influence_one_another_are_refused_by_op(save):
    model = loaded(save, "r = Relu(x)  m = ReduceMean<axes=[0]>(r)  y = Sub(r, m)", {})
    assert batched_profiles(model, along(1), "auto") == checked_profiles(model, along(1))
    with pytest.raises(ModelError, match=r"influence one another in op .*; use batch 1"):
        batched_profiles(model, along(1), [4])


LATE = """s = Shape(x)  n = Gather(s, zero)  places = Range(zero, n, one)
    late = GreaterOrEqual(places, nine)  y = Add(x, Unsqueeze(Cast<to=1>(late), axis))"""
SWAPPED = "a = Slice(x, middle, end)  b = Slice(x, start, middle)  y = Concat<axis=0>(a, b)"


@pytest.mark.parametrize("body", [LATE, SWAPPED])
def test_every_place_of_a_batch_is_compared(save, body):
    numbers = {"start": [0], "middle": [-8], "end": [99], "axis": [1], "zero": 0, "one": 1}
    weights = {name: np.array(value) for name, value in {**numbers, "nine": 9}.items()}
    with pytest.raises(ModelError, match=r"batch 16 of .* influence one another in op"):
        batched_profiles(loaded(save, body, weights), along(1), [16])


@pytest.mark.parametrize(
    ("ports", "body", "reason"),
    [
        ("float[1,4] x, float s", "y = Mul(x, s)", "'s' is a scalar"),
        ("float[1,4] x, float[3,4] z", "y = Add(x, z)", "'x' and 'z' have 1 and 3 along their"),
        ("float[1,4] x", "y = ReduceSum<keepdims=0>(x)", r"output 'y' is \[\] for one item"),
        ("float[1,4] x", "y = Where(Less(ReduceMax<keepdims=0>(x), k), x, k)", "in op .*max"),
    ],
)
def test_models_without_an_axis_for_items_are_refused(save, ports, body, reason):
    with pytest.raises(ModelError, match=reason):
        loaded(save, body, {"k": np.array(50, np.float32)}, ports).at_batch(2)


def test_a_comparison_is_of_one_batch_and_one_version(save, monkeypatch):
    ports, body = "float[N,4] x", "y = Softmax<axis=0>(x)"
    single, large = (loaded(save, body, {}, ports, shapes={"x": (n, 4)}) for n in (1, 4))
    assert "differ" in mismatch(single.at_batch(4), "onnxruntime", along(1))
    assert mismatch(large, "onnxruntime", along(1)) == ""
    monkeypatch.setattr("autosplit.hardware.batches.VERSION", "another")
    monkeypatch.setattr(type(large), "reference_outputs", property(lambda _: 1 / 0))
    with pytest.raises(ZeroDivisionError):  # it is compared anew
        mismatch(large, "onnxruntime", along(1))


@pytest.mark.parametrize(("runtime", "batch"), [("onnxruntime", 1), ("openvino", 1), ("tvm", 2)])
def test_a_file_that_changed_since_it_was_loaded_is_refused(save, runtime, batch):
    model = loaded(save, runtime=runtime)
    loaded(save, weights={**WEIGHTS, "w": np.ones((4, 6), np.float32)})
    with pytest.raises(ModelError, match="has changed since it was loaded; load it again"):
        model.at_batch(batch).runtimes[runtime].prepare()


def test_states_are_refused(save):
    ports = "g (float[1,4] x, float[1,4] h) => (float[1,4] y, float[1,4] next)"
    model = save(net(f"{ports} {{ next = Add(x, h)  y = Relu(next) }}"))
    with pytest.raises(ModelError, match="states belong to single items"):
        autosplit.load_model(model, states={"h": "next"}).at_batch(2)


@pytest.mark.integration
@pytest.mark.parametrize("batch", [4, [2, 4], "auto"])
def test_a_plan_has_one_of_the_batches_asked_for(save, batch):
    model = loaded(save)
    expected = {1, 2, 4, 8, 16, 32, 64} if batch == "auto" else {*np.atleast_1d(batch)}
    deployment = autosplit.plan(model, cores=1, batch=batch)
    assert deployment.deployment.batch in expected
    split = autosplit.plan(model, stages=2, devices=["cores:0", "cores:0"], batch=batch)
    assert split.batch in expected
    with split.pipeline() as pipeline:
        assert model.require_equal(pipeline, split.runtimes).equal


def test_an_export_at_a_batch_takes_single_items_and_no_other_batch(save, tmp_path):
    model = loaded(save)
    half = len(model.graph.ops) // 2
    stages = tuple(range(half)), tuple(range(half, len(model.graph.ops)))
    autosplit.api.Split(model, stages, batch=3).export(tmp_path)
    document = Export(tmp_path).document
    assert (document["format"], document["batch"]) == (3, 3)
    assert document["model"]["inputs"][0]["shape"] == [1, 4]
    assert document["stages"][0]["inputs"][0]["shape"] == [3, 4]
    judge(model, autosplit.load(tmp_path), items=5)
    assert verify(tmp_path).accuracy.equal
    result = bench(tmp_path, Budget(seconds=0.01, items=12))
    assert result.items == 3 * (len(result.gaps) + 1)
    Export(tmp_path).edit(lambda document: document.update(batch=2))
    with pytest.raises(ConfigError, match="which nothing before it produces"):
        autosplit.load(tmp_path)


def test_a_model_loaded_at_a_batch_is_split_at_batch_1_alone(save):
    model = loaded(save)
    assert model.at_batch(3).at_batch(1) is model
    with pytest.raises(ConfigError, match=r"loaded at batch 3, .* give the batch to `plan`"):
        loaded(save, batch=3).split([]).pipeline()
