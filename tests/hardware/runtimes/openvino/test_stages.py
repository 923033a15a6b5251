from dataclasses import replace

import numpy as np
import pytest

import autosplit
from autosplit.errors import ConfigError, ModelError, StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.runtimes.openvino.stage import OpenvinoStage, compile_model
from tests import nets
from tests.build import node, onnx_model

HERE = devices.along(1)[0]


@pytest.fixture
def load(save):
    return lambda proto: autosplit.load_model(save(proto), runtime="openvino")


def test_single_precision_is_computed_as_such():
    compiled = compile_model(nets.residual().SerializeToString(), HERE)
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"


def test_an_input_whose_name_openvino_drops_is_read(load):
    model = load(nets.net("g (float[4,4] x) => (float[4,4] y) { a = Dropout(x) y = Add(x, a) }"))
    nets.judge(model, model.split([]))


def test_integers_of_more_than_24_bits_are_refused(load, tmp_path):
    model = load(nets.net("g (int32[2] x) => (int32[2] y) { y = Relu(x) }"))
    split = model.split([])
    split.export(tmp_path / "out")
    for pipeline in (split.pipeline(), autosplit.load(tmp_path / "out")):
        with pipeline:
            with pytest.raises(ConfigError, match=r"'x' holds 16777217; .* to 16777216"):
                pipeline.run([{"x": np.array([2**24 + 1, 1], np.int32)}])
            (outputs,) = pipeline.run([{"x": np.array([2**24, -(2**24)], np.int32)}])
            assert outputs["y"].tolist() == [2**24, 0]


def test_integers_that_grow_beyond_24_bits_are_refused(load):
    model = load(nets.net("g (int32[2,2] x) => (int32[2,2] y) { y = MatMul(x, x) }"))
    x = np.array([[9999, 3], [7777, 9001]], np.int32)  # OpenVINO gives multiples of 8
    with model.split([]).pipeline() as pipeline, pytest.raises(StageError, match="'y' holds"):
        pipeline.run([{"x": x}])


def test_numbers_that_openvino_rounds_are_refused_each_time(load, tmp_path):
    ports, weights = "g (int64[6] i) => (float[6] y)", {"k": np.array(31337), "q": np.array(1009)}
    fmod = "Mod<fmod=1>(Cast<to=1>(i), Cast<to=1>(q))"
    lines = ("Div(Mul(i, k), q)", "Mod(Mul(i, k), q)", fmod)
    nodes = dict.fromkeys(lines, "for a number that node 'n' divides; choose another")
    for line, reason in (nodes | {"Cast<to=11>(i)": "computes float64 in 32 bits"}).items():
        proto = nets.net(f"{ports} {{ n = {line}  y = Cast<to=1>(n) }}", weights)
        split = load(proto).split([])
        with pytest.raises(ModelError, match=reason):
            split.pipeline()
        with pytest.raises(ModelError, match=reason):
            split.export(tmp_path / "out")


def test_of_equal_values_the_first_ones_are_on_top(load):
    text = "g (float[1,99] x) => (float[1,9] v, int64[1,9] i) { v, i = TopK(x, k) }"
    with load(nets.net(text, {"k": np.array([9])})).split([]).pipeline() as pipeline:
        (outputs,) = pipeline.run([{"x": np.arange(99, dtype=np.float32)[None] % 3}])
    assert outputs["i"].tolist() == [[*range(2, 28, 3)]]


def test_integers_of_more_than_24_bits_do_not_cross_a_cut(save):
    body = "c = Cast<to=7>(x) a = ReduceSum<keepdims=0>(c, axis) y = Add(a, a)"
    proto = nets.net(f"g (float[1,2] x) => (int64[2] y) {{ {body} }}", {"axis": np.array([0])})
    model = autosplit.load_model(save(proto), runtime="auto")
    split = replace(model.split([["a"]]), runtimes=("tvm", "openvino"), devices=("cores:0",) * 2)
    with split.pipeline() as pipeline:
        (outputs,) = pipeline.run([{"x": np.array([[7, -5]], np.float32)}])
        assert outputs["y"].tolist() == [14, -10]
        with pytest.raises(StageError, match="'a' holds integers of more than 24 bits"):
            pipeline.run([{"x": np.array([[1e12, 1]], np.float32)}])


def test_a_model_that_openvino_refuses_is_a_model_error_without_native_lines(tmp_path, capfd):
    (file := tmp_path / "stage0.so").write_bytes(b"\x7fELF")
    unknown = onnx_model([node("Fancy", "x", "y")]).SerializeToString()
    empty = nets.net("g (float[4,0] x) => (float[4,4] y) { y = MatMul(x, w) }", {"w": (0, 4)})
    for model, reason in (
        (unknown, ".*Fancy"),
        (file, "Model can't be parsed"),
        (empty.SerializeToString(), r"MatMul-\d+: Scalars are not supported"),
    ):
        with pytest.raises(ModelError, match=f"OpenVINO cannot load the model: {reason}"):
            compile_model(model, HERE)
    assert capfd.readouterr().err == ""


def test_a_model_with_other_shapes_than_the_ports_is_refused(branches):
    model = onnx_model([node("Relu", "x", "y")]).SerializeToString()
    ports = branches.stage_source.whole_stage
    with pytest.raises(ModelError, match="the stage's inputs have the shapes"):
        OpenvinoStage(compile_model(model, HERE), ports, HERE)


def test_a_shape_that_openvino_does_not_know_is_that_of_the_model(load):
    ports = "g (float[2,3,4] x, int64[1] a) => (float[2,1,4] y)"
    model = load(nets.net(f"{ports} {{ y = ReduceL1(x, a) }}", opset=18))
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    with model.split([]).pipeline() as pipeline:
        (outputs,) = pipeline.run([{"x": x, "a": np.array([1])}])
    np.testing.assert_allclose(outputs["y"], np.abs(x).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.integration
def test_auto_leaves_openvino_out_where_it_ends_the_process(save):
    text = """g (float[2,5,1] x) => (float[2,5,1] y) { n = Neg(x)
    a = GroupNormalization<num_groups=1>(x, w, w)  y = Mul(n, a) }"""
    model = autosplit.load_model(save(nets.net(text, {"w": (5,)}, opset=21)), runtime="auto")
    notes = {p.runtime: p.note for p in model.profiles([HERE], seconds=0.1, force=True)}
    assert "crash SIGSEGV" in notes.pop("openvino")
    assert set(notes.values()) == {""}
    nets.judge(model, model.split([]))
