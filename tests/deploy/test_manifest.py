"""The manifest by itself: what it takes, what it refuses, and that it reads back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autosplit.deploy import manifest, manifest_file
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.errors import ConfigError
from autosplit.hardware.execution.wiring import Connection, Port
from autosplit.hardware.measurement.results import Accuracy, Measurement, SplitResults, Spread
from tests.deploy.manifests import port, sound


@pytest.fixture
def put(tmp_path):
    """Write a document as a manifest; returns its folder."""

    def write(document, name=manifest.NAME):
        (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
        return tmp_path

    return write


def test_what_is_written_reads_back(put, tmp_path):
    parsed = manifest_file.read(put(sound()))
    manifest_file.write(parsed, tmp_path / "again" / manifest.NAME)
    assert manifest_file.read(tmp_path / "again") == parsed
    written = json.loads((tmp_path / "again" / manifest.NAME).read_text())
    assert all("from" in connection for connection in written["connections"])


@pytest.mark.parametrize("source", ["b", (0, 1)])
def test_a_connection_to_stages_and_outputs_reads_back(source):
    connection = Connection("b", 24, source, (1, 2), ("b", "too"))
    assert manifest.ConnectionPart.of(connection).connection() == connection


def test_the_largest_error_is_a_part_of_what_was_measured():
    once = Spread(1.0, 1.0, 1.0)
    measured = Measurement(once, once, (1.0,), Accuracy(True, 0.5, 0.25, 1))
    document = sound() | manifest.results_parts(SplitResults(measured, 2.0))
    parsed = Manifest.model_validate(document)
    assert (parsed.measured.max_rel_error, parsed.predicted.period_ms) == (0.25, 2.0)


def test_a_state_is_wired_to_the_ports_of_its_stage():
    document = sound()
    stage = document["stages"][1]
    stage["inputs"].append(port("h"))
    stage["outputs"].append(port("n"))
    stage["states"] = [port("h") | {"input": "h", "output": "n"}]
    document["model"]["states"] = {"h": "n"}
    stages = wired(Manifest.model_validate(document)).stages
    assert [stage.state_places for stage in stages] == [(), ((2, 1),), ()]


def test_a_folder_or_the_file_itself_is_read(put, tmp_path):
    folder = put(sound(), "other.json")
    assert manifest_file.read(folder / "other.json").model.name == "net"
    with pytest.raises(
        ConfigError,
        match=r"has no readable split\.json .*; give a folder written by `autosplit export`",
    ):
        manifest_file.read(folder)


def test_a_folder_may_be_called_like_a_file(tmp_path):
    (tmp_path / "out.json").mkdir()
    (tmp_path / "out.json" / manifest.NAME).write_text(json.dumps(sound()))
    assert manifest_file.read(tmp_path / "out.json").model.name == "net"


def test_the_wiring_is_that_of_the_connections():
    wiring = wired(Manifest.model_validate(sound()))
    assert wiring.inputs == (Port("x", (2, 3), "float32"),)
    assert [p.name for p in wiring.outputs] == ["b", "y"]
    assert [[p.name for p in s.inputs] for s in wiring.stages] == [["x"], ["a", "x"], ["b", "c"]]
    assert wiring.connections[0] == Connection("x", 24, "x", (0, 1), ())
    assert wiring.connections[2] == Connection("b", 24, (0, 1), (2,), ("b",))


def refused(change):
    document = sound()
    change(document)
    with pytest.raises(ValidationError) as error:
        Manifest.model_validate(document)
    return ".".join(map(str, error.value.errors()[0]["loc"]))


ESCAPES = [
    "split.json",
    "..",
    "../a",
    "a/..",
    "a/../../b",
    "/a",
    "//a",
    "",
    ".",
    "./",
    "..\\a",
    "a\\b",
    "a\0",
    "\0",
]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("place", ["stages", "reference", "onnx", "data"])
def test_no_file_of_a_manifest_lies_outside_the_folder(name, place):
    digest = "0" * 64

    def change(document):
        first = document["stages"][0]
        if place == "stages":
            first["file"] = name
        elif place == "reference":
            document["reference"] = {"file": name, "sha256": digest}
        elif place == "onnx":
            first["onnx"] = {"file": name, "sha256": digest}
        else:
            first["onnx"] = {
                "file": "a.onnx",
                "sha256": digest,
                "data": name,
                "data_sha256": digest,
            }

    assert place in refused(change)


@given(st.text(max_size=20))
def test_a_name_that_is_taken_stays_inside(name):
    document = sound()
    document["stages"][0]["file"] = name
    try:
        taken = Manifest.model_validate(document).stages[0].file
    except ValidationError:
        return
    parts = taken.split("/")
    assert taken == name
    assert ".." not in parts
    assert not taken.startswith("/")


@pytest.mark.parametrize("name", ["a", "a.so", "stage 0.so", ".hidden", "..a", "a..b", "ü 🌲"])
def test_a_name_inside_the_folder_is_taken(name):
    document = sound()
    document["stages"][0]["file"] = name
    assert Manifest.model_validate(document).stages[0].file == name


@pytest.mark.parametrize(
    "digest", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n", None, 0]
)
def test_a_digest_is_64_small_hex_digits(digest):
    assert refused(lambda d: d["stages"][1].update(sha256=digest)) == "stages.1.sha256"
    assert refused(lambda d: d["model"].update(sha256=digest)) == "model.sha256"


@pytest.mark.parametrize("runtime", ["", "TVM", "tvmx", "xonnxruntime", "os", None])
def test_an_unknown_runtime_is_refused(runtime):
    assert refused(lambda d: d["stages"][0].update(runtime=runtime)) == "stages.0.runtime"


def test_a_stage_needs_a_replica(put):
    assert refused(lambda d: d["stages"][1].update(replicas=[])) == "stages.1.replicas"


def test_the_files_of_replicas_belong_to_the_export(put):
    document = sound()
    other = {"device": "cuda:0", "file": "stage1_1.so", "sha256": "1" * 64, "target": "cuda"}
    document["stages"][1]["replicas"].append(other)
    assert manifest_file.read(put(document)).files["stage1_1.so"] == "1" * 64


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["stages"][0].update(index=-1),
        lambda d: d["stages"][0]["inputs"][0].update(shape=[2, -3]),
        lambda d: d["connections"][0].update(bytes=-1),
        lambda d: d["connections"][1].update({"from": {"stage": -1, "output": 0}}),
        lambda d: d["connections"][1].update({"from": {"stage": 0, "output": -1}}),
        lambda d: d["connections"][1].update(to=[{"stage": -1, "input": "a"}]),
        lambda d: d.update(stages=[]),
        lambda d: d.pop("environment"),
        lambda d: d.update(
            baselines=[{"name": "one core", "period_ms": SPREAD, "latency_ms": SPREAD, "copies": 0}]
        ),
    ],
)
def test_a_number_below_what_it_counts_is_refused(change):
    assert refused(change)


SPREAD = {"median": 1.0, "low": 1.0, "high": 1.0}


def test_a_baseline_is_one_copy_unless_it_says_more():
    document = sound() | {
        "baselines": [{"name": "one core", "period_ms": SPREAD, "latency_ms": SPREAD}]
    }
    assert Manifest.model_validate(document).baselines[0].copies == 1


def test_a_damaged_place_is_told_in_one_line(put):
    document = sound()
    del document["stages"][2]["outputs"]
    with pytest.raises(
        ConfigError, match=r"split\.json' is damaged at stages\.2\.outputs: .*; export it again$"
    ):
        manifest_file.read(put(document))


def test_one_stage_is_a_split_too():
    document = sound()
    document["stages"] = document["stages"][:1]
    document["model"]["outputs"] = [document["model"]["outputs"][0]]
    document["connections"] = [
        {**document["connections"][0], "to": [{"stage": 0, "input": "x"}]},
        {**document["connections"][2], "to": [{"output": "b"}]},
    ]
    assert len(wired(Manifest.model_validate(document)).stages) == 1


@pytest.mark.parametrize("version", [0, 1, 2, 1.5, "1", None, True, [1]])
def test_another_format_is_told_before_anything_is_read(put, version):
    with pytest.raises(
        ConfigError, match=r"has format .*, this autosplit reads 3; export it again"
    ):
        manifest_file.read(put({"format": version, "stages": "nonsense"}))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *[(t, "is not JSON: .*; export it again") for t in (b"", b"{", b"[" * 100_000, b"{} more")],
        (b"\xff\xfe{", "is not JSON"),
        *[
            (t, "has format None, this autosplit reads 3")
            for t in (b"[]", b"1", b'"text"', b"null")
        ],
    ],
)
def test_what_is_no_document_is_told_so(tmp_path, content, problem):
    (tmp_path / manifest.NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"split\.json' {problem}"):
        manifest_file.read(tmp_path)
