import numpy as np
import pytest

import autosplit
from autosplit.errors import ConfigError, ModelError
from autosplit.hardware.batches import batched_profiles, checked_profiles
from autosplit.hardware.devices.device import along
from tests.build import node, onnx_model, value

NODES = [
    node("Gemm", "x w", "hidden"),
    node("Relu", "hidden", "relu"),
    node("Reshape", "relu shape", "rows"),
    node("ReduceSum", "rows axis", "y", keepdims=0),
]
WEIGHTS = {
    "w": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32),
    "shape": np.array([1, 2, 3]),
    "axis": np.array([1]),
}


def loaded(save, nodes=NODES, weights=WEIGHTS, inputs=None, runtime="onnxruntime", **options):
    path = save(onnx_model(nodes, inputs=inputs, weights=weights))
    return autosplit.load_model(path, runtime=runtime, **options)


@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm"])
@pytest.mark.parametrize("size", [1, "N"])
def test_a_batch_computes_each_item_as_alone(save, runtime, size):
    shapes = {"x": (1, 4)} if size == "N" else None
    model = loaded(save, inputs=[value("x", (size, 4))], runtime=runtime, shapes=shapes)
    whole = model.deployment([range(len(model.graph.ops))], ["cores:0"])
    for batch in (1, 3, 16):
        deployment = type(whole).of_split(whole.split, ["cores:0"], [runtime], batch=batch)
        with model.pipeline(deployment) as pipeline:
            assert model.require_equal(pipeline, [runtime]).items == 8
            assert pipeline.run([]) == []


@pytest.mark.integration
def test_profiles_of_batches_are_those_of_an_item(save):
    model = loaded(save)
    profiles = batched_profiles(model, along(1), [1, 2, 5])
    assert [profile.batch for profile in profiles] == [1, 2, 5]
    assert all(profile.is_possible for profile in profiles)


@pytest.mark.integration
def test_auto_ends_where_an_item_gets_no_faster(save, monkeypatch):
    from autosplit.hardware import batches

    model = loaded(save)
    monkeypatch.setattr(batches, "_whole_ms", lambda p: {1: 8.0, 2: 5.0, 4: 4.9}[p.batch])
    profiles = batched_profiles(model, along(1), "auto")
    assert [profile.batch for profile in profiles] == [1, 2, 4]


@pytest.mark.integration
def test_items_that_influence_one_another_are_refused_by_op(save):
    nodes = [
        node("Relu", "x", "relu"),
        node("ReduceMean", "relu", "mean", axes=[0], keepdims=1),
        node("Sub", "relu mean", "y"),
    ]
    model = loaded(save, nodes, {})
    assert batched_profiles(model, along(1), "auto") == checked_profiles(model, along(1))
    with pytest.raises(ModelError, match=r"influence one another in op .*; use batch 1"):
        batched_profiles(model, along(1), [4])


@pytest.mark.parametrize(
    ("inputs", "nodes", "reason"),
    [
        ([value("x"), value("s", ())], [node("Mul", "x s", "y")], "'s' is a scalar"),
        (
            [value("x"), value("z", (3, 4))],
            [node("Add", "x z", "y")],
            "'x' and 'z' have 1 and 3 along their first axis",
        ),
        (
            [value("x")],
            [node("ReduceSum", "x", "y", keepdims=0)],
            r"output 'y' is \[\] for one item",
        ),
    ],
)
def test_models_without_an_axis_for_items_are_refused(save, inputs, nodes, reason):
    with pytest.raises(ModelError, match=reason):
        loaded(save, nodes, {}, inputs).at_batch(2)


def test_states_are_refused(save):
    nodes = [node("Add", "x h", "next"), node("Relu", "next", "y")]
    model = onnx_model(nodes, [value("x"), value("h")], ["y", "next"])
    with pytest.raises(ModelError, match="state 'h' is that of one item"):
        autosplit.load_model(save(model), states={"h": "next"}).at_batch(2)


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


@pytest.mark.parametrize("batch", [0, "all", 1.5, [0]])
def test_a_plan_refuses_what_is_no_batch(save, batch):
    with pytest.raises(ConfigError, match="batch is"):
        autosplit.plan(loaded(save), cores=1, batch=batch)
