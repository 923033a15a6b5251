"""Where the stages of an export run on a machine that is not the one it was made on, and what is checked first."""

import hashlib
import platform
from types import SimpleNamespace

import pytest

from autosplit.deploy import load as loading
from autosplit.deploy.manifest import Manifest
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Cores, Rpc
from tests.report.manifests import sound


@pytest.fixture(autouse=True)
def three(monkeypatch):
    """A machine with cores 0, 1 and 4."""
    monkeypatch.setattr(device, "available", lambda: (0, 1, 4))


def made_for(*names):
    document = sound()
    for stage, name in zip(document["stages"], names, strict=True):
        stage["device"] = name
    return Manifest.model_validate(document)


def placed(*names, given=()):
    return [str(d) for d in loading.placed(made_for(*names), given)]


def test_stages_run_where_they_were_made_for():
    assert placed("cores:4", "cores:0,1", "cores:4") == ["cores:4", "cores:0,1", "cores:4"]


def test_where_one_core_is_not_here_all_local_stages_take_the_cores_there_are():
    assert placed("cores:1", "cores:7", "cores:0") == ["cores:0", "cores:1", "cores:4"]


def test_servers_stay_where_they_are_while_local_stages_move():
    assert placed("cores:9", "rpc:pi:9090", "cores:8") == ["cores:0", "rpc:pi:9090", "cores:1"]


def test_two_stages_on_a_tracker_s_key_are_on_two_servers():
    found = loading.placed(made_for("tracker:t:1/k", "cores:9", "tracker:t:1/k"))
    assert [d.copy for d in found if isinstance(d, Rpc)] == [0, 1]
    assert Cores((0,)) in found


def test_so_they_are_where_no_core_is_missing():
    found = loading.placed(made_for("tracker:t:1/k", "cores:0", "tracker:t:1/k"))
    assert [d.copy for d in found if isinstance(d, Rpc)] == [0, 1]


def test_devices_that_are_given_count_and_no_others():
    assert placed("cores:9", "nonsense", "cores:8", given=["cores:1", "cores:1", "rpc:h:1"]) == [
        "cores:1", "cores:1", "rpc:h:1",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="3 stages need 3 devices, not 2"):
        placed("cores:0", "cores:0", "cores:0", given=["cores:0", "cores:0"])
    with pytest.raises(MachineError, match="needs core 9"):
        placed("cores:0", "cores:0", "cores:0", given=["cores:0", "cores:0", "cores:9"])


@pytest.mark.parametrize("name", ["", "gpu:0", "cores:x", "rpc:h", "../x"])
def test_a_device_of_a_manifest_that_is_none_is_named(name):
    with pytest.raises(ConfigError, match=f"device '{name}'"):
        placed("cores:0", name, "cores:0")


def digest(text):
    return hashlib.sha256(text).hexdigest()


def test_a_file_whose_content_is_recorded_is_given(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.so").write_bytes(b"code")
    assert loading.checked(tmp_path, "deep/a.so", digest(b"code")) == tmp_path / "deep" / "a.so"


def test_another_content_a_folder_and_nothing_are_refused(tmp_path):
    (tmp_path / "a.so").write_bytes(b"code")
    (tmp_path / "folder").mkdir()
    wanted = digest(b"other")
    with pytest.raises(
        ConfigError,
        match=f"has sha256 {digest(b'code')[:12]}…, recorded is {wanted[:12]}…; it was changed",
    ):
        loading.checked(tmp_path, "a.so", wanted)
    for name in ("folder", "absent.so"):
        with pytest.raises(ConfigError, match=f"{name}' is missing; export the split again"):
            loading.checked(tmp_path, name, wanted)


@pytest.mark.parametrize("way", ["file", "folder", "chain"])
def test_no_link_leads_out_of_the_folder(tmp_path, way):
    export = tmp_path / "export"
    export.mkdir()
    (tmp_path / "out.so").write_bytes(b"code")
    if way == "file":
        (export / "a.so").symlink_to(tmp_path / "out.so")
    elif way == "folder":
        (export / "sub").symlink_to(tmp_path)
    else:
        (export / "b.so").symlink_to(tmp_path / "out.so")
        (export / "a.so").symlink_to("b.so")
    with pytest.raises(ConfigError, match="leads out of the folder"):
        loading.checked(export, "sub/out.so" if way == "folder" else "a.so", digest(b"code"))


def test_a_link_that_stays_inside_is_a_file(tmp_path):
    (tmp_path / "a.so").write_bytes(b"code")
    (tmp_path / "b.so").symlink_to("a.so")
    (tmp_path.parent / "around").symlink_to(tmp_path)
    assert loading.checked(tmp_path, "b.so", digest(b"code")).name == "b.so"
    assert loading.checked(tmp_path.parent / "around", "a.so", digest(b"code")).name == "a.so"


class Stage:
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


@pytest.fixture
def prepared(monkeypatch):
    """A manifest whose files are all there; a loader that is given as a function of the number of the stage."""

    def prepare(make):
        made = []

        def load_stage(runtime, file, sha256, inputs, outputs, on):
            made.append(make(len(made)))
            return made[-1]

        document = sound()
        document["environment"] = {"architecture": platform.machine()}
        for stage in document["stages"]:
            stage.update(runtime="onnxruntime")
        monkeypatch.setattr(
            loading.manifest, "read", lambda folder: Manifest.model_validate(document)
        )
        monkeypatch.setattr(loading, "checked", lambda folder, name, sha256: folder / name)
        monkeypatch.setattr(loading, "load_stage", load_stage)
        return made

    return prepare


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError("first\nno symbol f"),
            (MachineError, "'stage2.so' does not load with this onnxruntime: no symbol f; see"),
        ),
        (ConfigError("wrong device"), (ConfigError, "^wrong device$")),
        (KeyboardInterrupt(), (KeyboardInterrupt, "^$")),
    ],
)
def test_a_stage_that_does_not_load_closes_those_before_it(prepared, tmp_path, error, told):
    made = prepared(lambda number: Stage() if number < 2 else raises(error))
    with pytest.raises(told[0], match=told[1]):
        loading.load(tmp_path)
    assert [stage.closed for stage in made] == [1, 1]


def test_a_pipeline_that_is_loaded_closes_its_stages_once_it_is_closed(prepared, tmp_path):
    made = prepared(lambda number: Stage())
    with loading.load(tmp_path, depth=3, trace=True) as pipeline:
        assert [stage.closed for stage in made] == [0, 0, 0]
        assert pipeline.capacity == 3 * 4
    assert [stage.closed for stage in made] == [1, 1, 1]


def test_the_weights_beside_an_onnx_stage_are_checked_as_the_stage_is(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"model")
    (tmp_path / "a.data").write_bytes(b"weights")
    document = sound()
    part = {
        "file": "a.onnx",
        "sha256": digest(b"model"),
        "data": "a.data",
        "data_sha256": digest(b"weights"),
    }
    document["stages"][0].update(
        runtime="onnxruntime", file="a.onnx", sha256=digest(b"model"), onnx=part
    )
    stage = Manifest.model_validate(document).stages[0]
    assert loading._stage_file(tmp_path, stage) == tmp_path / "a.onnx"
    (tmp_path / "a.data").write_bytes(b"changed")
    with pytest.raises(ConfigError, match=r"a\.data' has sha256"):
        loading._stage_file(tmp_path, stage)


@pytest.fixture
def target(monkeypatch):
    """Let this be an x86_64 machine whose processor lacks what it is told to, and targets be told by their text."""

    def pretend(lacks=()):
        monkeypatch.setattr(loading.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(
            loading,
            "target_of",
            lambda text: SimpleNamespace(
                host=None, attrs={"mcpu": text}, kind=SimpleNamespace(name="llvm")
            ),
        )
        monkeypatch.setattr(loading, "architecture", lambda target: target.attrs["mcpu"])
        monkeypatch.setattr(loading.processor, "lacking", lambda target: lacks)

    return pretend


def made_with(environment, own=None):
    document = sound() | {"environment": environment}
    document["stages"][0]["target"] = own
    manifest = Manifest.model_validate(document)
    return manifest, manifest.stages[0]


@pytest.mark.parametrize(
    ("environment", "own", "told"),
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
        ({"architecture": "aarch64"}, "x86_64", None),  # a stage's own target counts
        ({}, None, None),
    ],
)
def test_a_stage_runs_on_the_architecture_it_was_made_for(target, environment, own, told):
    target()
    if told is None:
        loading._check_target(*made_with(environment, own))
        return
    with pytest.raises(MachineError, match=told):
        loading._check_target(*made_with(environment, own))


def test_a_processor_that_can_do_less_is_told_with_what_it_lacks(target):
    target(lacks=("avx2", "fma"))
    with pytest.raises(
        MachineError,
        match="exported for newest, this processor lacks avx2, fma; export it on this machine",
    ):
        loading._check_target(*made_with({"target": "newest"}))


def test_onnx_stages_need_no_processor_and_tvm_stages_on_servers_no_check(
    prepared, tmp_path, monkeypatch
):
    prepared(lambda number: Stage())
    monkeypatch.setattr(loading, "_check_target", lambda document, stage: pytest.fail("checked"))
    with loading.load(tmp_path) as pipeline:
        assert pipeline.capacity == 2 * 4


def test_the_files_lie_beside_the_manifest(prepared, tmp_path, monkeypatch):
    prepared(lambda number: Stage())
    folders = []
    monkeypatch.setattr(
        loading, "checked", lambda folder, name, sha256: folders.append(folder) or folder / name
    )
    for given in (tmp_path, tmp_path / "split.json"):
        loading.load(given).close()
    assert set(folders) == {tmp_path}
