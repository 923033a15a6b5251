import io
import platform
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from autosplit.cli import main
from autosplit.deploy.arrays import read_arrays, read_reference, write_arrays
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError, MachineError
from autosplit.files import sha256
from autosplit.frontend.importing import digest
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement import disturbance, open_loop
from autosplit.hardware.measurement.parity import compare
from tests.deploy.exports import sound, swap_sources


@pytest.mark.integration
def test_verify_compares_with_onnxruntime_on_the_model(export, as_json, apart):
    document = as_json("verify", export.folder, "--items", "2")
    assert (document["equal"], document["items"]) == (True, 2)
    assert 0 <= document["max_rel_error"] < 1e-4
    assert document["against"].startswith("onnxruntime on ")


def test_without_the_model_the_recorded_outputs_judge(export, capsys, as_text):
    export.edit(lambda d: d["model"].update(file="/nowhere/net.onnx"))
    for place in (export.folder, export.folder / "split.json"):
        assert "recorded in reference.npz" in as_text("verify", place)
    export.edit(lambda d: swap_sources(d, "first", "stem.relu"))
    assert main(["verify", str(export.folder)]) == 1
    assert capsys.readouterr().out.startswith("DIFFERENT: 8 items, max abs error ")


def test_another_model_does_not_judge_but_a_moved_one(export, branches, tmp_path):
    (tmp_path / "other.onnx").write_bytes(b"another model")
    export.edit(lambda d: d["model"].update(file=str(tmp_path / "other.onnx")))
    assert "recorded in reference.npz" in verify(export.folder).reference
    with pytest.raises(ConfigError, match="is not the one the split was made from"):
        verify(export.folder, tmp_path / "other.onnx")
    with pytest.raises(ConfigError, match="does not exist; give the file the split was made from"):
        verify(export.folder, tmp_path / "missing.onnx")
    (tmp_path / "other.onnx").write_bytes(branches.path.read_bytes())
    assert verify(export.folder, tmp_path / "other.onnx").reference.startswith("onnxruntime on")


def test_a_model_whose_external_weights_changed_does_not_judge(export, branches, tmp_path):
    path = tmp_path / "moved.onnx"
    options = {"save_as_external_data": True, "location": "weights", "size_threshold": 0}
    onnx.save_model(onnx.load(branches.path), path, **options)
    export.edit(lambda d: d["model"].update(file=str(path), sha256=digest(path)))
    assert "recorded" not in verify(export.folder).reference
    weights = bytearray((tmp_path / "weights").read_bytes())
    weights[0] ^= 1
    (tmp_path / "weights").write_bytes(weights)
    assert "recorded in reference.npz" in verify(export.folder).reference
    (tmp_path / "weights").unlink()
    assert "recorded in reference.npz" in verify(export.folder).reference


def test_without_onnxruntime_only_recorded_outputs_judge(export, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = verify(export.folder)
    assert (result.accuracy.equal, result.accuracy.items) == (True, 8)
    assert "recorded in reference.npz, as the model at " in result.reference
    assert "cannot be run here: onnxruntime cannot be imported" in result.reference
    with pytest.raises(MachineError, match="onnxruntime cannot be imported"):
        verify(export.folder, Path(export.document["model"]["file"]))
    export.edit(lambda d: swap_sources(d, "first", "stem.relu"))
    assert not verify(export.folder).accuracy.equal
    export.edit(lambda d: d.update(reference=None))
    with pytest.raises(MachineError, match="onnxruntime cannot be imported"):
        verify(export.folder)


@pytest.mark.integration
@pytest.mark.skipif(platform.machine() != "x86_64", reason="damages the code of x86-64")
@pytest.mark.parametrize(
    ("start", "where"), [(0x1120, "while loading stage0.so"), (0x1800, "in stage 0 ('stage0.so')")]
)
def test_a_damaged_library_with_the_right_digest_is_named(export, said, apart, start, where):
    library = export.folder / "stage0.so"
    content = bytearray(library.read_bytes())
    content[start : start + 0x800] = bytes.fromhex("488b042500000000") * 0x100  # reads address 0
    library.write_bytes(content)
    export.sign(0)
    assert said("verify", export.folder) == (1, f"crash SIGSEGV {where}")


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


UNPAIRED = "0/in/image", "0/out/early", "1/in/image"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *[(content, "has no arrays") for content in (b"", b"no archive", b"PK\x03\x04")],
        (archive(**{"0/in/image": np.array([Trap()], dtype=object)}), "has no arrays"),
        (archive(), r"has no reference outputs \(no items\)"),
        (archive(x=np.ones(1)), "has no reference outputs"),
        (archive(**{"0/up/image": np.ones(1)}), "has no reference outputs"),
        (archive(**dict.fromkeys(UNPAIRED, np.ones(1))), "has no reference outputs"),
    ],
)
def test_recorded_outputs_that_are_none_are_named(export, content, problem):
    export.edit(lambda d: d["model"].pop("file"))
    (export.folder / "reference.npz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"reference\.npz' has sha256"):
        verify(export.folder)
    export.edit(lambda d: d["reference"].update(sha256=sha256(export.folder / "reference.npz")))
    with pytest.raises(ConfigError, match=rf"reference\.npz' {problem}"):
        verify(export.folder)


def test_a_recorded_tensor_keeps_its_type_and_its_name_may_hold_slashes(tmp_path):
    rounded = np.ones(1, ml_dtypes.bfloat16)
    arrays = {"0/in/deep/x": np.ones(1), "0/out/deep/er/z": np.zeros(1), "0/out/y": rounded}
    recorded = {"reference": write_arrays(arrays, tmp_path / "reference.npz")}
    document = Manifest.model_validate(sound("bfloat16") | recorded)
    expected, _ = read_reference(tmp_path, document, {})
    assert ([*expected.items[0]], [*expected.along[0]]) == (["deep/x"], ["deep/er/z", "y"])
    assert compare(expected.along, [{"deep/er/z": np.zeros(1), "y": rounded}]).equal


def test_a_state_may_be_called_like_a_parameter_of_numpy(tmp_path):
    arrays = dict.fromkeys(("file", "allow_pickle", "deep/h"), np.ones(2))
    part = write_arrays(arrays, tmp_path / "states.npz")
    assert read_arrays(tmp_path, part).keys() == arrays.keys()


def test_special_values_show_a_stage_that_hides_nan(export, monkeypatch):
    assert main(["verify", str(export.folder), "--special"]) == 0
    run = Pipeline.run

    def run_without_nan(self, items):
        return run(self, [{name: np.nan_to_num(item[name]) for name in item} for item in items])

    monkeypatch.setattr(Pipeline, "run", run_without_nan)
    assert main(["verify", str(export.folder)]) == 0
    assert main(["verify", str(export.folder), "--special"]) == 1


NO_REFERENCE = "the export has no reference outputs; give the original model with --model FILE"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verify"], NO_REFERENCE),
        *((["verify", *words], f"{words[0]} needs the original model; give it with --model FILE")
          for words in (["--special"], ["--items", "3"], ["--seed", "0"])),
        *((["verify", "--items", count], f"--items {count} is invalid; give 1 or more")
          for count in ("0", "-1")),
        (["verify", "--seed", "-5"], "--seed -5 is invalid; give 0 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_with_the_remedy(export, said, words, line):
    export.edit(lambda d: d.update(reference=None) or d["model"].pop("file"))
    assert said(words[0], export.folder, *words[1:]) == (2, line)


def test_bench_measures_an_export_under_load(export, tmp_path, monkeypatch, as_json, as_text):
    monkeypatch.setattr(open_loop, "items_measured", lambda rate, seconds: 15)
    chart = tmp_path / "chart.svg"
    options = ["--seconds", "0.1", "--rate", "200", "--p99", "1000", "--chart", str(chart)]
    document = as_json("bench", export.folder, *options)
    assert document["rate"] == 200
    assert 0 < document["p50_ms"] <= document["p99_ms"]
    assert document["goodput"] > 0
    assert "limit" in chart.read_text()
    shown = as_text("bench", export.folder, *options)
    assert "200 items/s: latency p50" in shown
    assert "items/s within p99 1000 ms: " in shown


def test_bench_marks_what_was_measured_under_load(export, as_json, capsys, monkeypatch):
    busy = disturbance.Conditions(load=0.5, idle=0.0)
    monkeypatch.setattr(disturbance, "since", lambda start: busy)
    words = ["bench", str(export.folder), "--seconds", "0.1"]
    reason = "other processes took 50% of the processor"
    assert reason in as_json(*words)["disturbances"]
    assert main([*words, "--trace", "/dev/null"]) == 3  # no file that could be written
    assert f"not to be trusted: {reason}" in capsys.readouterr().out
