import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autosplit.deploy import manifest, manifest_file
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.errors import ConfigError
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.wiring import Connection
from tests.deploy.exports import sound


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
    assert {stage.runtime for stage in parsed.stages} == {"tvm"}  # where none is named
    written = json.loads((tmp_path / "again" / manifest.NAME).read_text())
    assert all("from" in connection for connection in written["connections"])


def test_a_folder_called_like_a_file_or_the_file_itself_is_read(put, tmp_path):
    folder = put(sound(), "other.json")
    assert manifest_file.read(folder / "other.json").model.name == "net"
    advice = r"has no readable split\.json .*; give a folder written by `autosplit export`"
    with pytest.raises(ConfigError, match=advice):
        manifest_file.read(folder)
    (tmp_path / "out.json").mkdir()
    put(sound(), f"out.json/{manifest.NAME}")
    assert manifest_file.read(tmp_path / "out.json").model.name == "net"


def test_the_wiring_is_that_of_the_connections():
    wiring = wired(Manifest.model_validate(sound()))
    assert wiring.inputs == (Port("x", (2, 3), "float32"),)
    assert [p.name for p in wiring.outputs] == ["b", "y"]
    assert [[p.name for p in s.inputs] for s in wiring.stages] == [["x"], ["a", "x"], ["b", "c"]]
    assert wiring.connections[0] == Connection("x", "x", (0, 1), ())
    assert wiring.connections[2] == Connection("b", (0, 1), (2,), ("b",))


def refused(change):
    document = sound()
    change(document)
    with pytest.raises(ValidationError) as error:
        Manifest.model_validate(document)
    return ".".join(map(str, error.value.errors()[0]["loc"]))


ESCAPES = [
    "split.json", "..", "../a", "a/..", "a/../../b", "/a", "//a", "", ".", "./", "..\\a", "a\\b",
    "a\0", "\0",
]  # fmt: skip
ZEROS = "0" * 64
FILES = {
    "stages.0.file": lambda d, name: d["stages"][0].update(file=name),
    "reference.file": lambda d, name: d.update(reference={"file": name, "sha256": ZEROS}),
    "stages.0.onnx.file": lambda d, name: d["stages"][0].update(
        onnx={"file": name, "sha256": ZEROS}
    ),
    "stages.0.onnx.data": lambda d, name: d["stages"][0].update(
        onnx={"file": "a.onnx", "sha256": ZEROS, "data": name, "data_sha256": ZEROS}
    ),
}


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("place", FILES)
def test_no_file_of_a_manifest_lies_outside_the_folder(name, place):
    assert refused(lambda document: FILES[place](document, name)) == place


@given(st.text(max_size=20) | st.sampled_from(["a.so", "stage 0.so", ".hidden", "..a", "ü 🌲"]))
def test_a_name_that_is_taken_stays_inside(name):
    document = sound()
    document["stages"][0]["file"] = name
    is_inside = name not in ("", ".", "..", "split.json") and not {*name} & {*"/\\\0"}
    try:
        assert Manifest.model_validate(document).stages[0].file == name
    except ValidationError:
        assert not is_inside
    else:
        assert is_inside


SPREAD = {"median": 1.0, "low": 1.0, "high": 1.0}
BASELINE = {"name": "one core", "period_ms": SPREAD, "latency_ms": SPREAD}
COMPARISON = {"reference": "onnxruntime", "items": 8, "seed": 0, "tolerance": 1e-4}
DIGESTS = ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n", None, 0]
RUNTIMES = ["", "TVM", "tvmx", "xonnxruntime", "os", None]
MANY = [{"device": "cores:0"}] * 100_000


@pytest.mark.parametrize(
    ("place", "change"),
    [
        *[("stages.1.sha256", lambda d, x=x: d["stages"][1].update(sha256=x)) for x in DIGESTS],
        *[("model.sha256", lambda d, x=x: d["model"].update(sha256=x)) for x in DIGESTS],
        *[("stages.0.runtime", lambda d, x=x: d["stages"][0].update(runtime=x)) for x in RUNTIMES],
        *[
            ("stages.0.inputs.0.dtype", lambda d, x=x: d["stages"][0]["inputs"][0].update(dtype=x))
            for x in (">f4", "f4", "object", "float99")  # of another byte order, or no numbers
        ],
        ("stages.1.replicas", lambda d: d["stages"][1].update(replicas=[])),
        ("stages.1.replicas", lambda d: d["stages"][1].update(replicas=MANY)),
        ("", lambda d: [stage.update(replicas=MANY[:400]) for stage in d["stages"]]),
        ("stages.0.index", lambda d: d["stages"][0].update(index=-1)),
        ("stages.0.inputs.0.shape.1", lambda d: d["stages"][0]["inputs"][0].update(shape=[2, -3])),
        ("connections.0.bytes", lambda d: d["connections"][0].update(bytes=-1)),
        ("connections.1.from", lambda d: d["connections"][1]["from"].update(stage=-1)),
        ("connections.1.from", lambda d: d["connections"][1]["from"].update(output=-1)),
        ("connections.1.to", lambda d: d["connections"][1]["to"][0].update(stage=-1)),
        ("stages", lambda d: d.update(stages=[])),
        ("environment", lambda d: d.pop("environment")),
        ("baselines.0.copies", lambda d: d.update(baselines=[BASELINE | {"copies": 0}])),
        ("batch", lambda d: d.update(batch=0)),
        (
            "model.variants.a.advance",
            lambda d: d["model"].update(variants={"a": {"inputs": [], "advance": 0}}),
        ),
        ("batch", lambda d: d.update(batch=10**9)),
        ("comparison.items", lambda d: d.update(comparison=COMPARISON | {"items": 10**9})),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_place(place, change):
    assert place in refused(change)


def test_the_files_of_replicas_belong_to_the_export(put):
    document = sound()
    other = {"device": "cuda:0", "file": "stage1_1.so", "sha256": "1" * 64, "target": "cuda"}
    document["stages"][1]["replicas"].append(other)
    assert manifest_file.read(put(document)).files["stage1_1.so"] == "1" * 64


def test_a_damaged_place_is_told_in_one_line(put):
    document = sound()
    del document["stages"][2]["outputs"]
    damaged = r"split\.json' is damaged at stages\.2\.outputs: .*; export it again$"
    with pytest.raises(ConfigError, match=damaged):
        manifest_file.read(put(document))


@pytest.mark.parametrize("version", [0, 1, 2, 1.5, "1", None, True, [1]])
def test_another_format_is_told_before_anything_is_read(put, version):
    another = r"has format .*, this autosplit reads 3; export it again"
    with pytest.raises(ConfigError, match=another):
        manifest_file.read(put({"format": version, "stages": "nonsense"}))


BROKEN = dict.fromkeys([b"", b"{", b"[" * 100_000, b"{} more", b"\xff\xfe{"], "is not JSON: ")
BROKEN |= dict.fromkeys([b"[]", b"1", b'"text"', b"null"], "has format None")


@pytest.mark.parametrize(("content", "problem"), BROKEN.items())
def test_what_is_no_json_or_no_object_is_told_so(content, problem):
    with pytest.raises(ConfigError, match=rf"^'split\.json' {problem}.*; export it again$"):
        manifest_file.parse(content, "split.json")
