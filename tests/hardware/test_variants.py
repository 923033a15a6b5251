import json

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError, ModelError
from autosplit.hardware.runtimes.onnx.submodels import read_original
from tests import nets

pytest.importorskip("onnxruntime")

ROWS = 16
VARIANTS = {"many": {"x": (1, 4, 6)}, "some": {"x": (1, 3, 6)}, "one": {"x": (1, 1, 6)}}
STATES = {"cache": "after", "count": "next"}
OPTIONS = {"states": STATES, "variants": VARIANTS, "runtime": "onnxruntime"}


def decoder():
    """Rows are written into a cache behind those before; the second half asks for their number."""
    text = """g (float[1,N,6] x, float[1,16,6] cache, int64 count)
    => (float[1,M,6] y, float[1,16,6] after, int64 next) {
        a = MatMul(x, w)  front = Transpose<perm=[1,0,2]>(cache)  rows = Transpose<perm=[1,0,2]>(a)
        size = Shape<start=1,end=2>(x)  number = Squeeze(size)  range = Range(zero, number, one)
        places = Add(range, count)  at = Unsqueeze(places, last)
        written = ScatterND(front, at, rows)  after = Transpose<perm=[1,0,2]>(written)
        next = Add(count, number)  mean = ReduceMean<axes=[1]>(after)
        b = Add(a, mean)  flat = Reshape(b, column)  c = MatMul(flat, w)
        shape = Shape(x)  back = Reshape(c, shape)  y = Tanh(back)
    }"""
    numbers = {"zero": 0, "one": 1, "last": [1], "column": [-1, 6]}
    return nets.net(text, {"w": (6, 6)} | {name: np.array(n) for name, n in numbers.items()})


def item(rows, seed=0):
    return {"x": np.random.default_rng(seed).random((1, rows, 6), np.float32)}


@pytest.fixture
def model(save):
    return autosplit.load_model(save(decoder()), **OPTIONS)


def test_items_of_all_shapes_are_computed_as_by_the_unsplit_model(model, tmp_path):
    assert model.wiring([range(len(model.graph.ops))]).inputs[0].shape == (1, 1, 6)
    split = model.split([["b"]])
    items = [item(4), item(1), item(3), item(1, 1)]
    with split.pipeline() as pipeline:
        assert model.require_equal(pipeline, ["onnxruntime"]).max_abs_error < 1e-6
        together = pipeline.run(items)
        by_row = [{"x": item["x"][:, [row]]} for item in items for row in range(item["x"].shape[1])]
        alone = pipeline.run(by_row, stream="by row")
        # What an item of several rows sees of the cache are all of its rows.
        np.testing.assert_allclose(together[-1]["y"], alone[-1]["y"], rtol=1e-5, atol=1e-6)
    split.export(tmp_path)
    with autosplit.load(tmp_path) as pipeline:
        again = pipeline.run(items)
    assert all(np.array_equal(a["y"], b["y"]) for a, b in zip(together, again, strict=True))
    assert verify(tmp_path).accuracy.equal
    variants = json.loads((tmp_path / "split.json").read_text())["model"]["variants"]
    assert [(name, variants[name]["advance"]) for name in variants] == [("some", 3), ("many", 4)]


def test_an_item_of_no_variant_or_that_the_states_have_no_room_for_is_refused(model):
    shapes = r"takes float32\[1, 1, 6\] or float32\[1, 3, 6\] or float32\[1, 4, 6\]"
    with model.split([["b"]]).pipeline() as pipeline:
        with pytest.raises(ConfigError, match=shapes):
            pipeline.run([item(2)])
        pipeline.run([item(4)] * 3 + [item(1)])
        before = pipeline.state()
        with pytest.raises(ConfigError, match="has had 13 items and its states have room for 3"):
            pipeline.run([item(4)])
        assert np.array_equal(pipeline.state()["cache"], before["cache"])
        pipeline.run([item(3)])
        with pytest.raises(ConfigError, match="has had 16 items and its states are full"):
            pipeline.run([item(1)])


def test_weights_of_a_stage_are_there_once(model):
    (stage,) = model.wiring([range(len(model.graph.ops))]).stages
    submodel = model.runtime.submodel(stage)
    assert sum(weight.name == "w" for weight in submodel.graph.initializer) == 1
    assert len(read_original(model.stage_source).other_shapes) == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"runtime": "tvm"}, "runtime 'tvm' runs one shape; use onnxruntime for variants"),
        ({"runtime": "openvino"}, "runtime 'openvino' runs one shape"),
        ({"variants": VARIANTS | {"long": {"x": (1, ROWS, 6)}}}, "leaves no room in the states"),
        ({"variants": {"one": {"y": (1, 1, 6)}}}, "shapes name 'y'"),
    ],
)
def test_what_cannot_be_is_refused(save, options, reason):
    with pytest.raises(ConfigError, match=reason):
        _ = autosplit.load_model(save(decoder()), **(OPTIONS | options)).reference_outputs


def test_what_runs_one_shape_refuses_variants(model, tmp_path):
    with pytest.raises(ModelError, match="with variants has batch 1 only"):
        model.at_batch(2)
    split = model.split([["b"]])
    for name in ("cpp", "onnx"):
        with pytest.raises(ConfigError, match=f"format '{name}' cannot run .* has variants"):
            split.export(tmp_path / name, format=name)
    with pytest.raises(ConfigError, match="do not run on a Ray cluster"):
        split.pipeline(["ray:a/cores:0", "cores:0"])
    split.export(tmp_path / "native")
    with pytest.raises(ConfigError, match="does not run on Ray"):
        autosplit.load(tmp_path / "native").on_ray()
