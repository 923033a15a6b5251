"""A Relax module runs nothing that it brings along: what is not listed is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autosplit.errors import AutosplitError, ModelError
from autosplit.frontend import importing
from autosplit.frontend.relax import script
from autosplit.frontend.relax.saved_module import load_harmless, require_harmless

MODULE = """
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

@I.ir_module
class Module:
    {module}
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((), "float32"), b: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({{"tirx.noalias": True, {attribute}}})
        for i in T.serial(T.int64(4), annotations={{{loop}}}):
            with T.sblock("b"):
                vi = T.axis.spatial(T.int64(4), i)
                T.sblock_attr({{{block}}})
                {store}

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        {function}
        with R.dataflow():
            one = R.const(1.0, "float32")
            twice = {call}
            out = R.add(x, twice)
            R.output(out)
        return out
"""
STORE = "b[vi] = T.acos(a[()])"
CALL = "R.call_tir(cls.kernel, (one,), out_ty=R.Tensor((4,), 'float32'))"
# TVM compiles this text into the kernel's library, where it is what computes acos.
LLVM = """@command = private constant [{size} x i8] c"{command}\\00"
declare i32 @system(ptr)
define float @acosf(float %x) {{
  %status = call i32 @system(ptr @command)
  ret float %x
}}
"""


def text(**parts: str) -> str:
    empty = dict.fromkeys(("module", "attribute", "loop", "block", "function"), "")
    return MODULE.format(**{**empty, "store": STORE, "call": CALL, **parts})


def parsed(source: str) -> Any:
    """The module as TVM itself parses it, with no check of ours."""
    import tvm
    from tvm.script.parser.core.entry import _default_globals

    body = source[source.index("@I.ir_module") :]
    return tvm.script.from_source(body, dict(_default_globals()))


def as_script(source: str, folder: Path) -> Path:
    path = folder / "net.py"
    path.write_text(source, encoding="utf-8")
    return path


def as_json(source: str, folder: Path) -> Path:
    import tvm

    path = folder / "net.json"
    path.write_text(tvm.ir.save_json(parsed(source)), encoding="utf-8")
    return path


def as_object(source: str, folder: Path) -> Any:
    return parsed(source)


Form = Callable[[str, Path], Any]
FORMS = pytest.mark.parametrize("form", [as_script, as_json, as_object])


def llvm_that_touches(marker: Path) -> str:
    command = f"touch {marker}"
    return repr(LLVM.format(command=command, size=len(command) + 1))


PLACES = {
    "store": lambda code: f"with T.attr(0, 'pragma_import_llvm', {code}):\n" + " " * 20 + STORE,
    "loop": lambda code: f"'pragma_import_llvm': {code}",
    "block": lambda code: f"'pragma_import_llvm': {code}",
}


@FORMS
@pytest.mark.parametrize("place", PLACES)
def test_llvm_code_in_a_kernel_is_not_run(form: Form, place: str, tmp_path: Path) -> None:
    import autosplit

    marker = tmp_path / "marker"
    model = form(text(**{place: PLACES[place](llvm_that_touches(marker))}), tmp_path)
    with pytest.raises(ModelError, match=r"'kernel'.*'pragma_import_llvm'"):
        autosplit.load_model(model)
    assert not marker.exists()


@FORMS
@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"store": "b[vi] = T.call_extern('float32', 'rand')"}, "tirx.call_extern"),
        ({"store": "b[vi] = T.call_pure_extern('float32', 'rand')"}, "tirx.call_pure_extern"),
        ({"store": "T.evaluate(T.call_packed('system', 1))"}, "tirx.tvm_call_packed"),
        ({"store": "T.evaluate(T.call_cpacked('system', 1))"}, "tirx.tvm_call_cpacked"),
        (
            {"store": "b[vi] = T.call_llvm_pure_intrin('float32', 'llvm.sqrt.f32', a[()])"},
            "tirx.call_llvm_pure_intrin",
        ),
        (
            {"store": "b[vi] = T.call_llvm_intrin('float32', 'llvm.sqrt.f32', a[()])"},
            "tirx.call_llvm_intrin",
        ),
        ({"store": "T.evaluate(T.address_of(b[0]))"}, "address_of|PointerType"),
        ({"store": "with T.attr(0, 'pragma_import_c', 'x'):\n" + " " * 20 + STORE}, "import_c"),
        ({"loop": "'pragma_import_c': 'int x;'"}, "pragma_import_c"),
        ({"block": "'schedule_rule': 'runtime.ModuleLoadFromFile'"}, "schedule_rule"),
        ({"attribute": "'target': T.target('llvm')"}, "target"),
        ({"attribute": "'calling_conv': 2"}, "calling_conv"),
        ({"function": "R.func_attr({'Codegen': 'mine'})"}, "Codegen"),
        ({"module": "I.module_attrs({'external_mods': []})"}, "external_mods"),
        ({"module": "I.module_global_infos({'vdevice': [I.vdevice('llvm')]})"}, "vdevice|Target"),
        ({"call": "R.call_dps_packed('f', (x,), out_ty=R.Tensor((4,), 'float32'))"}, "packed|'f'"),
        ({"call": "R.call_tir('system', (x,), out_ty=R.Tensor((4,), 'float32'))"}, "system"),
        ({"call": "R.call_pure_packed('f', x, ty_args=R.Tensor((4,), 'float32'))"}, "packed|'f'"),
    ],
    ids=str,
)
def test_what_is_not_listed_is_refused_by_name(
    form: Form, parts: dict[str, str], name: str, tmp_path: Path
) -> None:
    try:
        model = form(text(**parts), tmp_path)
    except Exception:
        pytest.skip("TVM itself refuses to write this")
    with pytest.raises(ModelError, match=name):
        importing.read(model, {})


@FORMS
@pytest.mark.parametrize("store", ["b[vi + T.int64(4)] = a[()]", "b[vi - T.int64(1)] = a[()]"])
def test_a_store_outside_of_a_buffer_is_refused(form: Form, store: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="outside of a buffer"):
        importing.read(form(text(store=store), tmp_path), {})


@FORMS
def test_a_plain_kernel_is_read(form: Form, tmp_path: Path) -> None:
    plain = text(
        loop="'pragma_auto_unroll_max_step': 16",
        block="'schedule_rule': 'meta_schedule.pool_max'",
        attribute="'op_pattern': 0",
    )
    source = importing.read(form(plain, tmp_path), {})
    assert [node.name for node in source.nodes] == ["twice", "out"]


def test_the_constants_of_a_script_are_checked_before_they_are_loaded() -> None:
    document = {"root_index": 0, "nodes": [{"type": "ffi.Module", "data": ""}]}
    metadata = f"metadata = tvm.ir.load_json({json.dumps(document)!r})\n"
    with pytest.raises(ModelError, match=r"ffi\.Module"):
        script.parse(metadata + text())


@pytest.mark.parametrize(
    "kind", ["ffi.Module", "ffi.Function", "ir.EnvFunc", "target.Target", "mine.Type"]
)
def test_a_json_file_with_a_node_that_acts_on_load_is_refused(kind: str) -> None:
    document = {"root_index": 0, "nodes": [{"type": kind, "data": "x"}]}
    with pytest.raises(ModelError, match=kind):
        load_harmless(json.dumps(document))


def saved() -> dict[str, Any]:
    import tvm

    document: dict[str, Any] = json.loads(tvm.ir.save_json(parsed(text())))
    return document


def node_of(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(node for node in document["nodes"] if node["type"] == kind)


def test_a_reference_in_a_circle_is_refused_before_tvm_follows_it() -> None:
    document = saved()
    node_of(document, "ir.Call")["data"]["args"] = len(document["nodes"]) - 1
    with pytest.raises(ValueError, match="not to an earlier one"):
        load_harmless(json.dumps(document))


def test_nothing_in_place_of_an_expression_is_refused_before_tvm_follows_it() -> None:
    document = saved()
    nothing = next(i for i, node in enumerate(document["nodes"]) if node["type"] == "None")
    for node in document["nodes"]:
        if node["type"] == "relax.ShapeType" and document["nodes"][node["data"]["values"]]["data"]:
            document["nodes"][node["data"]["values"]]["data"][0] = nothing
            break
    with pytest.raises(ValueError, match="nothing as its items"):
        load_harmless(json.dumps(document))


def test_a_module_that_nests_too_deep_is_refused() -> None:
    nodes: list[dict[str, Any]] = [{"type": "ffi.Array", "data": []}]
    nodes += [{"type": "ffi.Array", "data": [i]} for i in range(5000)]
    with pytest.raises(ModelError, match="nests more than"):
        load_harmless(json.dumps({"root_index": 5000, "nodes": nodes}))


@pytest.mark.parametrize("place", [0, 16, 20, 24, 29, 40])
def test_a_tensor_whose_header_does_not_fit_its_data_is_refused(place: int) -> None:
    import base64

    document = saved()
    node = node_of(document, "ffi.Tensor")
    content = bytearray(base64.b64decode(node["data"]))
    content[min(place, len(content) - 1)] ^= 0x7F
    node["data"] = base64.b64encode(content + b"0" * (place == 40)).decode()
    with pytest.raises(ValueError, match="tensor"):
        load_harmless(json.dumps(document))


def test_a_key_that_is_there_twice_is_read_once() -> None:
    """TVM gets the document as it was checked, whichever value its own parser would take."""
    plain = json.dumps(saved())
    twice = plain.replace('"data": "tirx.acos"', '"data": "tirx.call_extern", "data": "tirx.acos"')
    assert twice != plain
    require_harmless(load_harmless(twice))


@pytest.mark.parametrize("name", ["a b", "a/../b", "a;b", "a\n", "\ud800", "x" * 300, ""])
def test_a_function_has_an_identifier_as_its_name(name: str) -> None:
    document = saved()
    for node in document["nodes"]:
        if node == {"type": "ffi.String", "data": "kernel"}:
            node["data"] = name
    with pytest.raises(AutosplitError, match="identifier"):
        load_harmless(json.dumps(document))
