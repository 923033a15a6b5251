import hashlib

from autosplit.cli import main
from autosplit.zoo import catalog


def test_list_as_json_describes_the_nets(as_json):
    nets = {net["name"]: net for net in as_json("zoo", "list")}
    port = {"name": "data_0", "shape": [1, 3, 224, 224], "dtype": "float32"}
    assert nets["squeezenet"]["inputs"] == [port]
    assert nets["vgg19"]["weight_bytes"] == 574_668_960


def test_make_writes_the_file_it_reports_and_names_it_after_the_net(as_json, tmp_path):
    path = tmp_path / "net.onnx"
    report = as_json("zoo", "make", "branches", "-o", path, "--seed", "3")
    assert report["file"] == report["path"] == str(path)
    assert report["bytes"] == path.stat().st_size
    assert report["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes() == catalog.make("branches", 3).SerializeToString(deterministic=True)
    assert main(["zoo", "make", "branches"]) == 0
    assert (tmp_path / "branches.onnx").is_file()
