"""An export runs elsewhere and describes itself; one that was changed is refused, never run."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autosplit
from autosplit import api
from autosplit.deploy import manifest, manifest_file, worker
from autosplit.deploy.load import load
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError, MachineError, MismatchError, StageError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    Measurement,
    SplitResults,
    Spread,
)
from autosplit.serialization import dump
from autosplit.zoo import catalog
from tests.benches import deployed
from tests.build import node, onnx_model, value
from tests.deploy.exports import swap_sources

pytest.importorskip("onnxruntime")
SMALL = ("branches", "squeezenet", "transformer")


def runs(folder, model):
    items = model.items(3, seed=5)
    with autosplit.load(folder) as pipeline:
        return compare(pipeline.run(items), model.expected(items))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.integration if name in SMALL else pytest.mark.slow)
        for name in catalog.NAMES
    ],
)
def test_what_is_exported_computes_the_same(zoo_model, tmp_path, name):
    model = zoo_model(name)
    middle = model.graph.ops[len(model.graph.ops) // 2].name
    model.split([[middle]]).export(tmp_path / name)
    items = model.items(1, seed=5)
    with autosplit.load(tmp_path / name) as pipeline:
        assert compare(pipeline.run(items), model.expected(items)).equal


def test_a_split_that_computes_something_else_is_not_exported(branches, tmp_path):
    right = branches.reference_outputs
    along = [{name: array + 1 for name, array in item.items()} for item in right.along]
    model = replace(branches)
    vars(model)["reference_outputs"] = replace(right, along=along)
    with pytest.raises(MismatchError, match="outputs of tvm differ"):
        model.split([["first"]]).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["with spaces", "ünïcödé 🌲", 'it\'s "quoted"', "-o", "deep/er"])
def test_a_folder_may_be_called_anything(branches, tmp_path, name):
    branches.split([["first"]]).export(tmp_path / name)
    assert runs(tmp_path / name, branches).equal


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk is not permitted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_path_that_no_system_takes_is_refused(branches, tmp_path, name):
    split = branches.split([])
    with pytest.raises(ConfigError, match="no valid path"):
        split.export(tmp_path / name)
    with pytest.raises(ConfigError, match="no valid path"):
        branches.extract([branches.graph.ops[0].name]).export(tmp_path / f"{name}.so")


def test_a_full_disk_is_named_and_the_folder_is_left_as_it_was(branches, small_disk):
    with pytest.raises(MachineError, match=r"disk/out': No space left on device; free the disk"):
        branches.split([["first"]]).export(small_disk / "out")
    assert list(small_disk.iterdir()) == []


def test_a_full_temporary_disk_is_named_and_ends_no_process(
    branches, small_disk, tmp_path, monkeypatch
):
    (small_disk / "rest").write_bytes(bytes(44_000))
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with pytest.raises(MachineError, match=r"disk': No space left on device; .* with TMPDIR"):
        branches.split([["first"]]).export(tmp_path / "out")


def test_a_full_disk_of_the_cache_is_named_and_ends_no_process(branches, small_disk, monkeypatch):
    (small_disk / "rest").write_bytes(bytes(64_000))
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(small_disk))
    with pytest.raises(MachineError, match=r"disk/.* No space left on device; .* AUTOSPLIT_CACHE"):
        _ = api.load_model(branches.path).split([["first"]]).pipeline()


def test_exporting_again_replaces_what_was_there(branches, tmp_path):
    branches.split([["first"]]).export(tmp_path)
    branches.split([["hinted"]]).export(tmp_path)
    assert runs(tmp_path, branches).equal
    assert "hinted" in [s for op in manifest_file.read(tmp_path).stages[0].ops for s in op.sources]


def test_an_export_over_one_that_runs_is_the_one_that_is_loaded_next(branches, tmp_path):
    items = branches.items(2)
    branches.split([["first"]]).export(tmp_path / "out")
    with autosplit.load(tmp_path / "out"):
        for after in ("early", "hinted"):  # the last has the file names of the first
            branches.split([[after]]).export(tmp_path / "out")
        with autosplit.load(tmp_path / "out") as pipeline:
            assert compare(pipeline.run(items), branches.expected(items)).equal


def test_the_manifest_says_what_goes_where(export, branches):
    document = export.document
    assert [c["tensor"] for c in document["connections"] if c["to"] == [{"output": "early"}]] == [
        "early"
    ]
    assert [s["index"] for s in document["stages"]] == [0, 1, 2]
    stem = next(c for c in document["connections"] if c["tensor"] == "stem.relu")
    assert stem == {
        "tensor": "stem.relu",
        "bytes": 16 * 28 * 28 * 4,
        "from": {"stage": 0, "output": stem["from"]["output"]},
        "to": [{"stage": 1, "input": "stem.relu"}],
    }
    assert document["model"]["sha256"] == branches.sha256
    assert sorted(
        s for stage in document["stages"] for op in stage["ops"] for s in op["sources"]
    ) == sorted(s for op in branches.graph.ops for s in op.sources)


def test_the_schema_that_ships_is_the_manifests():
    shipped = Path(manifest.__file__).with_name("split.schema.json")
    assert json.loads(shipped.read_text(encoding="utf-8")) == manifest.schema()


def test_an_export_fits_the_schema(export):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(manifest.schema()).validate(export.document)
    export.edit(lambda d: d["stages"][0].pop("inputs"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(manifest.schema()).validate(export.document)


def test_what_was_measured_is_kept(branches, tmp_path):
    measured = Measurement(
        Spread(2.0, 1.5, 2.5), Spread(5.0, 4.0, 6.0), (1.0, 2.0), Accuracy(True, 1e-6, 1e-7, 3)
    )
    way = Baseline("one core", Spread(3.0, 3.0, 3.0), Spread(3.0, 3.0, 3.0))
    known = {"measured": measured, "predicted": 1.9, "baselines": [way], "verdict": "split it"}
    branches.split([["first"]]).export(tmp_path, **known)
    written = manifest_file.read(tmp_path)
    assert written.measured.period_ms.model_dump() == {"median": 2.0, "low": 1.5, "high": 2.5}
    assert (written.predicted.period_ms, written.baselines[0].copies, written.verdict) == (
        1.9,
        1,
        "split it",
    )


def test_a_worker_exports_a_deployment_with_its_results(branches, tmp_path):
    spread = Spread(2.0, 1.5, 2.5)
    measured = Measurement(spread, Spread(5.0, 4.0, 6.0), (1.0, 2.0), Accuracy(True, 1e-6, 1e-7, 3))
    first, second = branches.split([["first"]]).stages
    baseline = Baseline("replicas", spread, spread, 2)
    results = SplitResults(measured, predicted=1.9, baselines=[baseline], verdict="Split.")
    bench = LocalBench(branches, api.device.along(3))
    deployment = dump(deployed(bench, (first, (), second)))
    job = {"deployment": deployment, "folder": str(tmp_path), "results": dump(results)}
    job |= {"format": "native", "onnx": True}
    assert worker.write_split_of_job(bench, json.loads(json.dumps(job))) == str(
        tmp_path / manifest.NAME
    )
    written = manifest_file.read(tmp_path)
    assert [s.device for s in written.stages] == [
        bench.description.devices[0],
        bench.description.devices[2],
    ]
    assert written.measured.stage_ms == (1.0, 2.0)
    assert (
        written.measured.period_ms.high,
        written.measured.latency_ms.high,
        written.measured.max_rel_error,
    ) == (2.5, 6.0, 1e-7)
    assert [(b.name, b.copies) for b in written.baselines] == [("replicas", 2)]
    assert (written.predicted.period_ms, written.verdict) == (1.9, "Split.")


@pytest.mark.integration
def test_an_export_runs_without_the_model_a_compiler_or_onnx(export):
    export.edit(lambda d: d["model"].pop("file"))
    code = (
        "import sys\n"
        "for name in ('onnx', 'onnxruntime', 'optuna'): sys.modules[name] = None\n"
        "import numpy as np, autosplit\n"
        "with autosplit.load(sys.argv[1]) as pipeline:\n"
        "    item = {p.name: np.ones(p.shape, p.dtype) for p in pipeline.wiring.inputs}\n"
        "    print(*pipeline.run([item])[0])"
    )
    alone = {**os.environ, "PATH": "", "CC": "", "AUTOSPLIT_CACHE": os.devnull}
    done = subprocess.run(
        [sys.executable, "-c", code, export.folder],
        capture_output=True,
        text=True,
        env=alone,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "early late\n"), done.stderr


# what was changed since


def test_a_flipped_byte_is_seen(export):
    file = export.folder / "stage1.so"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"stage1\.so' has sha256 .*; it was changed, export it again"
    ):
        autosplit.load(export.folder)


def test_a_missing_stage_file_is_named(export):
    (export.folder / "stage2.so").unlink()
    with pytest.raises(ConfigError, match=r"stage2\.so' is missing; export the split again"):
        autosplit.load(export.folder)


@pytest.mark.parametrize("version", [0, 1, 2, "1", None, True, [1]])
def test_another_format_is_named(export, version):
    export.edit(lambda d: d.update(format=version))
    with pytest.raises(
        ConfigError, match=r"has format .*, this autosplit reads 3; export it again"
    ):
        autosplit.load(export.folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\0", "[" * 100_000, '{"format": 1}'])
def test_a_manifest_that_is_none_is_named(export, content):
    export.file.write_text(content)
    with pytest.raises(ConfigError, match=r"split\.json'"):
        autosplit.load(export.folder)


@pytest.mark.parametrize("name", ["missing", "stage0.so"])
def test_a_folder_that_is_no_export_is_named(export, name):
    with pytest.raises(ConfigError, match=name):
        autosplit.load(export.folder / name)


def test_an_export_for_another_architecture_is_named(export):
    export.edit(lambda d: d["environment"].update(architecture="riscv128"))
    with pytest.raises(MachineError, match="the split was exported for riscv128, this machine is"):
        autosplit.load(export.folder)


@pytest.mark.parametrize(
    "name", ["../stage0.so", "/etc/passwd", "a/../../b", "", ".", "a\\b", "a\0b"]
)
def test_a_path_out_of_the_folder_is_refused(export, name):
    export.edit(lambda d: d["stages"][0].update(file=name))
    with pytest.raises(ConfigError, match=r"damaged at stages\.0\.file"):
        autosplit.load(export.folder)


def test_a_link_out_of_the_folder_is_refused(export, tmp_path):
    (export.folder / "stage0.so").rename(tmp_path / "outside.so")
    (export.folder / "stage0.so").symlink_to(tmp_path / "outside.so")
    with pytest.raises(ConfigError, match=r"'stage0\.so' is outside the folder"):
        autosplit.load(export.folder)


def test_a_file_that_is_no_library_is_named(export):
    (export.folder / "stage0.so").write_text("no library")
    export.sign(0)
    with pytest.raises(
        MachineError, match=r"'stage0\.so' does not load with this TVM: .*; see `autosplit doctor`"
    ):
        autosplit.load(export.folder)


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 1])
def test_a_library_that_is_cut_short_is_an_error_and_no_crash(export, part):
    library = export.folder / "stage0.so"
    content = library.read_bytes()
    library.write_bytes(content[: max(20, int(part * len(content)) - 1)])
    export.sign(0)
    with pytest.raises(ConfigError, match=r"'stage0\.so' is truncated; export the split again"):
        autosplit.load(export.folder)


@pytest.mark.parametrize(("stage", "other"), [(0, 1), (1, 0), (2, 0)])
def test_the_file_of_another_stage_is_an_error_and_no_crash(export, branches, stage, other):
    shutil.copy(export.folder / f"stage{other}.so", export.folder / f"stage{stage}.so")
    export.sign(stage)
    with pytest.raises(StageError, match=f"stage {stage} failed"):
        runs(export.folder, branches)


WRONG = {
    "stage index": (lambda d: d["stages"][1].update(index=2), "stage 2 is listed at position 1"),
    "unknown input": (
        lambda d: connection(d, "image").update({"from": {"input": "picture"}}),
        "comes from input 'picture', which does not exist",
    ),
    "unknown output": (
        lambda d: connection(d, "early").update(to=[{"output": "earliest"}]),
        "goes to output 'earliest', which does not exist",
    ),
    "stage too far": (
        lambda d: connection(d, "first").update(to=[{"stage": 3, "input": "first"}]),
        "goes to input 'first' of stage 3",
    ),
    "output too far": (
        lambda d: connection(d, "first").update({"from": {"stage": 0, "output": 9}}),
        "output 9 of stage 0",
    ),
    "unknown stage": (
        lambda d: connection(d, "first").update({"from": {"stage": 9, "output": 0}}),
        "output 0 of stage 9",
    ),
    "backwards": (
        lambda d: swap_sources(d, "hinted", "first"),
        "goes backwards, from stage 1 to 1",
    ),
    "another name": (
        lambda d: connection(d, "first").update(to=[{"stage": 1, "input": "stem.relu"}]),
        "is read as 'stem.relu'",
    ),
    "fed twice": (
        lambda d: connection(d, "first")["to"].append({"stage": 1, "input": "first"}),
        "has 2 sources",
    ),
    "not fed": (
        lambda d: connection(d, "first").update(to=[]),
        "input 'first' of stage 1 has 0 sources",
    ),
    "output lost": (
        lambda d: d["connections"].remove(connection(d, "late")),
        "output 'late' has 0 sources",
    ),
    "another shape": (
        lambda d: port(d, 1, "first").update(shape=[1, 2]),
        "float32[1, 2] where it is read",
    ),
    "another dtype": (
        lambda d: port(d, 1, "first").update(dtype="int8"),
        "int8[1, 16, 28, 28] where it is read",
    ),
    "input twice": (
        lambda d: d["stages"][1]["inputs"].append(port(d, 1, "first")),
        "input 'first' of stage 1 is listed 2 times",
    ),
    "no stage": (lambda d: d.update(stages=[]), "damaged at stages"),
    "negative size": (
        lambda d: port(d, 1, "first").update(shape=[-1]),
        "damaged at stages.1.inputs",
    ),
    "digest": (lambda d: d["stages"][0].update(sha256="abc"), "damaged at stages.0.sha256"),
}


def connection(document, tensor):
    return next(c for c in document["connections"] if c["tensor"] == tensor)


def port(document, stage, name):
    return next(p for p in document["stages"][stage]["inputs"] if p["name"] == name)


@pytest.mark.parametrize("name", WRONG)
def test_a_manifest_that_does_not_fit_is_named(export, said, name):
    change, line = WRONG[name]
    export.edit(change)
    code, text = said("verify", export.folder)
    assert code == 2
    assert line in text


def test_fields_of_a_later_version_are_ignored(export, branches):
    export.edit(lambda d: d.update(added=1) or d["stages"][0].update(added={}))
    assert runs(export.folder, branches).equal


def test_a_core_that_is_not_here_is_replaced(export, branches):
    export.edit(lambda d: [s.update(device="cores:100000") for s in d["stages"]])
    assert runs(export.folder, branches).equal


def test_devices_can_be_given(export):
    first = f"cores:{api.device.available()[0]}"
    with load(export.folder, [first] * 3) as pipeline:
        assert len(pipeline.wiring.stages) == 3
    with pytest.raises(ConfigError, match="3 replicas, but 1 device"):
        load(export.folder, [first])


ODD = {
    "input as output": onnx_model(
        [node("Relu", "x", "a"), node("Exp", "a", "y")], outputs=["x", "y"]
    ),
    "output twice": onnx_model(
        [node("MatMul", "x x", "a"), node("MatMul", "a x", "y")], [value("x", (4, 4))], ["y", "y"]
    ),
    "constant output": onnx_model(
        [node("Relu", "x", "y")], outputs=["y", "w"], weights={"w": np.ones((1, 4), np.float32)}
    ),
    "unread input": onnx_model([node("Relu", "x", "y")], [value("x"), value("u")]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_models_are_exported_too(save, tmp_path, name):
    model = api.load_model(save(ODD[name]))
    after = [[op.name] for op in model.graph.ops[:-1]]
    model.split(after).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal
