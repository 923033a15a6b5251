import pytest

import autosplit
from tests import nets


@pytest.fixture
def residual(save):
    return save(nets.residual())


def test_the_command_writes_a_block_that_loads(residual, tmp_path, as_json):
    options = "--from", "conv1a", "--to", "out1"
    document = as_json("extract", residual, *options, "-o", tmp_path / "b.so")
    assert [t["name"] for t in document["inputs"]] == ["out0"]
    assert document["onnx"] == str(tmp_path / "b.onnx")
    with autosplit.load(document["manifest"]) as pipeline:
        assert [p.name for p in pipeline.wiring.outputs] == ["out1"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "--from"),
        (["--from", "conv1a"], "--to"),
        (["--ops", "conv1a", "--to", "out1"], "--ops"),
        (["--ops", "conv0a,out1"], "leaves them and returns"),
        (["--from", "out1", "--to", "conv0a"], "no path"),
        (["--ops", "nope"], "'nope'"),
    ],
)
def test_what_cannot_be_taken_out_is_one_line(residual, said, options, text):
    code, line = said("extract", residual, *options)
    assert code == 2
    assert text in line


def test_the_table_ends_with_the_files_that_were_written(residual, tmp_path, as_text):
    printed = as_text("extract", residual, "--ops", "conv1a", "-o", tmp_path / "b.so")
    written = [str(tmp_path / f"b.{end}") for end in ("so", "json", "onnx")]
    assert printed.splitlines()[-3:] == written
