"""A Relax module that is not trusted runs nothing that it brings along: it is Relax ops alone."""

import json

import pytest

import autosplit
from autosplit.cli import main
from autosplit.errors import AutosplitError, ModelError
from autosplit.frontend.relax.saved_module import load, require_data
from tests.relax_nets import parsed

MODULE = """
@I.ir_module
class Module:
    {module}
    {kernel}
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        {function}
        with R.dataflow():
            one = R.const(1.0, "float32")
            twice = {call}
            out = R.add(x, twice)
            R.output(out)
        return out
"""
KERNEL = """@T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((), "float32"), b: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(T.int64(4)):
            with T.sblock("b"):
                vi = T.axis.spatial(T.int64(4), i)
                b[vi] = a[()] + T.float32(1)
"""
KERNEL_CALL = "R.call_tir(Module.kernel, (one,), out_ty=R.Tensor((4,), 'float32'))"


def module(**parts):
    empty = dict.fromkeys(("module", "kernel", "function"), "")
    return parsed(MODULE.format(**{**empty, "call": "R.acos(one)", **parts}))


def test_a_module_with_a_kernel_is_refused_with_the_option_that_trusts_it(tmp_path, capsys):
    import tvm

    kernel = module(kernel=KERNEL, call=KERNEL_CALL)
    (path := tmp_path / "net.json").write_text(tvm.ir.save_json(kernel), encoding="utf-8")
    assert main(["inspect", str(path)]) == 2
    error = capsys.readouterr().err
    assert "kernel 'kernel' of its own" in error
    assert "--trust-kernels" in error
    assert error.count("\n") == 1
    assert main(["inspect", str(path), "--trust-kernels"]) == 0
    with pytest.raises(ModelError, match="trust_kernels=True"):
        autosplit.load_model(kernel)
    (item,) = (model := autosplit.load_model(kernel, trust_kernels=True)).items(1)
    (output,) = model.expected([item])[0].values()
    assert output.tolist() == pytest.approx(item["x"] + 2)


@pytest.mark.parametrize("attributes", ["", "R.func_attr({'Primitive': 1, 'num_input': 1})"])
def test_a_module_of_relax_ops_is_read(attributes):
    require_data(module(function=attributes))
    assert autosplit.load_model(module()).graph.outputs


@pytest.mark.parametrize(
    ("parts", "name"),
    [({"kernel": KERNEL}, "kernel"), ({"function": "R.func_attr({'Codegen': 'mine'})"}, "Codegen"),
     ({"module": "I.module_attrs({'external_mods': []})"}, "external_mods"),
     ({"module": "I.module_global_infos({'vdevice': [I.vdevice('llvm')]})"}, "vdevice|Target"),
     ({"call": "R.call_dps_packed('f', (x,), out_ty=R.Tensor((4,), 'float32'))"}, "packed|'f'"),
     ({"call": "R.call_tir('system', (x,), out_ty=R.Tensor((4,), 'float32'))"}, "system"),
     ({"call": "R.call_pure_packed('f', x, ty_args=R.Tensor((4,), 'float32'))"}, "packed|'f'"),
     ({"call": "R.to_vdevice(x, 'llvm')"}, "vdevice|Target"),
     ({"call": "R.print(x, format='{}')"}, "print")],
    ids=str,
)  # fmt: skip
def test_what_may_run_code_is_refused_by_name(parts, name):
    try:
        unlisted = module(**parts)
    except Exception:
        pytest.skip("TVM itself refuses to write this")
    with pytest.raises(ModelError, match=name):
        require_data(unlisted)


@pytest.mark.parametrize("kind", ["ffi.Module", "ffi.Function", "target.Target", "mine.Type"])
def test_a_json_file_with_a_node_that_acts_on_load_is_refused(kind):
    document = {"root_index": 0, "nodes": [{"type": kind, "data": "x"}]}
    with pytest.raises(ModelError, match=kind):
        load(json.dumps(document))


def saved():
    import tvm

    return json.loads(tvm.ir.save_json(module()))


def node_of(document, kind):
    return next(node for node in document["nodes"] if node["type"] == kind)


def test_a_circle_and_nothing_for_an_expression_are_refused_before_tvm_follows_them():
    document = saved()
    node_of(document, "ir.Call")["data"]["args"] = len(document["nodes"]) - 1
    with pytest.raises(ValueError, match="not to an earlier one"):
        load(json.dumps(document))
    document = saved()
    nothing = next(i for i, node in enumerate(document["nodes"]) if node["type"] == "None")
    for node in document["nodes"]:
        if node["type"] == "relax.ShapeType" and document["nodes"][node["data"]["values"]]["data"]:
            document["nodes"][node["data"]["values"]]["data"][0] = nothing
            break
    with pytest.raises(ValueError, match="nothing as its items"):
        load(json.dumps(document))


@pytest.mark.parametrize("index", [False, True])
def test_a_truth_value_is_the_node_that_tvm_takes_it_for(index):
    circle = {"type": "ir.TupleType", "data": {"span": index, "fields": index}}
    nodes = [{"type": "None"}, circle] if index else [circle]
    with pytest.raises(ValueError, match="not to an earlier one"):
        load(json.dumps({"root_index": int(index), "nodes": nodes}))


def test_a_module_that_nests_too_deep_is_refused():
    nodes = [{"type": "ffi.Array", "data": []}]
    nodes += [{"type": "ffi.Array", "data": [i]} for i in range(5000)]
    with pytest.raises(ModelError, match="nests more than"):
        load(json.dumps({"root_index": 5000, "nodes": nodes}))


@pytest.mark.parametrize("place", [0, 16, 20, 24, 29, 40])
def test_a_tensor_whose_header_does_not_fit_its_data_is_refused(place):
    import base64

    document = saved()
    node = node_of(document, "ffi.Tensor")
    content = bytearray(base64.b64decode(node["data"]))
    content[min(place, len(content) - 1)] ^= 0x7F
    node["data"] = base64.b64encode(content + b"0" * (place == 40)).decode()
    with pytest.raises(ValueError, match="tensor"):
        load(json.dumps(document))


def test_a_key_that_is_there_twice_is_read_once():
    """TVM gets the document as it was checked, whichever value its own parser would take."""
    plain = json.dumps(saved())
    twice = plain.replace('"data": "relax.acos"', '"data": "relax.print", "data": "relax.acos"')
    assert twice != plain
    require_data(load(twice))


@pytest.mark.parametrize("name", ["a b", "a/../b", "a;b", "a\n", "\ud800", "x" * 300, ""])
def test_a_function_has_an_identifier_as_its_name(name):
    document = saved()
    for node in document["nodes"]:
        if node == {"type": "ffi.String", "data": "main"}:
            node["data"] = name
    with pytest.raises(AutosplitError, match="identifier"):
        load(json.dumps(document))
