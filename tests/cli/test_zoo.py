import hashlib

from autosplit.cli import main
from autosplit.zoo import catalog


def test_make_writes_the_file_it_reports_and_names_it_after_the_net(as_json, tmp_path):
    path = tmp_path / "net.onnx"
    report = as_json("zoo", "make", "branches", "-o", path, "--seed", "3")
    assert report["file"] == report["path"] == str(path)
    assert report["bytes"] == path.stat().st_size
    assert report["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes() == catalog.make("branches", 3).SerializeToString(deterministic=True)
    assert [main(["zoo", "make", "branches"]) for _ in range(2)] == [0, 0]
    (file := tmp_path / "branches.onnx").write_text("mine")
    assert (main(["zoo", "make", "branches"]), file.read_text()) == (2, "mine")
