import ctypes
import gc
import json
import os
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from autosplit import api, cuts, files
from autosplit.errors import MachineError, ModelError
from autosplit.extras import tvm
from autosplit.hardware.codegen import kernels, toolchain
from autosplit.hardware.devices import device
from tests.nets import judge, net, products

NET = products()


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache of the test's own."""
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def require_right(model):
    judge(model, model.split([[model.graph.ops[0].name]]), items=1)


def test_a_model_loaded_again_compiles_nothing(fresh, save, monkeypatch):
    build = Mock(wraps=kernels._build)
    monkeypatch.setattr(kernels, "_build", build)
    path = save(NET)
    require_right(api.load_model(path))
    built = [name for call in build.call_args_list for name, _ in call.args[0].values()]
    assert sorted(built) == ["matmul", "softmax"]
    build.reset_mock()
    require_right(api.load_model(path))
    # Other weights need no other kernel.
    other = type(NET).FromString(NET.SerializeToString())
    other.graph.initializer[0].raw_data = np.arange(16, dtype=np.float32).tobytes()
    require_right(api.load_model(save(other, "other.onnx")))
    assert not build.called


def digests(model):
    """The symbols of the kernels of a model, and what is in their files."""
    kernels = model.kernels.on(device.parse("cores:0"))
    of_files = {symbol: files.sha256(file) for symbol, file in kernels.objects.items()}
    return [dict(kernels.symbols), of_files]


@pytest.mark.integration
def test_a_process_with_another_hash_seed_writes_the_same_bytes(branches, tmp_path):
    code = (
        "import json, sys; from autosplit import api\n"
        "from tests.hardware.codegen.test_kernels import digests\n"
        "print(json.dumps(digests(api.load_model(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(branches.path)]
    environment = os.environ | {"PYTHONHASHSEED": "1", "AUTOSPLIT_CACHE": str(tmp_path)}
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    assert json.loads(printed) == digests(branches)


def test_a_cache_that_cannot_be_written_is_named(fresh, save, said):
    fresh.write_text("a file is in the way")
    code, line = said("profile", save(NET))
    assert (code, line.split("'")[0]) == (3, "cannot write ")
    assert line.endswith("Not a directory; choose another folder with AUTOSPLIT_CACHE")


def test_without_a_linker_a_split_runs_but_cannot_be_exported(fresh, save, monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "_driver", lambda: None)
    model = api.load_model(save(NET))
    require_right(model)
    text = "no compiler driver to link with; install gcc or clang, or pip install"
    with pytest.raises(MachineError, match=text):
        model.split([[model.graph.ops[0].name]]).export(tmp_path / "out")
    assert not (tmp_path / "out" / "split.json").exists()


UNKNOWN = dict.fromkeys(
    ["nonsense", "llvm -nonsense=1", "{", '{"kind": "nonsense"}', "[]", " "],
    " is not a TVM target (",
)
NO_PROCESSOR = ": LLVM knows no processor 'i9' of this architecture"
UNKNOWN |= dict.fromkeys(["llvm -mcpu=i9", '{"kind": "llvm", "mcpu": "i9"}'], NO_PROCESSOR)


@pytest.mark.parametrize(("text", "reason"), UNKNOWN.items())
def test_a_target_that_is_none_is_named(said, save, text, reason):
    code, line = said("inspect", save(NET), "--target", text)
    assert (code, line.startswith(f"target '{text}'{reason}")) == (2, True)


def test_a_kernel_that_cannot_be_built_is_named(fresh, save, monkeypatch):
    model = api.load_model(save(NET))
    monkeypatch.setattr(tvm.tirx, "build", Mock(side_effect=RuntimeError("first\nthe reason")))
    with pytest.raises(ModelError, match="kernel matmul cannot be built for llvm: the reason"):
        model.kernels.on(device.parse("cores:0"))


@pytest.mark.integration
def test_weights_are_held_once_whatever_the_number_of_candidates(squeezenet):
    graph = squeezenet.graph
    places = [cuts.closure(graph, [1 + k % (len(graph.ops) - 2)]) for k in range(100)]
    splits = [api.Split(squeezenet, cuts.stages(graph, [place])) for place in places]
    pipelines = [split.pipeline() for split in splits[:3]]
    before = psutil.Process().memory_info().rss
    pipelines += [split.pipeline() for split in splits]
    assert len(pipelines) == 103
    assert psutil.Process().memory_info().rss - before < 5 * squeezenet.lowered.weight_bytes


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_packed_weights_replace_those_of_the_source(save):
    text = """g (float[1,512,7,7] x) => (float[1,512,7,7] y) {
        a = Conv<pads=[1,1,1,1]>(x, v)  b = BatchNormalization(a, one, two, one, two)
        c = Relu(b)  d = Conv<pads=[1,1,1,1]>(c, w)  e = BatchNormalization(d, one, two, one, two)
        f = Sum(e, x)  y = Relu(f)
    }"""
    vectors = {"one": np.ones(512, np.float32), "two": np.full(512, 2, np.float32)}
    path = save(net(text, {"v": (512, 512, 3, 3), "w": (512, 512, 3, 3), **vectors}))
    trim = ctypes.CDLL(None).malloc_trim
    api.load_model(path)
    gc.collect()
    trim(0)
    before = psutil.Process().memory_info().rss
    lowered = api.load_model(path).lowered
    gc.collect()
    trim(0)
    assert lowered.weight_bytes == pytest.approx(path.stat().st_size, rel=0.01)
    assert psutil.Process().memory_info().rss - before < 1.3 * lowered.weight_bytes


def test_a_large_weight_that_several_ops_and_stages_read_is_right_in_each(fresh, save):
    large = np.random.default_rng(0).standard_normal((160, 160), np.float32) / 13
    text = """g (float[4,160] x) => (float[4,160] y, float[160,160] w) {
        a = MatMul(x, w)  b = Softmax(a)  c = MatMul(b, w)  y = MatMul(c, w)
    }"""
    model = api.load_model(save(net(text, {"w": large})))
    for last in ("a", "b", "c"):
        judge(model, model.split([[last]]), items=2)


def test_only_kernels_for_several_threads_divide_their_work(branches):
    one, two = (branches.kernels.on(device.parse(name)) for name in ("cores:0", "cores:0-1"))
    assert one.symbols != two.symbols
    judge(branches, branches.unsplit(device.parse("cores:0-1")), items=1)
