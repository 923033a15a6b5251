"""What is read of a saved program, and what is not, without torch: the archive alone."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ModelError
from autosplit.frontend.torch import archive as torch_archive
from autosplit.frontend.torch.archive import _is_size, without_code

TENSOR = {"type": None, "children_spec": []}


def graph(**more: Any) -> dict[str, Any]:
    return {
        "graph_module": {"module_call_graph": []},
        "guards_code": ["exit()"],
        "range_constraints": {},
        **more,
    }


def saved(
    path: Path,
    document: Any,
    members: dict[str, bytes] | None = None,
    how: int = zipfile.ZIP_STORED,
) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("net/models/model.json", json.dumps(document))
        for name, data in (members or {}).items():
            archive.writestr(f"net/{name}", data)
    return path


def members(path: Path) -> dict[str, bytes]:
    with without_code(path) as copy, zipfile.ZipFile(copy) as archive:
        return {name.removeprefix("model/"): archive.read(name) for name in archive.namelist()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.pt2"


def test_only_data_is_copied_and_guards_are_dropped(file: Path) -> None:
    copied = {
        "data/weights/weight_0": b"\1\2",
        "data/constants/c": b"3",
        "archive_version": b"0",
        "byteorder": b"little",
    }
    left = {
        "code/run.py": b"exit()",
        "data/weights/sub/weight": b"x",
        "data/weights/w.pt": b"x",
        "extra/notes": b"x",
    }
    copies = members(
        saved(file, graph(), {**copied, **left, "data/sample_inputs/model.pt": b"pickle"})
    )
    assert json.loads(copies.pop("models/model.json"))["guards_code"] == []
    assert copies == {**copied, "data/sample_inputs/model.pt": b""}


def test_an_archive_without_a_graph_is_another_torchs(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("net/version", "1")
    with pytest.raises(ModelError, match=r"no exported program in the format of torch 2\.9"):
        members(file)


def test_a_compressed_member_is_refused(file: Path) -> None:
    saved(file, graph(), {"data/weights/w": b"0" * 999}, zipfile.ZIP_DEFLATED)
    with pytest.raises(
        ModelError, match=r"member 'models/model\.json' of .* is compressed or too large"
    ):
        members(file)


def test_an_encrypted_archive_is_refused(file: Path) -> None:
    saved(file, graph(), {})
    content = bytearray(file.read_bytes())
    for entry in re.finditer(rb"PK\x01\x02", bytes(content)):
        content[entry.start() + 8] |= 1  # the flag of an encrypted member
    file.write_bytes(content)
    with pytest.raises(ModelError, match="is encrypted"):
        members(file)


def test_a_graph_that_is_too_large_is_refused_and_weights_are_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(file, graph(), {"data/weights/w": b"0" * 9999})
    size = len(json.dumps(graph()))
    monkeypatch.setattr(torch_archive, "_MEMBER_LIMIT", size)
    assert members(file)["data/weights/w"] == b"0" * 9999
    monkeypatch.setattr(torch_archive, "_MEMBER_LIMIT", size - 1)
    with pytest.raises(ModelError, match="too large"):
        members(file)


@pytest.mark.parametrize(
    "entry",
    [
        {"use_pickle": True, "path_name": "weight_0"},
        {"path_name": "weight_0"},
        {"use_pickle": False, "path_name": "../weight"},
        {"use_pickle": False, "path_name": ""},
        {"use_pickle": False, "path_name": "custom_obj_0"},
        {"use_pickle": False, "path_name": "opaque_1"},
    ],
)
@pytest.mark.parametrize("kind", ["weights/model_weights", "constants/model_constants"])
def test_a_tensor_that_is_more_than_numbers_is_named(file: Path, entry: Any, kind: str) -> None:
    config = json.dumps({"config": {"w": entry}}).encode()
    with pytest.raises(ModelError, match=r"tensor 'w' of .* is pickled or a Python object"):
        members(saved(file, graph(), {f"data/{kind}_config.json": config}))


def test_a_plain_tensor_is_read(file: Path) -> None:
    config = {"config": {"w": {"use_pickle": False, "path_name": "weight_0"}}}
    name = "data/weights/model_weights_config.json"
    assert (
        json.loads(members(saved(file, graph(), {name: json.dumps(config).encode()}))[name])
        == config
    )


@pytest.mark.parametrize("key", ["as_operator", "as_custom_obj"])
def test_an_argument_that_is_code_is_refused_and_an_empty_one_is_not(file: Path, key: str) -> None:
    deep = [{"arg": {key: None}}, [{"arg": {key: "x"}}]]
    with pytest.raises(ModelError, match=f"argument of kind '{key[3:]}'"):
        members(saved(file, graph(nodes=deep)))
    assert members(saved(file, graph(nodes=deep[:1])))


@pytest.mark.parametrize("side", ["in_spec", "out_spec"])
@pytest.mark.parametrize(
    ("kind", "read"),
    [("builtins.list", "builtins.list"), (None, None), ("mine.Pair", "builtins.tuple")],
)
def test_containers_are_pythons_own(file: Path, side: str, kind: Any, read: Any) -> None:
    inner = {"type": kind, "context": '{"call": "me"}', "children_spec": []}
    tree = {"type": "builtins.tuple", "children_spec": [TENSOR, inner]}
    call = {"signature": {side: json.dumps([1, tree])}}
    saved(file, graph(graph_module={"module_call_graph": [{"signature": None}, call]}))
    document = json.loads(members(file)["models/model.json"])
    signature = document["graph_module"]["module_call_graph"][1]["signature"]
    container = json.loads(signature[side])[1]["children_spec"][1]
    assert container["type"] == read
    assert container["context"] == ("null" if kind == "mine.Pair" else inner["context"])


@pytest.mark.parametrize(
    ("target", "fine"),
    [
        ("torch.ops.aten.add.Tensor", True),
        ("torch.ops.prims.sum.default", True),
        ("_operator.getitem", True),
        ("math.ceil", True),
        ("torch.sym_max", True),
        ("torch.ops.higher_order.cond", True),
        ("torch.ops.aten.add.Tensor.x", False),
        ("xtorch.ops.aten.add.Tensor", False),
        ("torch.ops.mine.add.Tensor", False),
        ("_operator.call", False),
        ("math.exp", False),
        ("torch.load", False),
        ("torch.ops.load_library", False),
    ],
)
def test_a_node_calls_tensor_ops_alone_and_keeps_no_notes(
    file: Path, target: str, fine: bool
) -> None:
    document = graph(nodes=[{"target": target, "inputs": [], "metadata": {"stack": "x"}}])
    if fine:
        assert (
            json.loads(members(saved(file, document))["models/model.json"])["nodes"][0]["metadata"]
            == {}
        )
        return
    with pytest.raises(ModelError, match="holds the op"):
        members(saved(file, document))


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "Symbol('s77', positive=True, integer=True)",
        "2*s0 + 1",
        "Max(1, u3)",
        "FloorDiv(s1, 2) - -1",
        "s0 >= 2",
    ],
)
def test_arithmetic_on_sizes_is_read(file: Path, text: str) -> None:
    assert _is_size(text)
    assert members(saved(file, graph(range_constraints={"s0": {}}, size={"expr_str": text})))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "lambda: s0",
        "2**9",
        "s0.x",
        "os",
        "exit()",
        "s0[0]",
        's0"',
        "a" * 9,
        "s0\n",
        "s",
        "1" * 1001,
        7,
        None,
    ],
)
def test_what_is_more_than_arithmetic_on_sizes_is_not(file: Path, text: Any) -> None:
    assert not _is_size(text)
    with pytest.raises(ModelError, match="holds the size"):
        members(saved(file, graph(size={"expr_str": text})))


def test_a_constraint_is_of_a_size(file: Path) -> None:
    with pytest.raises(ModelError, match="holds the size 'exit'"):
        members(saved(file, graph(range_constraints={"exit": {}})))


@given(
    st.sampled_from(["s0", "2*s0 + 1", "Max(1, u3)"]),
    st.integers(0, 9),
    st.sampled_from(":.[]{}@%&|~^;#\n\t\0é\\"),
)
def test_a_size_with_a_letter_of_anything_else_is_refused(
    text: str, place: int, letter: str
) -> None:
    assert not _is_size(f"{text[:place]}{letter}{text[place:]}")


@pytest.mark.parametrize("text", ["{", "[" * 99999, '{"range_constraints": {}}'])
def test_a_graph_that_is_damaged_is_one_line(file: Path, text: str) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("net/models/model.json", text)
    with pytest.raises(ModelError, match=r"not written by torch\.export\.save"):
        members(file)
