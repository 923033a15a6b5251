"""Every way a model file can be wrong ends in one line that names the thing, and in exit code 2."""

import os

import ml_dtypes
import numpy as np
import onnx
import pytest

from autosplit import api
from autosplit.errors import ModelError
from autosplit.files import sha256
from autosplit.frontend.importing import digest
from tests.build import node, onnx_model, value

ONES = np.ones((1, 4), np.float32)


@pytest.fixture
def refused(said, save):
    """Inspect a model that must be refused; returns the line that was said."""

    def run(model, *options):
        file = model if isinstance(model, os.PathLike) else save(model)
        code, line = said("inspect", file, *options)
        assert code == 2
        return line

    return run


SEQUENCE = onnx.helper.make_tensor_sequence_value_info("x", 1, None)
RELU, WIDE = node("Relu", "x", "y"), {"w": np.ones((1, 5), np.float32)}


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (onnx_model([RELU, node("Fancy", "y", "z", "n7")], outputs=["z"]),
         "node 'n7' (Fancy) cannot be imported: TVM's importer has no Fancy; onnxruntime"),
        (onnx_model([node("Relu", "x", "y", domain="acme")]),
         "node 'y' (Relu) cannot be imported: TVM's importer has no acme.Relu;"),
        (onnx_model([node("Loop", "x", "y", "n")]),
         "node 'n' (Loop) cannot be imported: TVM's importer has no Loop;"),
        (onnx_model([], outputs=["x"]), "a graph without nodes"),
        (onnx_model([RELU], outputs=[]), "a graph without outputs"),
        (onnx.ModelProto(graph=onnx_model([RELU]).graph), "holds no graph with an opset version"),
        (onnx_model([node("Relu", "nope", "y")]), "node 'y' reads 'nope', which no earlier node"),
        (onnx_model([node("Add", "x b", "a"), node("Exp", "a", "b")], outputs=["b"]),
         "node 'a' reads 'b', which no earlier node makes"),
        (onnx_model([RELU, node("Exp", "x", "y", "n")]), "node 'n' makes 'y', which exists"),
        (onnx_model([node("Relu", "x", "x", "n")], outputs=["x"]),
         "node 'n' makes 'x', which exists already"),
        (onnx_model([RELU], outputs=["y", "z"]), "no node makes output 'z'"),
        (onnx_model([RELU], [value("x"), value("x")]), "tensor 'x' appears twice"),
        (onnx_model([node("Add", "x w", "y", "sum")], weights=WIDE),
         "node 'sum' (Add) cannot be imported: the first input shape at dim 1 is"),
        (onnx_model([RELU], [value("x", (1,), "STRING")]), "input 'x' has no numeric element type"),
        (onnx_model([RELU], [value("x", (1,), "UNDEFINED")]), "'x' has no numeric element type"),
        (onnx_model([RELU], weights={"w": np.array(["a"], object)}), "weight 'w' is STRING, which"),
        (onnx_model([RELU], weights={"w": np.ones(2, ml_dtypes.int4)}), "weight 'w' is INT4"),
        (onnx_model([RELU], [SEQUENCE]), "input 'x' is a sequence_type"),
        (onnx_model([RELU], [onnx.ValueInfoProto(name="x")]), "input 'x' is a value without"),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_be_split_is_refused_by_name(refused, model, line):
    assert line in refused(model)


@pytest.mark.parametrize("kind", ["INT64", "STRING", "UNDEFINED"])
@pytest.mark.parametrize("name", ["y", "z"])
def test_a_tensor_that_is_declared_as_another_type_is_refused(refused, name, kind):
    kinds = {"y": "FLOAT", "z": "FLOAT", name: kind}
    model = onnx_model([RELU, node("Exp", "y", "z")], outputs=[value("z", None, kinds["z"])])
    model.graph.value_info.append(value("y", None, kinds["y"]))
    line = f"tensor '{name}' is declared as {kind.lower()}, but its node makes float32"
    assert line in refused(model)


@pytest.mark.parametrize("name", ["x", "w"])
def test_what_is_declared_of_an_input_or_a_weight_elsewhere_counts_for_nothing(save, name):
    model = onnx_model([node("Add", "x w", "y")], weights={"w": ONES})
    model.graph.value_info.append(value(name, (1, 4), "INT64"))
    assert api.load_model(save(model)).graph.outputs == ("y",)


def test_functions_are_inlined_before_their_nodes_are_looked_at(refused):
    model = onnx_model([node("Twice", "x", "y", domain="acme")])
    body = [node("Relu", "a", "t"), node("Fancy", "t", "b")], model.opset_import
    model.functions.append(onnx.helper.make_function("acme", "Twice", ["a"], ["b"], *body))
    assert refused(model).startswith("node 'b__1' (Fancy) cannot be imported")


def dynamic(*shapes):
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = [node("Relu", name, f"y{i}") for i, name in enumerate(names)]
    return onnx_model(nodes, list(map(value, names, shapes)), [f"y{i}" for i in range(len(shapes))])


@pytest.mark.parametrize(
    ("shape", "text", "example"),
    [(("rows", 4), "(rows, 4)", (1, 4)), (("n", "n"), "(n, n)", (1, 1)),
     ((4, None), "(4, ?)", (4, 1)), (None, "(of unknown rank)", (1, 3, 224, 224))],
)  # fmt: skip
def test_a_dynamic_shape_says_which_input_and_how_to_give_it(refused, shape, text, example):
    assert refused(dynamic(shape)) == (
        f"input 'x0' has a dynamic shape {text}; give it, e.g. --shape "
        f"x0={'x'.join(map(str, example))}, in Python shapes={ {'x0': example} }"
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [(["x=1x4"], "shapes name 'x', but the model's inputs are 'x0', 'x1'"),
     (["x0=1x4x4"], "shape x0=1x4x4 has rank 3, but the input has rank 2: (n, 4)"),
     (["x0=4"], "shape x0=4 has rank 1"), (["x0="], "shape x0= has rank 0"),
     (["x0=0x4"], "shape x0=0x4 has size 0 at axis 0; sizes start at 1"),
     (["x0=2x5"], "shape x0=2x5 differs at axis 1, which the model fixes to 4"),
     (["x0=2x4", "x1=3x8"], "shape x1=3x8 differs at axis 0, which the model fixes to 2")],
)  # fmt: skip
def test_a_shape_that_does_not_fit_says_why(refused, options, line):
    flags = [part for text in options for part in ("--shape", text)]
    assert line in refused(dynamic(("n", 4), ("n", 8)), *flags)


@pytest.mark.parametrize(
    ("declared", "shapes", "expected"),
    [*(([(size, 4), (size, 8)], {}, [(1, 4), (1, 8)]) for size in ("N", "batch_size", None)),
     ([("n", 4), ("n", 8)], {"x0": (3, 4)}, [(3, 4), (3, 8)]),
     *(([None], {"x0": shape}, [shape]) for shape in ((), (5,), (2, 3, 4)))],
)  # fmt: skip
def test_open_sizes_are_those_of_one_item_or_as_said(save, declared, shapes, expected):
    model = api.load_model(save(dynamic(*declared)), shapes)
    assert [port.shape for port in model.lowered.inputs] == expected
    model.split([]).pipeline().close()


def with_weight(**fields):
    tensor = onnx.TensorProto(**{"name": "w", "data_type": 1, "dims": [1, 4], **fields})
    model = onnx_model([node("Add", "x w", "y")])
    model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("raw_data", b"12"), ("data_type", 77), ("data_type", 0), ("dims", [-1]), ("dims", [1 << 40])],
)
def test_a_damaged_weight_is_named(refused, field, wrong):
    assert refused(with_weight(**{field: wrong})).startswith("weight 'w' is damaged")


def test_a_sparse_weight_is_named(refused):
    model = onnx_model([node("Add", "x w", "y")])
    values, places = np.ones(1, np.float32), np.zeros(1, np.int64)
    tensors = onnx.numpy_helper.from_array(values, "w"), onnx.numpy_helper.from_array(places, "i")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(*tensors, [1, 4]))
    assert "weight 'w' is sparse" in refused(model)


def external(location, **entries):
    model = with_weight(data_location=onnx.TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        model.graph.initializer[0].external_data.add(key=key, value=str(text))
    return model


def test_external_data_are_read_where_all_files_are_links_as_hugging_face_has_them(save, tmp_path):
    (folder := tmp_path / "0").mkdir()
    (tmp_path / "b2").write_bytes(b"\0" * 8 + ONES.tobytes())
    (folder / "data.bin").symlink_to(tmp_path / "b2")
    (folder / "net.onnx").symlink_to(save(external("data.bin", offset=8, length=16), "a1"))
    assert api.load_model(folder / "net.onnx").lowered.weight_bytes == ONES.nbytes


def test_the_digest_covers_external_data(save, tmp_path):
    data = tmp_path / "data.bin"
    data.write_bytes(ONES.tobytes())
    path = save(external("data.bin"))
    before = digest(path)
    assert before == digest(path) != sha256(path)
    data.write_bytes(2 * ONES.tobytes())
    assert digest(path) != before
    data.unlink()
    with pytest.raises(ModelError, match=r"needs the file 'data.bin' beside the model"):
        digest(path)
    with pytest.raises(ModelError, match=r"files of model '.*' cannot be read: No such file"):
        digest(tmp_path / "net.pt2")


@pytest.mark.parametrize(
    "location",
    ["../data.bin", "sub/../../data.bin", "{outside}/data.bin", "link.bin", "up/data.bin"],
)
def test_external_data_elsewhere_is_refused(refused, save, tmp_path_factory, tmp_path, location):
    outside = tmp_path_factory.mktemp("outside")
    for folder in (outside, tmp_path.parent):
        (folder / "data.bin").write_bytes(ONES.tobytes())
    (tmp_path / "link.bin").symlink_to(outside / "data.bin")
    (tmp_path / "up").symlink_to(outside)
    said = refused(external(location.format(outside=outside)))
    assert "weight 'w' lies outside the model's folder" in said


@pytest.mark.parametrize(
    ("location", "entries", "line"),
    [("no.bin", {}, "needs the file 'no.bin' beside the model; it is not there"),
     ("", {}, "needs the file '' beside the model"), ("9" * 5000, {}, "needs the file '9999"),
     ("a\0b", {}, "needs the file 'a\\x00b' beside the model"), ("loop.bin", {}, ""),
     (".", {}, "needs the file '.' beside the model"),
     ("data.bin", {"length": 17}, "cannot be read: "),
     ("data.bin", {"offset": 99}, "cannot be read: "),
     ("data.bin", {"offset": -1}, "cannot be read: "),
     ("data.bin", {"offset": "x"}, "cannot be read: "), ("data.bin", {"length": 12}, "is damaged"),
     ("data.bin", {"offset": "9" * 5000}, "cannot be read: "),
     ("data.bin", {"length": "9" * 5000}, "cannot be read: ")],
)  # fmt: skip
def test_external_data_that_cannot_be_read_is_named(refused, tmp_path, location, entries, line):
    (tmp_path / "data.bin").write_bytes(ONES.tobytes())
    (tmp_path / "loop.bin").symlink_to(tmp_path / "loop.bin")
    said = refused(external(location, **entries))
    assert f"weight 'w' {line}" in said
    assert len(said) < 400
