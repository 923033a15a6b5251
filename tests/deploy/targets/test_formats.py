import json

import pytest

from autosplit.deploy import manifest_file
from autosplit.deploy.targets import cpp_program
from autosplit.errors import ConfigError
from tests.deploy import exports
from tests.deploy.exports import add_program


def test_an_unknown_format_is_refused_with_the_nearest(branches, tmp_path):
    with pytest.raises(ConfigError, match="unknown format 'onx'; did you mean 'onnx'"):
        branches.split([["first"]]).export(tmp_path / "out", format="onx")
    assert not (tmp_path / "out").exists()


def place(*devices):
    """A change: the stages are OpenVINO's, on some devices."""

    def change(document):
        for stage, device in zip(document["stages"], devices, strict=True):
            stage.update(runtime="openvino", replicas=[{"device": device}])

    return change


STATES = {"file": "states.npz", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("onnx", lambda d: d.update(batch=2), "computes 2 items at once; use format 'native'"),
        ("onnx", lambda d: d.update(initial=STATES), "format 'onnx' cannot run .* begin at zero"),
        ("onnx", lambda d: d.update(exports.sound("bfloat16")), "of types that numpy lacks; use"),
        ("cpp", lambda d: d.update(initial=STATES), "format 'cpp' cannot run .* begin at zero"),
        ("onnx", lambda d: d["stages"][1].update(onnx_absent="no 'a'"), "stage 1 has no ONNX file"),
        ("cpp", place("cores:0", "cuda:0", "cores:0"), "stage 1 is on 'cuda:0'; the cpp format"),
        ("cpp", place("cores:0,1", "cores:2", "cores:2,3"), "not on cores:0,1 and cores:2,3; use"),
        ("cpp", lambda d: d.update(exports.sound("float8_none")), "float8_none, .*; use native"),
    ],
)
def test_a_format_refuses_what_it_cannot_run_and_writes_nothing(tmp_path, name, change, reason):
    document = exports.sound()
    for number in (0, 2):
        onnx = {"file": f"stage{number}.onnx", "sha256": "0" * 64}
        document["stages"][number]["onnx"] = onnx
    change(document)
    folder = exports.write_export(tmp_path, "stage{}.so", "tvm")
    (folder / "split.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=reason):
        add_program(tmp_path, name)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("dtype", "code"), [("bfloat16", "<V2"), ("float8_e4m3fn", "<V1"), ("int8", "|i1")]
)
def test_the_types_of_arrays_are_those_that_numpy_saves(tmp_path, dtype, code):
    document = manifest_file.parse(json.dumps(exports.sound(dtype)).encode(), "split.json")
    folder = exports.write_export(tmp_path, "stage{}.so", "tvm")
    files = cpp_program.files(document, folder)
    wiring = files["wiring.cpp"].decode()
    assert f'"x", "{dtype}", "{code}", {{2, 3}}' in wiring


def test_the_cpp_format_runs_openvino_on_one_set_of_several_cores(export):
    export.edit(place("cores:0,1", "cores:2", "cores:0,1"))
    add_program(export.folder, "cpp")


@pytest.mark.parametrize(
    ("value", "code"),
    [("net", '"net"'), ('a"; system("x', '"a\\042; system(\\042x"'),
     ("\\\n?é1", '"\\134\\012\\077\\303\\2511"'), ([1, ("x", [])], '{1, {"x", {}}}')],
)  # fmt: skip
def test_values_are_written_as_cpp_reads_them(value, code):
    assert cpp_program.initialiser(value) == code


def test_an_export_without_onnx_models_has_no_onnx_format(branches, tmp_path):
    split, folder = branches.split([["first"]]), tmp_path / "out"
    split.export(folder, format="onnx")
    assert (folder / "pipeline.json").exists()
    before = sorted(folder.iterdir())
    with pytest.raises(ConfigError, match=r"stage 0 has no ONNX file: .*--no-onnx"):
        split.export(folder, format="onnx", onnx=False)
    assert sorted(folder.iterdir()) == before
    split.export(folder, format="cpp", onnx=False)
    assert not list(folder.glob("*.onnx"))
    # The program of the export before has gone with its stages.
    assert not (folder / "pipeline.json").exists()
    assert (folder / "CMakeLists.txt").exists()
