import contextlib
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from autosplit.deploy import stages as loading
from autosplit.deploy.load import load
from autosplit.deploy.manifest import Manifest
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.cluster import connection
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Rpc
from autosplit.hardware.runtimes import stage_files as files
from autosplit.hardware.runtimes.interface import Stage
from tests.deploy.exports import put, sound, write_export


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


@pytest.mark.parametrize(
    ("names", "places"),
    [
        ("cores:4 cores:0,1 cores:4", "cores:4 cores:0,1 cores:4"),
        # Where one core is not here all local stages take the cores there are,
        ("cores:1 cores:7 cores:0", "cores:0 cores:1 cores:4"),
        # while servers stay where they are.
        ("cores:9 rpc:pi:9090 cores:8", "cores:0 rpc:pi:9090 cores:1"),
        ("cores:9 tracker:t:1/k cores:8", "cores:0 tracker:t:1/k cores:1"),
        # Several cores are replaced by several, in proportion where there are fewer.
        ("cores:0-15 cores:1 rpc:pi:9090", "cores:0,1 cores:4 rpc:pi:9090"),
        # Only `on_ray` runs stages on other nodes.
        ("ray:pi/cores:4 ray:pi/cores:0 cores:1", "cores:4 cores:0 cores:1"),
    ],
)
def test_stages_run_where_they_were_made_for_or_on_the_cores_there_are(names, places):
    assert placed(*names.split()) == places.split()


@pytest.mark.parametrize("core", ["cores:0", "cores:9"])
def test_two_stages_on_a_tracker_s_key_are_on_two_servers(core):
    places = places_of(made_for("tracker:t:1/k", core, "tracker:t:1/k"))
    assert [d.copy for d in places if isinstance(d, Rpc)] == [0, 1]


@pytest.mark.parametrize(
    ("devices", "kind", "text"),
    [(["cores:0"] * 2, ConfigError, "3 replicas, but 2 devices"),
     (["cores:0", "cores:0", "cores:9"], MachineError, "needs core 9"),
     (["cores:0", "ray:pi/cores:1", "cores:0"], ConfigError, "pi/cores:1' is on a Ray .*on_ray")],
)  # fmt: skip
def test_devices_that_are_given_count_and_no_others(devices, kind, text):
    names = "cores:9", "nonsense", "cores:8"
    good = ["cores:1", "cores:1", "rpc:h:1"]
    assert placed(*names, devices=good) == good
    with pytest.raises(kind, match=text):
        placed(*names, devices=devices)
    with pytest.raises(MachineError, match="cores:99999"):
        placed("cores:0", "cores:99999", "cores:1")


@pytest.fixture
def exported(tmp_path):
    """An export of three ONNX stages whose files hold their names."""
    return write_export(tmp_path / "export", "stage{}.onnx", "onnxruntime")


def load_by(function, monkeypatch):
    """Load stages by a function in place of a runtime."""
    monkeypatch.setattr(files, "runtime_class", lambda _: SimpleNamespace(load_stages=function))


@pytest.fixture
def loaded(monkeypatch):
    """The stages that were loaded; in place of a runtime, the content of their files is kept."""
    stages = []

    def load_stages(file, spec, places):
        stages.extend(Mock(Stage, content=file.read_text()) for _ in places)
        return stages[-len(places) :]

    load_by(load_stages, monkeypatch)
    return stages


NO_SYMBOL = "'stage2.onnx' does not load with this onnxruntime: no symbol f; see"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [(OSError("first\nno symbol f"), MachineError, NO_SYMBOL),
     (ConfigError("wrong device"), ConfigError, "^wrong device$"),
     (KeyboardInterrupt(), KeyboardInterrupt, "^$")],
)  # fmt: skip
def test_a_stage_that_fails_closes_the_others(exported, loaded, monkeypatch, error, kind, text):
    load_stages = files.runtime_class("onnxruntime").load_stages

    def fail_at_two(file, *arguments):
        if file.name == "stage2.onnx":
            raise error
        return load_stages(file, *arguments)

    load_by(fail_at_two, monkeypatch)
    with pytest.raises(kind, match=text), load(exported):
        pass
    assert [stage.close.call_count for stage in loaded] == [1, 1]


def test_a_stage_whose_loading_hangs_is_named_in_time(exported, loaded, monkeypatch):
    goes_on = threading.Event()
    load_by(lambda *_: goes_on.wait(60), monkeypatch)
    monkeypatch.setattr(files, "LOAD_S", 0.1)
    hangs = pytest.raises(MachineError, match=r"'stage0.onnx' does not load .* no answer .* hangs")
    with hangs, load(exported):
        pass
    goes_on.set()


@pytest.mark.parametrize("name", [".", "split.json"])
def test_files_lie_beside_the_manifest_and_stages_close_once(exported, loaded, name, monkeypatch):
    monkeypatch.chdir(exported)
    pipeline = load(name, depth=3, trace=True)
    monkeypatch.chdir("/")  # before the stages are loaded
    with pipeline:
        assert pipeline.capacity == 3 * 4
    closed = [(stage.content, stage.close.call_count) for stage in loaded]
    assert closed == [("stage0.onnx", 1), ("stage1.onnx", 1), ("stage2.onnx", 1)]


ARM, X86 = "llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"


@pytest.mark.parametrize(
    ("architecture", "target", "is_refused"),
    [("aarch64", None, True), ("x86_64", ARM, True), ("x86_64", None, False),
     ("aarch64", X86, False), (None, None, False)],  # the stage's target counts
)  # fmt: skip
def test_a_stage_runs_on_the_machine_it_was_made_for(monkeypatch, architecture, target, is_refused):
    monkeypatch.setattr(files.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(files.processor, "missing_features", lambda _: ())
    document = put(sound(), "stages.0.replicas.0.target", target)
    spec = Manifest.model_validate(document).stages[0]
    environment = {"architecture": architecture} if architecture else {}
    refused = pytest.raises(MachineError, match="exported for aarch64, this machine is x86_64")
    with refused if is_refused else contextlib.nullcontext():
        files.require_here(spec, environment)


def test_a_pipeline_loads_nothing_here_before_it_goes_to_a_cluster(exported, loaded, monkeypatch):
    monkeypatch.setattr(connection, "connected", lambda _: pytest.fail("reached the cluster"))
    pipeline = load(exported)
    with pytest.raises(pytest.fail.Exception, match="reached"):
        pipeline.on_ray()
    assert loaded == []
    with pipeline:
        assert loaded
