import hashlib

import pytest

from autosplit.cli import main
from autosplit.zoo import catalog


def test_list_as_json_describes_the_nets(as_json):
    nets = {net["name"]: net for net in as_json("zoo", "list")}
    port = {"name": "data_0", "shape": [1, 3, 224, 224], "dtype": "float32"}
    assert nets["squeezenet"]["inputs"] == [port]
    assert nets["vgg19"]["weight_bytes"] == 574_668_960


def test_make_writes_the_file_it_reports(as_json, tmp_path):
    path = tmp_path / "net.onnx"
    report = as_json("zoo", "make", "branches", "-o", path, "--seed", "3")
    assert report["path"] == str(path)
    assert report["bytes"] == path.stat().st_size
    assert report["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes() == catalog.make("branches", 3).SerializeToString(deterministic=True)


def test_make_names_the_file_after_the_net_by_default(capsys, tmp_path):
    assert main(["zoo", "make", "branches"]) == 0
    assert (tmp_path / "branches.onnx").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["make", "vgg20"], 2, "net 'vgg20': not in the zoo; known: branches"),
        (["make"], 2, "needs a NAME"),
        (["list", "vgg19"], 2, "takes no NAME"),
        (["make", "branches", "--seed", "-1"], 2, "seed -1"),
        (["make", "branches", "-o", "missing/net.onnx"], 3, "cannot write 'missing/net.onnx'"),
    ],
)
def test_a_wrong_call_says_what_to_do_in_one_line(said, tmp_path, arguments, code, line):
    exit_code, shown = said("zoo", *arguments)
    assert (exit_code, line in shown) == (code, True)
    assert list(tmp_path.iterdir()) == []
