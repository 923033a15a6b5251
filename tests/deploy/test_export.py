"""An export runs elsewhere and describes itself; one that was changed is refused, never run."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import autosplit
from autosplit import api
from autosplit.deploy import manifest, manifest_file
from autosplit.deploy.export import write_measured, write_split
from autosplit.deploy.verify import bench, verify
from autosplit.deployment import Deployment, Stage
from autosplit.errors import ConfigError, MachineError, StageError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices import device
from autosplit.hardware.measurement import results
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.runtimes.registry import AUTO
from tests.benches import deployed
from tests.deploy.exports import split_on
from tests.hardware.bench.test_isolated import BASELINE, MEASURED
from tests.lowering.fuse.test_lowered import ODD
from tests.nets import judge


def test_a_folder_may_be_called_anything(branches, tmp_path):
    folder = tmp_path / "-o" / "with spaces" / "ünïcödé 🌲" / 'it\'s "quoted"'
    branches.split([["first"]]).export(folder)
    judge(branches, autosplit.load(folder))


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


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "u\udcffb"])
def test_a_path_that_no_system_takes_is_refused(branches, tmp_path, name):
    split = branches.split([])
    with pytest.raises(ConfigError, match=r"b' is no valid path .*; choose another$"):
        split.export(tmp_path / name)
    with pytest.raises(ConfigError, match="no valid path"):
        branches.extract([branches.graph.ops[0].name]).export(tmp_path / f"{name}.so")
    with pytest.raises(ConfigError, match="no valid path"):
        replace(branches, path=tmp_path / name / "net.onnx").split([]).export(tmp_path / "out")


def test_a_full_disk_of_the_cache_is_named_and_ends_no_process(branches, small_disk, monkeypatch):
    (small_disk / "rest").write_bytes(bytes(64_000))
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(small_disk))
    with pytest.raises(MachineError, match=r"disk/.* No space left on device; .* AUTOSPLIT_CACHE"):
        _ = api.load_model(branches.path).split([["first"]]).pipeline()


def test_an_export_over_one_that_runs_is_the_one_that_is_loaded_next(branches, tmp_path):
    branches.split([["first"]]).export(tmp_path / "out")
    with autosplit.load(tmp_path / "out"):
        for after in ("early", "hinted"):  # the last has the file names of the first
            branches.split([[after]]).export(tmp_path / "out")
        judge(branches, autosplit.load(tmp_path / "out"))


def test_an_export_fits_the_schema_that_ships(export):
    schema = json.loads(Path(manifest.__file__).with_name("split.schema.json").read_text("utf-8"))
    assert schema == manifest.schema()
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(export.document)
    export.edit(lambda d: d["stages"][0].pop("inputs"))
    assert not validator.is_valid(export.document)


def test_a_worker_exports_a_deployment_with_its_results(branches, tmp_path):
    known = results.SplitResults(MEASURED, 1.9, [BASELINE], "Split.")
    first, second = branches.split([["first"]]).stages
    bench = LocalBench(branches, api.device.along(3))
    deployment = deployed(bench, (first, (), second))
    file = write_measured(bench, deployment, folder=tmp_path, results=known)
    assert file == tmp_path / manifest.NAME
    written = manifest_file.read(tmp_path)
    used = bench.description.devices
    assert [s.device for s in written.stages] == [used[0], used[2]]
    assert written.measured.stage_ms == MEASURED.stage_ms
    assert written.measured.max_rel_error == MEASURED.max_rel_error
    assert (written.measured.period_ms.high, written.measured.latency_ms.high) == (3.0, 6.0)
    assert [(b.name, b.copies) for b in written.baselines] == [("replicas", 2)]
    assert (written.predicted.period_ms, written.verdict) == (1.9, "Split.")


def test_an_export_of_onnxruntime_runs_without_other_packages(branches, tmp_path):
    replace(branches, runtime_name="onnxruntime").split([]).export(tmp_path)
    code = (
        "import autosplit, sys\n"
        "with autosplit.load(sys.argv[1]):\n"
        "    print({'tvm', 'optuna', 'networkx', 'onnx', 'ray', 'autosplit.frontend.importing',\n"
        "           'autosplit.planner'}\n"
        "          & set(sys.modules))\n"
        "sys.modules['tvm'] = None\n"
        "from pathlib import Path; from autosplit.hardware.measurement.measure import Budget\n"
        "from autosplit.deploy.verify import bench, verify\n"
        "assert verify(Path(sys.argv[1])).accuracy.equal\n"
        "bench(Path(sys.argv[1]), Budget(seconds=0.1, items=4))\n"
        "assert 'tvm.relax' not in sys.modules"
    )
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr


@pytest.mark.parametrize(("stage", "other"), [(0, 1), (1, 0), (2, 0)])
def test_the_file_of_another_stage_is_an_error_and_no_crash(export, branches, stage, other):
    shutil.copy(export.folder / f"stage{other}.so", export.folder / f"stage{stage}.so")
    export.sign(stage)
    with pytest.raises(StageError, match=f"stage {stage} failed"):
        judge(branches, autosplit.load(export.folder))


def test_fields_of_a_later_version_are_ignored(export, branches):
    export.edit(lambda d: d.update(added=1) or d["stages"][0].update(added={}))
    judge(branches, autosplit.load(export.folder))


@pytest.mark.parametrize(
    "name", ["input as output", "output twice", "weight as output", "unread input"]
)
def test_odd_models_are_exported_too(save, tmp_path, name):
    model = api.load_model(save(ODD[name]))
    after = [[op.name] for op in model.graph.ops[:-1]]
    model.split(after).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal


CORES = [str(place) for place in device.along(2)]


@pytest.fixture
def model(branches):
    return replace(branches, runtime_name=AUTO)


def test_replicas_and_runtimes_are_written_loaded_verified_and_measured(model, tmp_path):
    where = ("onnxruntime", (CORES[0],)), ("tvm", tuple(CORES))
    split_on(model, [["first"]], *where).export(tmp_path)
    document = manifest_file.read(tmp_path)
    assert [stage.runtime for stage in document.stages] == ["onnxruntime", "tvm"]
    devices = [[replica.device for replica in stage.replicas] for stage in document.stages]
    assert devices == [[CORES[0]], CORES]
    # Replicas on cores share a file.
    assert {replica.file for stage in document.stages for replica in stage.replicas} == {None}
    assert [file.name for file in tmp_path.glob("stage*.so")] == ["stage1.so"]
    assert verify(tmp_path).accuracy.equal
    result = bench(tmp_path, Budget(seconds=0.3, items=24))
    assert list(map(len, result.busy_ms)) == [1, 2]
    assert 0 < max(result.busy_ms[1]) <= result.period.median
    assert [list(map(str, places)) for places in result.devices] == [[CORES[0]], CORES]
    assert {event.stage for event in result.events} == {0, 1}
    for spread in (result.latency, result.period):
        assert 0 < spread.low <= spread.median <= spread.high


@pytest.mark.integration
def test_replicas_of_another_target_have_a_file_of_their_own(model, tmp_path):
    other = str(device.Cores(device.available()[:2]))
    targets = {other: "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"}
    model = replace(model, kernels=replace(model.kernels, targets=targets))
    first, second = model.split([["first"]]).stages
    stages = Stage.on(first, "tvm", CORES[:1]), Stage.on(second, "tvm", (CORES[0], other, CORES[1]))
    write_split(model, Deployment(stages), tmp_path, results.SplitResults())
    document = manifest_file.read(tmp_path)
    files = [replica.file for replica in document.stages[1].replicas]
    assert files == [None, "stage1_1.so", None]
    assert document.stages[1].replicas[1].target != document.stages[1].replicas[0].target
    judge(model, autosplit.load(tmp_path))
