"""Relax modules as objects and files: names, dynamic sizes, element types."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import autosplit
from autosplit.errors import ConfigError, ModelError
from autosplit.frontend.relax import file
from autosplit.hardware.measurement.parity import compare

SCRIPT = """
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

@I.ir_module
class Module:
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

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 3), "float32")):
        cls = Module
        with R.dataflow():
            twice = R.call_tir(cls.doubled, (x,), out_ty=R.Tensor((4, 6), "float32"))
            parts = R.split(twice, 2, axis=1)
            left = parts[0]
            right = parts[1]
            joined = R.concat((right, left), axis=1)
            product = R.matmul(joined, w)
            short = R.nn.relu(left)
            R.output(product, short)
        return (product, short)
"""


def numpy_reference(item):
    twice = 2 * item["x"]
    return {
        "product": np.hstack(np.hsplit(twice, 2)[::-1]) @ item["w"],
        "short": np.maximum(twice[:, :3], 0),
    }


@pytest.fixture
def script(tmp_path):
    def write(text=SCRIPT, name="net.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def run(split, items):
    with split.pipeline() as pipeline:
        return pipeline.run(items)


def test_a_tvmscript_file_is_split_by_the_names_of_its_variables(script):
    model = autosplit.load_model(script())
    split = model.split([["twice"], ["joined", "short"]])
    items = model.items(3)
    accuracy = compare(run(split, items), [numpy_reference(i) for i in items])
    assert accuracy.equal, accuracy
    assert {n for op in model.graph.ops for n in (*op.sources, *op.parts)} == {
        "twice",
        "parts",
        "joined",
        "product",
        "short",
    }


def test_the_judge_runs_the_module_unfused(script):
    model = autosplit.load_model(script())
    items = model.items(2)
    assert compare(model.expected(items), [numpy_reference(i) for i in items]).equal
    assert "TVM" in model.reference.name


def test_a_saved_module_and_the_object_are_the_same_model(script):
    import tvm

    module = file.read(script())
    saved = script(tvm.ir.save_json(module), "net.json")
    graphs = [autosplit.load_model(m).graph for m in (script(), saved, module)]
    assert [g.ops for g in graphs[1:]] == [graphs[0].ops] * 2


def test_a_saved_module_is_read_in_a_process_that_has_used_nothing_of_relax_before(script):
    import tvm

    code = "import pathlib, sys\nfrom autosplit.frontend.relax import file\n"
    code += "file.read(pathlib.Path(sys.argv[1]))"
    saved = script(tvm.ir.save_json(file.read(script())), "net.json")
    subprocess.run([sys.executable, "-c", code, str(saved)], check=True)


def test_constants_printed_with_the_script_are_weights(script):
    from tvm import relax

    weight = np.arange(24, dtype=np.float32).reshape(4, 6)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, relax.const(weight)))
        builder.emit_func_output(result)
    model = autosplit.load_model(script(builder.get().script(show_meta=True)))
    (item,) = model.items(1)
    (output,) = model.expected([item])[0].values()
    np.testing.assert_allclose(output, item["x"] + weight)
    assert [i.name for i in model.lowered.inputs] == ["x"]


def test_an_exported_relax_model_is_verified_with_its_file(script, tmp_path):
    from autosplit.deploy.verify import verify

    path = script()
    autosplit.load_model(path).split([["twice"]]).export(tmp_path / "out")
    result = verify(tmp_path / "out", path)
    assert result.accuracy.equal
    assert "TVM without fusion" in result.reference


def test_dynamic_sizes_are_bound_by_shape(script):
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            sum = R.add(x, y)
            out = R.nn.relu(sum)
            R.output(out)
        return out
"""
    model = autosplit.load_model(script(text), {"x": (3, 4)})
    assert [i.shape for i in model.lowered.inputs] == [(3, 4), (3, 4)]
    (item,) = model.items(1)
    (got,) = run(model.split([]), [item])
    np.testing.assert_allclose(
        next(iter(got.values())), np.maximum(item["x"] + item["y"], 0), rtol=1e-6
    )
    with pytest.raises(ModelError, match="--shape x=1x4"):
        autosplit.load_model(script(text))
    for shapes, problem in (
        ({"x": (3, 5)}, "axis 1"),
        ({"z": (3,)}, "'z'"),
        ({"x": (3,)}, "rank 1"),
        ({"x": (2, 4), "y": (3, 4)}, "axis 0"),
    ):
        with pytest.raises(ConfigError, match=problem):
            autosplit.load_model(script(text), shapes)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bool"])
def test_element_types_cross_a_cut_unchanged(dtype):
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 4), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            crossing = builder.emit(relax.op.flip(x, axis=0), "crossing")
            result = builder.emit(relax.op.permute_dims(crossing), "result")
            both = builder.emit_output(relax.Tuple([crossing, result]))
        builder.emit_func_output(both)
    model = autosplit.load_model(builder.get())
    split = model.split([["crossing"]])
    (item,) = model.items(1, seed=3)
    (got,) = run(split, [item])
    assert [c.stages for c in model.wiring(split.stages).connections if c.tensor == "crossing"] == [
        (1,)
    ]
    assert model.graph.tensors["crossing"].dtype == dtype == str(got["result"].dtype)
    np.testing.assert_array_equal(got["result"], item["x"][::-1].T)


def test_control_flow_is_refused_by_name(script):
    text = """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        if c:
            chosen = R.add(x, x)
        else:
            chosen = R.multiply(x, x)
        return chosen
"""
    with pytest.raises(ModelError, match=r"'chosen'.*control flow"):
        autosplit.load_model(script(text))


@pytest.mark.parametrize("functions", [("main",), ("main", "a"), ("main", "a", "b")])
def test_a_function_that_calls_itself_is_refused_by_name(script, functions):
    text = "@I.ir_module\nclass M:\n"
    for name, called in zip(functions, (*functions[1:], functions[-1]), strict=True):
        text += f"""    @R.function
    def {name}(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y: R.Tensor((4,), "float32") = M.{called}(x)
        return y
"""
    with pytest.raises(ModelError, match=rf"functions? .*{functions[-1]}"):
        autosplit.load_model(script(text))


def test_an_index_out_of_bounds_is_judged_without_reading_foreign_memory(script):
    text = """
@I.ir_module
class M:
    @R.function
    def main(i: R.Tensor((3,), "int64"), t: R.Tensor((4, 2), "float32")):
        y = R.take(t, i, axis=0)
        return y
"""
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    (outputs,) = autosplit.load_model(script(text)).expected(
        [{"i": np.array([1, 1 << 40, -1]), "t": table}]
    )
    assert outputs["y"][:2].tolist() == table[[1, 3]].tolist()


BODY = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), 'float32')):
        y = {}
        return y
"""


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').getcwd()",
        "open('/etc/passwd')",
        "tvm.runtime.load_module('a.so')",
        "R.nn",
        "R",
        "R.emit_te(x, x)",
        "R.rewriter.x(x)",
        "T.utils.os(x)",
        "x.__class__",
        "(lambda: x)()",
        "[x for x in (x,)][0]",
        "eval('x')",
        "R.call_pure_packed('vm.builtin.copy', x, ty_args=R.Tensor((4,), 'float32'))",
        "R.call_dps_packed('system', (x,), out_ty=R.Tensor((4,), 'float32'))",
    ],
)
def test_a_script_that_nobody_vouches_for_runs_no_python(script, expression):
    with pytest.raises(ModelError):
        autosplit.load_model(script(BODY.format(expression)))


RUN = "__import__('pathlib').Path({marker!r}).touch()"


@pytest.mark.parametrize(
    "line",
    [
        "eval = eval({code!r})",
        "for eval({code!r})[0] in (1,):\n            eval = x",
        "eval({code!r})[0] = eval = x",
        "y: R.Tensor(({code!r},), 'float32') = x",
        "y = R.match_cast(x, R.Tensor(({code!r},), 'float32'))",
        "y = R.match_cast(x, R.Shape([{code!r}]))",
        "y: R.Tensor(('__imp' + {rest!r},), 'float32') = x",
        "n = '__imp'\n        m = n + {rest!r}\n        y: R.Tensor((m,), 'float32') = x",
        "y = R.const(1.0).data.numpy().tofile({marker!r})",
        "tofile = M\n        y = x.tofile({marker!r})",
        "y = T.call_kernel('int x;', [[1], [1]], kernel_name='k')",
    ],
)
def test_a_script_that_hides_python_runs_none(script, tmp_path, line):
    marker = str(tmp_path / "marker")
    code = RUN.format(marker=marker)
    hidden = line.format(code=code, rest=code[5:], marker=marker)
    text = BODY.format(f"x\n        {hidden}")
    with pytest.raises(ModelError):
        autosplit.load_model(script(text))
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("place", ["'{code}', 4", "{code!r}, 4", "'__imp' + {rest!r}, 4"])
def test_a_script_that_hides_python_in_the_shape_of_an_input_runs_none(script, tmp_path, place):
    code = RUN.format(marker=str(tmp_path / "marker"))
    shape = place.format(code=code.replace("'", '"'), rest=code[5:])
    with pytest.raises(ModelError):
        autosplit.load_model(script(BODY.format("x").replace("4,", shape)))
    assert not (tmp_path / "marker").exists()


def test_a_variable_may_have_the_name_of_a_builtin(script):
    text = BODY.format("x\n        sum = R.add(x, x)\n        input = R.nn.relu(sum)")
    text = text.replace("return y", "return input")
    graph = autosplit.load_model(script(text)).graph
    assert {n for op in graph.ops for n in (*op.sources, *op.parts)} == {"sum", "input"}


def test_a_kernel_that_calls_the_c_library_is_refused(script):
    text = SCRIPT.replace(
        "a[vi, vj] * T.float32(2)", 'T.call_pure_extern("float32", "rand", a[vi, vj])'
    )
    with pytest.raises(ModelError, match=r"tirx\.call_pure_extern"):
        autosplit.load_model(script(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no module"),
        ("x = 1\n", "cannot be parsed|no module"),
        ("def (", "is not TVMScript"),
        ("import os\n", "forbidden import"),
        (
            "@I.ir_module\nclass M:\n    @R.function\n"
            "    def other(x: R.Tensor((4,), 'float32')):\n        return x\n",
            "'main'",
        ),
    ],
)
def test_what_is_no_module_is_one_line(script, text, problem):
    with pytest.raises(ModelError, match=problem):
        autosplit.load_model(script(text))


def test_json_that_is_no_module_is_one_line(script):
    for text in ("", "{", "[1]", '{"root_index": 0, "nodes": [{"type": "int", "data": 4}]}'):
        with pytest.raises(ModelError, match="save"):
            autosplit.load_model(script(text, "net.json"))
