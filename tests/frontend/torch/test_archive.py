"""What is read of a saved program, and what is not, without torch: the archive alone."""

import json
import re
import struct
import zipfile

import pytest

from autosplit.errors import ModelError
from autosplit.frontend.torch import archive as torch_archive
from autosplit.frontend.torch.archive import without_code

TENSOR = {"type": None, "children_spec": []}


def graph(**more):
    return {
        "graph_module": {"module_call_graph": []},
        "guards_code": ["exit()"],
        "range_constraints": {},
        **more,
    }


def saved(path, document, members=None):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/models/model.json", json.dumps(document))
        for name, data in (members or {}).items():
            archive.writestr(f"net/{name}", data)
    return path


def members(path):
    with without_code(path) as copy, zipfile.ZipFile(copy) as archive:
        return {name.removeprefix("model/"): archive.read(name) for name in archive.namelist()}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.pt2"


def test_only_data_is_copied_and_guards_are_dropped(file):
    names = ("data/weights/weight_0", "data/constants/c", "archive_version", "byteorder")
    others = ("code/run.py", "data/weights/sub/weight", "data/weights/w.pt", "extra/notes")
    copied = dict.fromkeys(names, b"\1\2")
    samples = {"data/sample_inputs/model.pt": b"pickle"}
    copies = members(saved(file, graph(), {**copied, **dict.fromkeys(others, b"x"), **samples}))
    assert json.loads(copies.pop("models/model.json"))["guards_code"] == []
    assert copies == {**copied, "data/sample_inputs/model.pt": b""}


def test_members_that_overlap_or_end_before_their_size_are_refused(file):
    content = bytearray(saved(file, graph(), {"data/weights/w": b"0" * 99}).read_bytes())
    struct.pack_into("<II", content, content.rfind(b"PK\1\2") + 20, 10**5, 10**5)
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"members of .* overlap"):
        members(file)
    file.write_bytes(content + b"\0" * 10**5)
    with pytest.raises(ModelError, match="was not written by"):
        members(file)


def test_a_graph_that_is_too_large_is_refused_and_weights_are_not(file, monkeypatch):
    saved(file, graph(), {"data/weights/w": b"0" * 9999})
    size = len(json.dumps(graph()))
    monkeypatch.setattr(torch_archive, "_MEMBER_LIMIT", size)
    assert members(file)["data/weights/w"] == b"0" * 9999
    monkeypatch.setattr(torch_archive, "_MEMBER_LIMIT", size - 1)
    with pytest.raises(ModelError, match="too large"):
        members(file)


PLAIN = {"use_pickle": False, "path_name": "weight_0"}


@pytest.mark.parametrize("kind", ["weights/model_weights", "constants/model_constants"])
def test_a_tensor_that_is_more_than_numbers_is_named(file, kind):
    name = f"data/{kind}_config.json"

    def copied(entry):
        config = json.dumps({"config": {"w": entry}}).encode()
        return json.loads(members(saved(file, graph(), {name: config}))[name])

    assert copied(PLAIN) == {"config": {"w": PLAIN}}
    others = [{"use_pickle": True}, *({"path_name": p} for p in ("../w", "", "custom_obj_0"))]
    for entry in (*({**PLAIN, **other} for other in others), {"path_name": "weight_0"}):
        with pytest.raises(ModelError, match=r"tensor 'w' of .* is pickled or a Python object"):
            copied(entry)


@pytest.mark.parametrize("side", ["in_spec", "out_spec"])
@pytest.mark.parametrize(
    ("kind", "read"),
    [("builtins.list", "builtins.list"), (None, None), ("mine.Pair", "builtins.tuple")],
)
def test_containers_are_pythons_own(file, side, kind, read):
    inner = {"type": kind, "context": '{"call": "me"}', "children_spec": []}
    tree = {"type": "builtins.tuple", "children_spec": [TENSOR, inner]}
    call = {"signature": {side: json.dumps([1, tree])}}
    saved(file, graph(graph_module={"module_call_graph": [{"signature": None}, call]}))
    document = json.loads(members(file)["models/model.json"])
    signature = document["graph_module"]["module_call_graph"][1]["signature"]
    container = json.loads(signature[side])[1]["children_spec"][1]
    assert container["type"] == read
    assert container["context"] == ("null" if kind == "mine.Pair" else inner["context"])


def node(target):
    return {"nodes": [{"target": target, "inputs": [], "metadata": {"stack": "x"}}]}


def size(text):
    return {"size": {"expr_str": text}}


ARITHMETIC = ("s0", "Symbol('s77', positive=True, integer=True)", "2*s0 + 1", "Max(1, u3)",
    "FloorDiv(s1, 2) - -1")  # fmt: skip
TARGETS = """torch.ops.aten.add.Tensor torch.ops.prims.sum.default _operator.getitem math.ceil
    torch.sym_max torch.ops.higher_order.cond"""
OTHER_TARGETS = """torch.ops.aten.add.Tensor.x xtorch.ops.aten.add.Tensor torch.ops.mine.add.Tensor
    _operator.call _operator.pow math.exp torch.load torch.ops.load_library"""
LETTERS = ":.[]{}@%&|~^;#\t\0é\\"  # of no arithmetic
OTHER_SIZES = ("__import__('os')", "lambda: s0", "2**9", "s0.x", "os", "exit()", "s0[0]", 's0"',
    "a" * 9, "s0\n", "s", "1" * 1001, 7, None, *(f"s0{letter}1" for letter in LETTERS))  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        *({**size(text), "range_constraints": {"s0": {}}} for text in ARITHMETIC),
        *map(node, TARGETS.split()),
        {"nodes": [{"arg": {"as_operator": None, "as_custom_obj": None}}]},
    ],
    ids=repr,
)
def test_a_graph_of_tensor_ops_and_sizes_is_read_without_notes(file, more):
    document = json.loads(members(saved(file, graph(**more)))["models/model.json"])
    assert all(node.get("metadata", {}) == {} for node in document.get("nodes", ()))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        *((node(target), "holds the op") for target in OTHER_TARGETS.split()),
        *((size(text), "holds the size") for text in OTHER_SIZES),
        ({"range_constraints": {"exit": {}}}, "holds the size 'exit'"),
        ({"nodes": [[{"arg": {"as_operator": "x"}}]]}, "argument of kind 'operator'"),
        ({"nodes": [[{"arg": {"as_custom_obj": "x"}}]]}, "argument of kind 'custom_obj'"),
    ],
)
def test_what_torch_would_evaluate_is_refused(file, more, message):
    with pytest.raises(ModelError, match=message):
        members(saved(file, graph(**more)))


@pytest.mark.parametrize(
    ("name", "text", "how", "message"),
    [
        ("models/model.json", "{", zipfile.ZIP_STORED, r"not written by torch\.export\.save"),
        ("models/model.json", "[" * 99999, zipfile.ZIP_STORED, r"not written by torch"),
        ("models/model.json", '{"range_constraints": {}}', zipfile.ZIP_STORED, r"not written by"),
        ("models/model.json", "{}", zipfile.ZIP_DEFLATED, r"'models/model\.json' .* is compressed"),
        ("version", "1", zipfile.ZIP_STORED, r"no exported program in the format of torch 2\.9"),
    ],
)
def test_a_file_that_is_no_whole_archive_of_torch_is_one_line(file, name, text, how, message):
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.writestr(f"net/{name}", text)
    with pytest.raises(ModelError, match=message):
        members(file)


def test_an_encrypted_archive_is_refused(file):
    content = bytearray(saved(file, graph()).read_bytes())
    for entry in re.finditer(rb"PK\x01\x02", bytes(content)):
        content[entry.start() + 8] |= 1  # the flag of an encrypted member
    file.write_bytes(content)
    with pytest.raises(ModelError, match="is encrypted"):
        members(file)
