import shutil
from pathlib import Path

import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices import device
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.registry import EXACT
from tests.deploy.exports import Export
from tests.nets import amplifier


@pytest.fixture(scope="module", params=EXACT)
def model(request, tmp_path_factory):
    return amplifier(tmp_path_factory.mktemp("net"), request.param)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "out"
    model.split(after=[["layer0.sum"], ["layer1.sum"]]).export(folder)
    return folder


def test_an_exported_stream_computes_what_the_reference_does(model, folder):
    items = model.items(40)
    expected = model.expected(items)
    assert not compare(model.expected(items[1:]), expected[1:]).equal  # states make a difference
    with autosplit.load(folder) as pipeline:
        assert compare(pipeline.run(items[:20], stream="a"), expected[:20]).equal
        assert compare(pipeline.run(items, stream="b"), expected).equal
        assert compare(pipeline.run(items[20:], stream="a"), expected[20:]).equal
        pipeline.reset(stream="a")
        assert compare(pipeline.run(items, stream="a"), expected).equal


@pytest.mark.parametrize("output", ["nowhere", "present_1"])
def test_a_state_that_no_output_renews_is_refused(folder, tmp_path, output):
    export = Export(Path(shutil.copytree(folder, tmp_path / "changed")))
    export.edit(lambda document: document["model"]["states"].update(past_0=output))
    with pytest.raises(ConfigError, match=f"no output '{output}' is there to renew a state"):
        verify(export.folder)


@pytest.mark.parametrize("is_there", [True, False])
def test_verify_compares_a_sequence_in_several_streams(folder, monkeypatch, is_there):
    if not is_there:  # what was recorded at export judges
        monkeypatch.setattr("autosplit.deploy.verify._original_model", lambda *_: None)
    result = verify(folder)
    assert result.accuracy.equal
    assert result.reference.startswith("onnxruntime on") == is_there
    # In three streams side by side, and each step alone on the states of the reference.
    assert result.accuracy.items == 3 * 32 + 32


def test_copies_of_the_model_are_no_baseline_of_one_stream(model):
    names = [run.name for run in LocalBench(model, device.along(2)).unsplit_runs()]
    assert any("1 thread" in name for name in names)
    assert not [name for name in names if "replicas" in name or "hint" in name]


def test_a_named_op_takes_the_whole_state_to_its_side_of_a_cut(model):
    split = model.split(after=[["0.joined"]])
    with split.pipeline() as pipeline:
        assert [len(stage.states) for stage in pipeline.wiring.stages] == [1, 2]
