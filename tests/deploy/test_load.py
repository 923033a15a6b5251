"""Where the stages of an export run on another machine, and what is checked first."""

import json
import threading
from types import SimpleNamespace

import pytest

from autosplit.deploy import stages as loading
from autosplit.deploy.load import load
from autosplit.deploy.manifest import Manifest
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.cluster import connection
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Cores, Rpc
from autosplit.hardware.runtimes import stage_spec as files
from tests.deploy.manifests import digest, sound, write_export


@pytest.fixture(autouse=True)
def three(monkeypatch):
    """A machine with cores 0, 1 and 4."""
    monkeypatch.setattr(device, "available", lambda: (0, 1, 4))


def made_for(*names):
    document = sound()
    for stage, name in zip(document["stages"], names, strict=True):
        stage["replicas"] = [{"device": name}]
    return Manifest.model_validate(document)


def places_of(document, devices=()):
    return [d for places in loading.place_replicas(document, devices) for d in places]


def placed(*names, devices=()):
    return [str(d) for d in places_of(made_for(*names), devices)]


def test_stages_run_where_they_were_made_for():
    assert placed("cores:4", "cores:0,1", "cores:4") == ["cores:4", "cores:0,1", "cores:4"]


def test_where_one_core_is_not_here_all_local_stages_take_the_cores_there_are():
    assert placed("cores:1", "cores:7", "cores:0") == ["cores:0", "cores:1", "cores:4"]


def test_servers_stay_where_they_are_while_local_stages_move():
    assert placed("cores:9", "rpc:pi:9090", "cores:8") == ["cores:0", "rpc:pi:9090", "cores:1"]


def test_stages_of_ray_nodes_take_those_cores_here():
    assert placed("ray:pi/cores:4", "ray:pi/cores:0", "cores:1") == [
        "cores:4",
        "cores:0",
        "cores:1",
    ]
    with pytest.raises(ConfigError, match=r"on a Ray cluster; use .*on_ray"):
        placed("cores:0", "cores:0", "cores:0", devices=["ray:pi/cores:0"] * 3)


def test_two_stages_on_a_tracker_s_key_are_on_two_servers():
    places = places_of(made_for("tracker:t:1/k", "cores:9", "tracker:t:1/k"))
    assert [d.copy for d in places if isinstance(d, Rpc)] == [0, 1]
    assert Cores((0,)) in places


def test_so_they_are_where_no_core_is_missing():
    places = places_of(made_for("tracker:t:1/k", "cores:0", "tracker:t:1/k"))
    assert [d.copy for d in places if isinstance(d, Rpc)] == [0, 1]


def test_devices_that_are_given_count_and_no_others():
    assert placed("cores:9", "nonsense", "cores:8", devices=["cores:1", "cores:1", "rpc:h:1"]) == [
        "cores:1", "cores:1", "rpc:h:1",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="3 replicas, but 2 devices"):
        placed("cores:0", "cores:0", "cores:0", devices=["cores:0", "cores:0"])
    with pytest.raises(MachineError, match="needs core 9"):
        placed("cores:0", "cores:0", "cores:0", devices=["cores:0", "cores:0", "cores:9"])


@pytest.mark.parametrize("name", ["", "gpu:0", "cores:x", "rpc:h", "../x"])
def test_a_device_of_a_manifest_that_is_none_is_named(name):
    with pytest.raises(ConfigError, match=f"device '{name}'"):
        placed("cores:0", name, "cores:0")


class Stage:
    def __init__(self, content):
        self.content = content
        self.closed = 0

    def open(self):
        pass

    def close(self):
        self.closed += 1


@pytest.fixture
def exported(tmp_path):
    """An export of three ONNX stages whose files hold their names."""
    return write_export(tmp_path / "export", "stage{}.onnx")


def load_by(function, monkeypatch):
    """Load stages by a function in place of a runtime."""
    monkeypatch.setattr(files, "runtime_class", lambda _: SimpleNamespace(load_stages=function))


@pytest.fixture
def loaded(monkeypatch):
    """The stages that were loaded; in place of a runtime, the content of their files is kept."""
    stages = []

    def load_stages(file, sha256, ports, places):
        stages.extend(Stage(file.read_text()) for _ in places)
        return stages[-len(places) :]

    load_by(load_stages, monkeypatch)
    return stages


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            OSError("first\nno symbol f"),
            MachineError,
            "'stage2.onnx' does not load with this onnxruntime: no symbol f; see",
        ),
        (ConfigError("wrong device"), ConfigError, "^wrong device$"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_a_stage_that_does_not_load_closes_those_before_it(
    exported, loaded, monkeypatch, error, kind, text
):
    load_stages = files.runtime_class("onnxruntime").load_stages

    def fail_at_two(file, *arguments):
        if file.name == "stage2.onnx":
            raise error
        return load_stages(file, *arguments)

    load_by(fail_at_two, monkeypatch)
    with pytest.raises(kind, match=text), load(exported):
        pass
    assert [stage.closed for stage in loaded] == [1, 1]


def test_a_stage_whose_loading_hangs_is_named_in_time(exported, loaded, monkeypatch):
    goes_on = threading.Event()
    load_by(lambda *_: goes_on.wait(60), monkeypatch)
    monkeypatch.setattr(files, "LOAD_S", 0.1)
    hangs = pytest.raises(MachineError, match=r"'stage0.onnx' does not load .* no answer .* hangs")
    with hangs, load(exported):
        pass
    goes_on.set()


def test_a_closed_pipeline_closes_its_stages_once(exported, loaded):
    with load(exported, depth=3, trace=True) as pipeline:
        assert [stage.closed for stage in loaded] == [0, 0, 0]
        assert pipeline.capacity == 3 * 4
    assert [stage.closed for stage in loaded] == [1, 1, 1]


@pytest.mark.parametrize("name", [".", "split.json"])
def test_the_files_lie_beside_the_manifest(exported, loaded, name):
    with load(exported / name):
        pass
    assert [stage.content for stage in loaded] == ["stage0.onnx", "stage1.onnx", "stage2.onnx"]


def test_the_weights_beside_an_onnx_stage_are_checked(exported, loaded):
    (exported / "stage0.data").write_text("weights")
    document = json.loads((exported / "split.json").read_text())
    document["stages"][0]["onnx"] = {
        "file": "stage0.onnx",
        "sha256": document["stages"][0]["sha256"],
        "data": "stage0.data",
        "data_sha256": digest("weights"),
    }
    (exported / "split.json").write_text(json.dumps(document))
    load(exported).start()
    (exported / "stage0.data").write_text("changed")
    with pytest.raises(ConfigError, match=r"stage0\.data' has sha256"):
        load(exported)


@pytest.fixture
def target(monkeypatch):
    """Pretend an x86_64 machine with a processor that lacks some features."""

    def pretend(lacks=()):
        monkeypatch.setattr(files.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(
            files,
            "target_of",
            lambda text: SimpleNamespace(
                host=None,
                attrs={"mcpu": text, "mtriple": text and f"{text}-linux"},
                kind=SimpleNamespace(name="llvm"),
            ),
        )
        monkeypatch.setattr(files.processor, "missing_features", lambda target: lacks)

    return pretend


def made_with(environment, stage_target=None):
    document = sound() | {"environment": environment}
    document["stages"][0]["replicas"][0]["target"] = stage_target
    manifest = Manifest.model_validate(document)
    return manifest.stages[0], environment


@pytest.mark.parametrize(
    ("environment", "stage_target", "text"),
    [
        (
            {"architecture": "aarch64"},
            None,
            "the split was exported for aarch64, this machine is x86_64",
        ),
        (
            {"architecture": "x86_64"},
            "aarch64",
            "the split was exported for aarch64, this machine is x86_64",
        ),
        ({"architecture": "x86_64"}, None, None),
        ({"architecture": "aarch64"}, "x86_64", None),  # the stage's target counts
        ({}, None, None),
    ],
)
def test_a_stage_runs_on_the_architecture_it_was_made_for(target, environment, stage_target, text):
    target()
    spec, environment = made_with(environment, stage_target)
    if text is None:
        spec.require_here(environment)
        return
    with pytest.raises(MachineError, match=text):
        spec.require_here(environment)


def test_a_processor_that_can_do_less_is_told_with_what_it_lacks(target):
    target(lacks=("avx2", "fma"))
    spec, environment = made_with({"target": "x86_64"})
    with pytest.raises(
        MachineError,
        match="exported for x86_64, this processor lacks avx2, fma; export it on this machine",
    ):
        spec.require_here(environment)


def test_onnx_stages_need_no_processor(exported, loaded, monkeypatch):
    monkeypatch.setattr(files, "target_of", lambda *_: pytest.fail("checked"))
    load(exported).start()


def test_a_pipeline_that_goes_to_a_cluster_loads_nothing_here(exported, loaded, monkeypatch):
    monkeypatch.setattr(connection, "connected", lambda _: pytest.fail("reached the cluster"))
    with pytest.raises(pytest.fail.Exception, match="reached"):
        load(exported).on_ray()
    assert loaded == []
