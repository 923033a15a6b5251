from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest

import autosplit
from autosplit import api
from autosplit.errors import ConfigError, MachineError, ModelError, SplitError, StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnxruntime import runtime, session
from tests import nets
from tests.build import node, onnx_model
from tests.nets import onnxruntime_outputs


@pytest.fixture
def load(save):
    return lambda proto, **more: autosplit.load_model(save(proto), runtime="onnxruntime", **more)


def test_kernels_of_one_node_are_kept_together_and_a_cut_between_them_is_refused(load):
    model = load(nets.inside_a_node())
    inner = next(i for i, op in enumerate(model.graph.ops) if not op.sources)
    (group,) = model.runtime.keep_together
    assert inner in group
    tensors = {tensor for i in group for tensor in model.graph.ops[i].outputs}
    assert tensors - set(model.runtime.original.producers)
    with pytest.raises(SplitError, match="cut 1: onnxruntime runs ops"):
        model.split([[model.graph.ops[inner].name]])
    parted = (tuple(range(inner + 1)), tuple(range(inner + 1, len(model.graph.ops))))
    with pytest.raises(SplitError, match="is not in the ONNX graph; cut elsewhere"):
        api.Split(model, parted).pipeline()


def test_ops_whose_nodes_read_what_the_ops_do_not_are_kept_together(load):
    text = """g (float[2,3,4] x) => (float[2,12] y) {
        i = Shape(x)  n = Gather(i, zero)  u = Unsqueeze<axes=[0]>(n)  t = Concat<axis=0>(u, rest)
        r = Reshape(x, t)  e = Exp(r)  f = Relu(e)  m = MatMul(f, w)
        s = Shape(e)  k = Mul(s, one)  y = Reshape(m, k)
    }"""
    weights = {"zero": np.array(0), "rest": np.array([-1]), "one": np.array([1, 1]), "w": (12, 12)}
    # The shape inference of opset 11 does not know the shape after Gather.
    model = load(nets.net(text, weights, opset=11))
    assert model.runtime.keep_together == (tuple(range(len(model.graph.ops))),)
    nets.judge(model, model.split([]))


def test_no_kernel_is_compiled(load, monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path / "cache"))
    model = load(nets.residual())
    split = autosplit.plan(model, 2)
    split.export(tmp_path / "out")
    nets.judge(model, split)
    assert not (tmp_path / "cache" / "kernels").exists()


@pytest.mark.parametrize(
    ("nodes", "places", "sessions"),
    [(["", ""], [(0,), (1,)], 1), (["node0", "node1"], [(0,), (1,)], 2),
     (["", ""], [(0, 1), (0, 1)], 2), (["", ""], [(0,), (0, 1), (1,)], 2)],
)  # fmt: skip
def test_replicas_with_one_thread_share_weights(monkeypatch, nodes, places, sessions):
    opened = []

    def session_on(*_):
        opened.append(object())
        return opened[-1]

    monkeypatch.setattr(runtime, "session_on", session_on)
    monkeypatch.setattr(runtime, "memory_node", lambda core: nodes[core])
    cores = [devices.Cores(numbers) for numbers in places]
    stages = runtime.session_stages(Path(), StageSpec.planned((), (), ()), cores)
    assert (len(stages), len(opened)) == (len(places), sessions)


def test_large_weights_lie_beside_a_stage_and_are_checked(load, tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "EXTERNAL_BYTES", 500)
    text = "g (float[2,40] x) => (float[2,40] y) { a = MatMul(x, w) y = MatMul(a, v) }"
    model = load(nets.net(text, {"w": (40, 40), "v": (40, 40)}))
    split = model.split([["a"]])
    nets.judge(model, split)
    split.export(tmp_path)
    nets.judge(model, autosplit.load(tmp_path))
    data = tmp_path / "stage0.onnx.data"
    data.write_bytes(data.read_bytes()[:-1] + b"\1")
    with pytest.raises(ConfigError, match="it was changed"):
        autosplit.load(tmp_path)


def test_a_stage_of_an_old_file_is_a_valid_model(load):
    text = "g (float[4,4] w, float[2,4] x) => (float[2,4] y) { y = MatMul(x, w) }"
    proto = nets.net(text, {"w": (4, 4)})
    proto.ir_version = 3
    model = load(proto)
    onnx.checker.check_model(model.runtime.submodel(model.stage_source.whole_stage))


def test_a_manifest_whose_ports_are_not_the_models_is_refused(load, tmp_path):
    model = load(nets.residual())
    file = model.split([["relu1a"]]).export(tmp_path)
    text = file.read_text(encoding="utf-8").replace('"relu1a"', '"other"')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(StageError, match="Invalid output name:other"):
        nets.judge(model, autosplit.load(tmp_path))


def test_a_row_is_written_into_the_memory_of_a_state(load):
    text = """g (float[2,9999,4] cache, int64[1] place, float[2,1,4] row)
    => (float[2,9999,4] after, float[2,4] y) {
        at = Unsqueeze(place, last)  front = Transpose<perm=[1,0,2]>(cache)
        new = Transpose<perm=[1,0,2]>(row)  written = ScatterND(front, at, new)
        after = Transpose<perm=[1,0,2]>(written)  y = ReduceMax<axes=[1],keepdims=0>(after)
    }"""
    model = load(nets.net(text, {"last": np.array([1])}), states={"cache": "after"})
    with model.split([]).pipeline() as pipeline:
        assert model.require_equal(pipeline, ["onnxruntime"]).max_abs_error == 0
    ports = model.wiring([range(len(model.graph.ops))]).stages[0]
    item = model.stage_source.items(1)[0]
    (stage,) = model.runtime.stages(ports, [Cores((0,))])
    with closing(stage):
        results = stage.run([item[port.name] for port in ports.inputs])
    ((_, output),) = ports.state_places
    assert np.shares_memory(results[output], item["cache"])


def test_single_numbers_are_written_into_a_state_as_before(load):
    text = """g (float[2,4] cache, int64[1,1,2] places, float[1,1] values)
    => (float[2,4] after, float[2] y) {
        front = Transpose<perm=[1,0]>(cache)  written = ScatterND(front, places, values)
        after = Transpose<perm=[1,0]>(written)  y = ReduceMax<axes=[1],keepdims=0>(after)
    }"""
    model = load(nets.net(text), states={"cache": "after"})
    with model.split([]).pipeline() as pipeline:
        assert model.require_equal(pipeline, ["onnxruntime"]).max_abs_error == 0


def test_a_model_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        model_file.write(nets.residual(1), tmp_path / "taken" / "stage0.onnx")


def test_an_unreadable_model_is_a_model_error_and_prints_nothing(tmp_path, capfd):
    (tmp_path / "net.onnx").write_bytes(b"no model")
    unknown = onnx_model([node("Fancy", "x", "y")]).SerializeToString()
    for model in (tmp_path / "net.onnx", unknown.replace(b"Fancy", b"F\xd5ncy")):
        with pytest.raises(ModelError, match="onnxruntime cannot load the model"):
            onnxruntime_outputs(model, [])
    assert capfd.readouterr() == ("", "")


def test_an_item_that_onnxruntime_refuses_is_a_model_error():
    model = onnx_model([node("Relu", "x", "y")]).SerializeToString()
    with pytest.raises(ModelError, match="onnxruntime cannot run the model: "):
        onnxruntime_outputs(model, [{"x": np.zeros((9, 9), np.float32)}])
    (outputs,) = onnxruntime_outputs(model, [{"x": np.full((1, 4), -1.0, np.float32)}])
    assert outputs["y"].tolist() == [[0.0] * 4]


@pytest.mark.parametrize(("feature", "is_exact"), [("avx2", False), ("avx_vnni", True)])
def test_only_processors_without_vnni_take_longer_for_exact_sums(monkeypatch, feature, is_exact):
    monkeypatch.setattr(session, "cpu_features", lambda _: frozenset({feature}))
    model = onnx_model([node("Relu", "x", "y")]).SerializeToString()
    options = session.onnxruntime_session(model).get_session_options()
    expected = pytest.raises(RuntimeError) if is_exact else nullcontext()
    with expected:
        assert options.get_session_config_entry("session.x64quantprecision") == "1"
