import subprocess
import sys

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError, ModelError
from autosplit.hardware.measurement.parity import compare
from tests.nets import judge
from tests.relax_nets import function, module, parsed

DOUBLED = """
    @T.prim_func(private=True, s_tir=True)
    def doubled(
        a: T.Buffer((T.int64(4), T.int64(6)), "float32"),
        b: T.Buffer((T.int64(4), T.int64(6)), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(T.int64(4), T.int64(6)):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] * T.float32(2)
"""
PARAMS = 'x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 3), "float32")'
BODY = """cls = M
twice = R.call_tir(cls.doubled, (x,), out_ty=R.Tensor((4, 6), "float32"))
parts = R.split(twice, 2, axis=1)
left = parts[0]
joined = R.concat((parts[1], left), axis=1)
product = R.matmul(joined, w)
short = R.nn.relu(left)
return (product, short)"""


def with_a_kernel():
    """A module with a kernel of its own, an op in parts and two results."""
    return module(DOUBLED, function("main", BODY, PARAMS))


def test_tvmscript_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "net.py").write_text("from tvm.script import relax as R")
    with pytest.raises(ModelError, match=r"net\.py'.*ONNX.*tvm\.ir\.save_json"):
        autosplit.load_model(tmp_path / "net.py")


@pytest.mark.parametrize("product", ["R.matmul(a, a)", "R.concat((a, a, a, a))"])
def test_constants_that_grow_are_refused_before_they_are_computed(product):
    ones = "R.broadcast_to(R.const(1.0, 'float32'), R.shape([9000, 9000]))"
    body = f"a = {ones}\nb = {product}\ny = R.add(x, R.max(b))\nreturn y"
    with pytest.raises(ModelError, match="variable 'b' computes too much of constants; store"):
        autosplit.load_model(module(function("main", body)))


def test_a_tuple_with_the_name_of_one_of_our_marks_is_read():
    body = "src9_p = R.split(x, 3, axis=1)\ny = src9_p[0]\nreturn y"
    assert autosplit.load_model(module(function("main", body))).graph.ops


@pytest.fixture
def path(tmp_path):
    """A file of such a module."""
    import tvm

    file = tmp_path / "net.json"
    file.write_text(tvm.ir.save_json(with_a_kernel()), encoding="utf-8")
    return file


def trusted(model):
    return autosplit.load_model(model, trust_kernels=True)


def test_a_saved_module_is_split_by_the_names_of_its_variables_and_judged_unfused(path):
    model = trusted(path)
    assert model.graph.ops == trusted(with_a_kernel()).graph.ops
    judge(model, model.split([["twice"], ["joined", "short"]]))
    names = {n for op in model.graph.ops for n in (*op.sources, *op.parts)}
    assert names == {"twice", "parts", "joined", "product", "short"}
    (item,) = model.items(1)
    twice = 2 * item["x"]
    product, short = np.roll(twice, 3, axis=1) @ item["w"], np.maximum(twice[:, :3], 0)
    assert compare(model.expected([item]), [{"product": product, "short": short}]).equal
    assert "TVM" in model.reference.name


@pytest.mark.integration
def test_a_saved_module_is_read_in_a_process_that_has_used_nothing_of_relax_before(path):
    code = "import pathlib, sys\nfrom autosplit.frontend.relax import file\n"
    code += "file.read(pathlib.Path(sys.argv[1]), trust_kernels=True)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_an_exported_relax_model_is_verified_with_its_file(path, tmp_path):
    trusted(path).split([["twice"]]).export(tmp_path / "out")
    result = verify(tmp_path / "out", path)
    assert result.accuracy.equal
    assert "TVM without fusion" in result.reference


def test_dynamic_sizes_are_bound_by_shape():
    params = "x: R.Tensor(('n', 4), 'float32'), y: R.Tensor(('n', 4), 'float32')"
    body = "n = T.int64()\nout = R.nn.relu(R.add(x, y))\nreturn out"
    source = module(function("main", body, params))
    model = autosplit.load_model(source, {"x": (3, 4)})
    assert [i.shape for i in model.lowered.inputs] == [(3, 4), (3, 4)]
    judge(model, model.split([]))
    for shapes, problem in (({"x": (3, 5)}, "axis 1"), ({"x": (2, 4), "y": (3, 4)}, "axis 0")):
        with pytest.raises(ConfigError, match=problem):
            autosplit.load_model(source, shapes)


def test_a_batch_needs_open_sizes():
    body = "n = T.int64()\nout = R.nn.relu(x)\nreturn out"
    source = module(function("main", body, "x: R.Tensor(('n', 4), 'float32')"))
    for shapes in ({}, {"x": (2, 4)}):
        model = autosplit.load_model(source, shapes)
        (port,) = model.at_batch(3).lowered.inputs
        assert port.shape == (3 * model.lowered.inputs[0].shape[0], 4)
    fixed = module(function("main", "out = R.nn.relu(x)\nreturn out"))
    with pytest.raises(ModelError, match="'x' has a fixed length; use batch 1"):
        autosplit.load_model(fixed, {"x": (2, 3)}).at_batch(3)


def test_a_size_that_follows_from_another_may_be_given_too():
    params = "x: R.Tensor(('n', 4), 'float32'), y: R.Tensor(('n * 2', 4), 'float32')"
    body = "n = T.int64()\nout = R.concat((x, y), axis=0)\nreturn out"
    source = module(function("main", body, params))
    model = autosplit.load_model(source, {"x": (3, 4), "y": (6, 4)})
    assert [i.shape for i in model.lowered.inputs] == [(3, 4), (6, 4)]
    with pytest.raises(ConfigError, match="axis 0, which the model fixes to 6"):
        autosplit.load_model(source, {"x": (3, 4), "y": (7, 4)})


@pytest.mark.parametrize("functions", [("main",), ("main", "a"), ("main", "a", "b")])
def test_a_function_that_calls_itself_is_refused_by_name(functions):
    text = "@I.ir_module\nclass M:\n"
    for name, called in zip(functions, (*functions[1:], functions[-1]), strict=True):
        text += f"""    @R.function
    def {name}(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y: R.Tensor((4,), "float32") = M.{called}(x)
        return y
"""
    with pytest.raises(ModelError, match=rf"functions? .*{functions[-1]}"):
        autosplit.load_model(parsed(text))


def test_an_index_out_of_bounds_is_judged_without_reading_foreign_memory():
    params = "i: R.Tensor((3,), 'int64'), t: R.Tensor((4, 2), 'float32')"
    main = function("main", "y = R.take(t, i, axis=0)\nreturn y", params)
    model = autosplit.load_model(module(main))
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    (outputs,) = model.expected([{"i": np.array([1, 1 << 40, -1]), "t": table}])
    assert outputs["y"][:2].tolist() == table[[1, 3]].tolist()
