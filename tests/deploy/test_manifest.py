import json
import re

import pytest

import autosplit
from autosplit.deploy import manifest, manifest_file
from autosplit.deploy.manifest_wiring import wired
from autosplit.errors import ConfigError
from tests.deploy.exports import SOUND, add_state, port, put, sound


def write(folder, document, name=manifest.NAME):
    """Write a document as a manifest; returns its folder."""
    (folder / name).write_text(json.dumps(document), encoding="utf-8")
    return folder


def check(document):
    """The wiring of a manifest that is read."""
    return wired(manifest_file.parse(json.dumps(document).encode(), "split.json"))


def refused(document):
    """The one line with which a manifest is refused."""
    with pytest.raises(ConfigError, match=r"^.*; export (it|the split) again$") as error:
        check(document)
    return str(error.value)


def test_what_is_written_reads_back(tmp_path):
    parsed = manifest_file.read(write(tmp_path, sound()))
    manifest_file.write(parsed, tmp_path / "again" / manifest.NAME)
    assert manifest_file.read(tmp_path / "again") == parsed
    assert {stage.runtime for stage in parsed.stages} == {"tvm"}  # where none is named
    written = json.loads((tmp_path / "again" / manifest.NAME).read_text())
    assert all("from" in connection for connection in written["connections"])


def test_a_folder_called_like_a_file_or_the_file_itself_is_read(tmp_path):
    folder = write(tmp_path, sound(), "other.json")
    assert manifest_file.read(folder / "other.json").model.name == "net"
    advice = r"has no readable split\.json .*; give a folder written by `autosplit export`"
    with pytest.raises(ConfigError, match=advice):
        manifest_file.read(folder)
    (tmp_path / "out.json").mkdir()
    write(tmp_path, sound(), f"out.json/{manifest.NAME}")
    assert manifest_file.read(tmp_path / "out.json").model.name == "net"


BROKEN = dict.fromkeys([b"", b"{", b"[" * 100_000, b"{} more", b"\xff\xfe{"], "is not JSON: ")
BROKEN |= dict.fromkeys([b"[]", b"1", b'"text"', b"null"], "has format None")


@pytest.mark.parametrize(("content", "problem"), BROKEN.items())
def test_what_is_no_json_or_no_object_is_told_so(content, problem):
    with pytest.raises(ConfigError, match=rf"^'split\.json' {problem}.*; export it again$"):
        manifest_file.parse(content, "split.json")


@pytest.mark.parametrize("version", [0, 1, 2, 1.5, "1", None, True, [1]])
def test_another_format_is_told_before_anything_is_read(version):
    another = f"'split.json' has format {version!r}, this autosplit reads 3; export it again"
    assert refused({"format": version, "stages": "nonsense"}) == another


ZEROS = "0" * 64
SPREAD = {"median": 1.0, "low": 1.0, "high": 1.0}
BASELINE = {"name": "one core", "period_ms": SPREAD, "latency_ms": SPREAD, "copies": 1}
COMPARISON = {"reference": "onnxruntime", "items": 8, "seed": 0, "tolerance": 1e-4}
ONNX = {"file": "a.onnx", "sha256": ZEROS, "data": "b", "data_sha256": ZEROS}


def whole():
    """A sound manifest with entries that need not be there."""
    document = sound() | {
        "reference": {"file": "r", "sha256": ZEROS},
        "baselines": [dict(BASELINE)],
    }
    document["comparison"] = dict(COMPARISON)
    document["model"]["variants"] = {"a": {"inputs": [port("x")], "advance": 1}}
    return put(document, "stages.0.onnx", dict(ONNX))


ESCAPES = [
    "split.json", "..", "../a", "a/..", "a/../../b", "/a", "//a", "", ".", "./", "..\\a", "a\\b",
    "a\0", "\0", "\ud800",
]  # fmt: skip
FILES = "stages.0.file", "reference.file", "stages.0.onnx.file", "stages.0.onnx.data"
DIGESTS = ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n", None, 0]
MANY = [{"device": "cores:0"}] * 100_000
IMPOSSIBLE = {
    **dict.fromkeys(FILES, ESCAPES),  # no file lies outside the folder
    "stages.1.sha256": DIGESTS,
    "model.sha256": DIGESTS,
    "stages.0.runtime": ["", "TVM", "tvmx", "xonnxruntime", "os", None],
    # Of another byte order, or no numbers.
    "stages.0.inputs.0.dtype": [">f4", "f4", "object", "float99"],
    "stages.1.replicas": [[], MANY],
    "stages.0.index": [-1],
    "stages.0.inputs.0.shape.1": [-3],
    "stages.2.outputs": [...],
    "connections.0.bytes": [-1],
    "connections.1.from": [{"stage": -1, "output": 0}, {"stage": 0, "output": -1}],
    "connections.1.to": [[{"stage": -1, "input": "a"}]],
    "stages": [[]],
    "environment": [...],
    "baselines.0.copies": [0],
    "batch": [0, 10**9],
    "model.variants.a.advance": [0],
    "comparison.items": [10**9],
}


@pytest.mark.parametrize(
    ("place", "value"), [(place, value) for place, of in IMPOSSIBLE.items() for value in of]
)
def test_a_value_that_cannot_be_is_refused_by_its_place(place, value):
    assert check(whole())
    assert refused(put(whole(), place, value)).startswith(f"'split.json' is damaged at {place}")


def test_more_replicas_than_any_machine_has_are_refused_however_they_are_shared():
    document = sound()
    for stage in document["stages"]:
        stage["replicas"] = MANY[:400]
    assert "1200 replicas are more than 1024" in refused(document)


def test_a_name_that_stays_inside_is_taken():
    for name in ("a.so", "stage 0.so", ".hidden", "..a", "ü 🌲"):
        assert check(put(sound(), "stages.0.file", name)).stages[0].file == name


def test_a_tensor_nobody_reads_does_no_harm():
    document = put(sound(), "stages.1.outputs.1", port("idle"))
    assert len(check(document).connections) == len(SOUND["connections"])


TO = [(c, t) for c, tensor in enumerate(SOUND["connections"]) for t in range(len(tensor["to"]))]


@pytest.mark.parametrize(("number", "place"), TO)
@pytest.mark.parametrize("count", [0, 2])
def test_every_end_of_a_connection_is_there_once(number, place, count):
    document = sound()
    ends = document["connections"][number]["to"]
    ends[place : place + 1] = [ends[place]] * count
    name = SOUND["connections"][number]["tensor"]
    lines = f"the connection of tensor '{name}' does", "the model's outputs are b, y, those"
    assert refused(document).startswith(lines)


@pytest.mark.parametrize(("number", "place"), TO)
@pytest.mark.parametrize("odd", [{"shape": [2, 4]}, {"shape": [2, 3, 1]}, {"dtype": "int32"}])
def test_both_ends_have_one_shape_and_dtype(number, place, odd):
    document = sound()
    end = document["connections"][number]["to"][place]
    owner = document["stages"][end["stage"]] if "stage" in end else document["model"]
    ports = owner["inputs" if "stage" in end else "outputs"]
    name = end.get("input", end.get("output"))
    next(port for port in ports if port["name"] == name).update(odd)
    name = SOUND["connections"][number]["tensor"]
    assert re.search(rf"reads '{name}', \w+\[[\d, ]+\], which nothing before", refused(document))


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        ("stages.0.index", 2, "stage 2 is listed at position 0"),
        ("stages.2.inputs.2", port("b"), "'b' is listed 2 times"),
        ("stages.0.inputs.1", port("a"), "stage 0 reads 'a', float32[2, 3], which nothing before"),
        ("stages.0.inputs.1", port("c"), "stage 0 reads 'c', float32[2, 3], which nothing before"),
        ("stages.2.outputs.1", port("a"), "'a' is listed 2 times"),
        ("model.inputs.1", port("a"), "'a' is listed 2 times"),
        ("model.outputs.2", port("y"), "the model's outputs are b, y, y, those connected b, y"),
        ("connections.2.from", {"stage": 2, "output": 0}, "connection of tensor 'b' does not"),
        ("connections.0.from.input", "z", "connection of tensor 'x' does not"),
        ("connections.1.from.stage", 3, "connection of tensor 'a' does not"),
        ("connections.1.from.output", 2, "connection of tensor 'a' does not"),
        ("connections.1.to", [{"stage": 3, "input": "a"}], "connection of tensor 'a' does not"),
        ("connections.1.to", [{"stage": 2, "input": "a"}], "connection of tensor 'a' does not"),
        ("connections.5", SOUND["connections"][3], "connection of tensor 'c' does not"),
        ("connections.4", ..., "the model's outputs are b, y, those connected b"),
        ("connections.3", ..., "connection of tensor 'y' does not"),
        ("model.states", {"h": "n"}, "the stages have the states none"),
        ("model.variants", {"a": {"inputs": [port("y")]}}, "'a' has other inputs than the model"),
    ],
)
def test_what_does_not_fit_is_named(place, value, line):
    assert line in refused(put(sound(), place, value))


@pytest.mark.parametrize(
    ("batch", "fields", "line"),
    [(1, {"input": "a"}, "the stages have the states a, the model h"),
     (1, {"output": "none"}, "stage 1 has no ports of one shape and type"),
     (1, {"shape": [1]}, "stage 1 has no ports of one shape and type"),
     (1, {"dtype": "int64"}, "stage 1 has no ports of one shape and type for its state 'h'"),
     (2, {}, "a batch of 2 items has no state")],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_named(batch, fields, line):
    add_state(document := sound() | {"batch": batch}, **fields)
    assert line in refused(document)


@pytest.mark.parametrize("field", [{"shape": [2**62, 2**62]}, {"dtype": "float8_zz"}])
def test_a_state_that_no_array_holds_is_refused(field, tmp_path):
    add_state(document := sound())
    stage = document["stages"][1]
    for part in (stage["inputs"][-1], stage["outputs"][-1], stage["states"][0]):
        part.update(field)
    (tmp_path / "split.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"a state in '.*' has no arrays"):
        autosplit.load(tmp_path)
