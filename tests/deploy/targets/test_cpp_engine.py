"""The C++ pipeline on fake stages, under the sanitizers: replicas, streams, skips, failures."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from autosplit.deploy import manifest_file
from autosplit.deploy.manifest_wiring import wired
from autosplit.hardware.devices.device import available
from tests.deploy import exports
from tests.deploy.exports import Export, add_program
from tests.deploy.targets.programs import checked, failed, require_tools, run, words_of

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent
SOURCES = ("pipeline.cpp", "system.cpp", "wiring.cpp")
ITEMS, STREAMS = 60, 3
ONE_ITEM = np.zeros((1, 2, 3), "float32")
COMPILED = shutil.ignore_patterns("*_*")


def compile_with(folder, main, sanitizer, objects=None):
    """A program of fake stages; ``objects`` holds what was compiled of another one before."""
    objects = objects or folder
    program, names = folder / f"{main.stem}_{sanitizer}", []
    flags = ["-std=c++17", "-O1", "-g", f"-fsanitize={sanitizer}", "-Wall", "-Wextra", "-Werror"]
    for source in (*(folder / name for name in SOURCES), HERE / "fake_stages.cpp", main):
        place = folder if source.name == "wiring.cpp" else objects
        names.append(place / f"{source.stem}_{sanitizer}.o")
        if not names[-1].exists():
            checked(["g++", *flags, "-I", folder, "-c", source, "-o", names[-1]])
    checked(["g++", f"-fsanitize={sanitizer}", *names, "-pthread", "-o", program])
    return program


ADDRESS = "address,undefined"


@pytest.fixture(scope="module", params=[ADDRESS, "thread"])
def sanitizer(request):
    require_tools("g++")
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stages with replicas, a skip, a state, and an input that is an output too."""

    def change(document):
        for stage, replicas in zip(document["stages"], (2, 3, 1), strict=True):
            stage.update(replicas=[{"device": "cores:0"}] * replicas)
        exports.add_state(document, 's"\\', "s_next")
        document["model"]["outputs"].append(exports.port("x"))
        document["connections"][0]["to"].append({"output": "x"})

    folder = exports.write_export(tmp_path_factory.mktemp("engine"), "stage{}.so", "tvm")
    Export(folder).edit(change)
    wired(manifest_file.read(folder))
    add_program(folder, "cpp")
    return folder


@pytest.fixture(scope="module")
def program(folder, sanitizer):
    return compile_with(folder, folder / "main.cpp", sanitizer)


@pytest.fixture(scope="module")
def refusing(folder):
    """The program for what is refused before a thread starts."""
    require_tools("g++")
    return compile_with(folder, folder / "main.cpp", ADDRESS)


def changed_export(folder, tmp_path, change):
    """A copy of the export with its program, whose manifest is changed."""
    changed = Export(Path(shutil.copytree(folder, tmp_path / "changed", ignore=COMPILED)))
    changed.edit(change)
    add_program(changed.folder, "cpp")
    return changed.folder


def fake(inputs, outputs):
    """What a fake stage computes."""
    values = np.concatenate(inputs)
    checksum = int((np.arange(1, len(values) + 1) * values.astype("int64")).sum())
    return [np.full(24, (checksum + n) % 251, "uint8") for n in range(1, outputs + 1)]


def step(x, state):
    """The outputs b and y of a step, and the next state."""
    a, b = fake([x], 2)
    c, after = fake([a, x, state], 2)
    return b, *fake([b, c], 1), after


def expected(items):
    """The outputs item by item, with a state for each stream."""
    state = dict.fromkeys(range(STREAMS), np.zeros(24, "uint8"))
    results = {"b": [], "y": [], "x": []}
    for number, item in enumerate(items):
        x = np.frombuffer(item.tobytes(), "uint8")
        b, y, state[number % STREAMS] = step(x, state[number % STREAMS])
        for name, value in (("b", b), ("y", y), ("x", x)):
            results[name].append(value.view("float32").reshape(2, 3))
    return {name: np.stack(arrays) for name, arrays in results.items()}


def test_results_are_in_order_with_the_states_of_their_stream(folder, program):
    items = np.random.default_rng(0).random((ITEMS, 2, 3), "float32")
    options = ("--streams", str(STREAMS), "--repeat", "3")
    outputs = run(program, folder, {"x": items}, ["b", "y", "x"], *options)
    for name, array in expected(items).items():
        assert outputs[name].tobytes() == array.tobytes(), name


def looped(items, steps):
    """The outputs y of streams whose next x is their last y."""
    results = []
    for item in items:
        x, state = np.frombuffer(item.tobytes(), "uint8"), np.zeros(24, "uint8")
        for _ in range(steps):
            _, x, state = step(x, state)
        results.append(x.view("float32").reshape(2, 3))
    return np.stack(results)


@pytest.mark.parametrize("streams", ["1", "3"])
def test_outputs_that_are_fed_back_are_the_inputs_of_the_next_step(folder, program, streams):
    items = np.random.default_rng(0).random((5, 2, 3), "float32")
    options = ("--feed", "x=y", "--repeat", "6", "--streams", streams)
    outputs = run(program, folder, {"x": items}, ["y"], *options)
    assert outputs["y"].tobytes() == looped(items, 6).tobytes()


def test_many_threads_use_one_pipeline(folder, sanitizer):
    program = compile_with(folder, HERE / "concurrency.cpp", sanitizer)
    printed = checked([program, folder])
    assert printed in ("same, the pipeline is closed; make a new one\n", "same, finished\n")


@pytest.mark.parametrize(
    ("fail", "name"), [("stage0.so:3", r"replica . of stage 0"), ("stage2.so:20", "stage 2")]
)
def test_a_stage_that_fails_closes_a_pipeline_with_states(folder, program, fail, name):
    items = words_of(folder, {"x": np.zeros((ITEMS, 2, 3), "float32")})
    code, line = failed(program, folder, *items, "--streams", "2", FAIL=fail)
    assert code == 1
    assert re.fullmatch(
        rf"net: {name} failed: out of luck; the pipeline is closed; lost streams: [01](, 1)?", line
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the folder of the export is missing"),
        (["DIR", "--inputs", "x=y"], "unknown option --inputs"),
        (["DIR", "--input"], "--input needs a value"),
        (["DIR", "--input", "x"], "write NAME=FILE"),
        (["DIR", "--input", "z=GOOD"], "unknown input 'z'; the model's inputs are x"),
        (["DIR", "--input", "x=GOOD", "--output", "z=f"], "unknown output 'z'"),
        (["DIR", "--output", "y=f"], "input 'x' is missing"),
        (["DIR", "--input", "x=GOOD", "--feed", "x"], "--feed x is invalid; write NAME=NAME"),
        (["DIR", "--input", "x=GOOD", "--feed", "x=z"], "unknown output 'z'"),
        (["DIR", "--input", "x=GOOD", "--feed", "z=y"], "unknown input 'z'"),
        (["DIR", "--input", "x=GOOD", "--streams", "-1"], "--streams -1 is invalid"),
        (["DIR", "--input", "x=GOOD", "--repeat", "9" * 20], "invalid; give 1 to 1000000000"),
        (["DIR", "--input", "x=GOOD", "--repeat", str(2**63)], "invalid; give 1 to 1000000000"),
        (["DIR", "--input", "x=DIR"], "cannot be read; give a .npy file"),
        (["DIR", "--input", "x=PIPE"], "cannot be read; give a .npy file"),
        (["DIR", "--input", "x=DIR/split.json"], "is not a .npy file"),
        (["DIR", "--input", "x=NARROW"], r"float32 with the shape (ITEMS, 2, 3)"),
        (["DIR", "--input", "x=DOUBLE"], r"float32 with the shape (ITEMS, 2, 3)"),
        (["DIR", "--input", "x=SHORT"], "ends in item 3"),
        (["DIR", "--input", "x=NONE"], "has 0 items"),
        (["DIR/nowhere", "--input", "x=GOOD"], "stage0.so' is missing; export the split again"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_line(folder, tmp_path, refusing, words, reason):
    good = np.zeros((4, 2, 3), "float32")
    arrays = {"GOOD": good, "NARROW": good[:, :1], "DOUBLE": good.astype("float64")}
    for name, array in (arrays | {"SHORT": good, "NONE": good[:0]}).items():
        np.save(tmp_path / f"{name}.npy", array)
    short = tmp_path / "SHORT.npy"
    short.write_bytes(short.read_bytes()[:-4])
    os.mkfifo(tmp_path / "PIPE.npy")
    for name in ("GOOD", "NARROW", "DOUBLE", "SHORT", "NONE", "PIPE"):
        words = [word.replace(f"={name}", f"={tmp_path / name}.npy") for word in words]
    code, line = failed(refusing, *(word.replace("DIR", str(folder)) for word in words))
    assert (code, reason in line) == (2, True), line


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32", "uint64"])
@pytest.mark.usefixtures("refusing")
def test_an_index_out_of_its_tensor_is_refused(folder, tmp_path, dtype):
    def change(document):
        document.update(json.loads(json.dumps(document).replace("float32", dtype)))
        document["model"]["inputs"][0]["range"] = [-2, 1]

    changed = changed_export(folder, tmp_path, change)
    program = compile_with(changed, changed / "main.cpp", ADDRESS, objects=folder)
    limits = np.iinfo(dtype)
    lowest = max(-2, int(limits.min))
    for value in (-3 if limits.min else int(limits.max), 2):
        items = np.array([[[0, 1, 1], [1, lowest, value]]], dtype)
        code, line = failed(program, changed, *words_of(changed, {"x": items}))
        assert (code, f"'x' holds {value}; its values are -2 to 1" in line) == (2, True)
    run(program, changed, {"x": np.array([[[0, 1, 1], [1, lowest, 0]]], dtype)}, ["x"])


@pytest.mark.usefixtures("refusing")
def test_an_output_that_a_stage_may_have_rounded_is_refused(folder, tmp_path):
    def change(document):
        document.update(json.loads(json.dumps(document).replace("float32", "int32")))
        document["stages"][0]["runtime"] = "openvino"

    changed = changed_export(folder, tmp_path, change)
    wiring = changed / "wiring.cpp"
    wiring.write_text(wiring.read_text().replace("load_openvino", "load_tvm"))
    program = compile_with(changed, changed / "main.cpp", ADDRESS, objects=folder)
    code, line = failed(program, changed, *words_of(changed, {"x": ONE_ITEM.astype("int32")}))
    assert (code, "stage 0 failed: 'a' holds 16843009; its values are" in line) == (1, True), line


@pytest.mark.parametrize(
    ("replace", "reason"),
    [(os.mkfifo, "is missing; export the split again"),
     (Path.touch, "has 0 bytes, exported were 9; it was changed, export the split again")],
)  # fmt: skip
def test_a_pipe_and_a_file_that_is_cut_off_are_refused(folder, tmp_path, refusing, replace, reason):
    changed = shutil.copytree(folder, tmp_path / "changed", ignore=COMPILED)
    (changed / "stage1.so").unlink()
    replace(changed / "stage1.so")
    code, line = failed(refusing, changed, *words_of(changed, {"x": ONE_ITEM}))
    assert (code, f"stage1.so' {reason}" in line) == (2, True), line


@pytest.mark.usefixtures("refusing")
def test_a_replica_of_several_threads_has_them_on_other_cores_too(folder, tmp_path):
    def change(document):
        document.update(json.loads(json.dumps(document).replace("cores:0", "cores:1000-1002")))

    changed = changed_export(folder, tmp_path, change)
    program = compile_with(changed, changed / "main.cpp", ADDRESS, objects=folder)
    run(program, changed, {"x": ONE_ITEM}, ["y"], THREADS=str(min(3, len(available()))))


@pytest.mark.parametrize("batch", [1, 3])
def test_an_item_that_fails_does_not_fail_its_neighbours(folder, tmp_path, sanitizer, batch):
    document = exports.sound() | {"batch": batch}
    for stage in document["stages"]:
        stage.update(runtime="tvm")
        for port in (*stage["inputs"], *stage["outputs"]):
            port["shape"][0] *= batch
    changed = changed_export(folder, tmp_path, lambda d: d.clear() or d.update(document))
    program = compile_with(changed, HERE / "neighbours.cpp", sanitizer, objects=folder)
    expected = checked([program, changed]).splitlines()
    lines = checked([program, changed, "4"]).splitlines()
    assert lines.pop(4) == "stage 1 failed on this item: bad item"
    assert len(set(expected)) == 7
    assert lines == [*expected[:4], *expected[5:]]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [('"0"', '"0.28"', "fake runtime 0.27 is older than 0.28"),
     ("{0}, {", '{0}, {"nosuch", ', "this processor lacks nosuch")],
)  # fmt: skip
@pytest.mark.usefixtures("refusing")
def test_a_machine_that_does_not_fit_is_refused(folder, tmp_path, old, new, reason):
    changed = shutil.copytree(folder, tmp_path / "changed", ignore=COMPILED)
    wiring = (changed / "wiring.cpp").read_text()
    assert old in wiring
    (changed / "wiring.cpp").write_text(wiring.replace(old, new))
    program = compile_with(changed, changed / "main.cpp", ADDRESS, objects=folder)
    code, line = failed(program, changed, *words_of(changed, {"x": ONE_ITEM}))
    assert (code, reason in line) == (3, True), line
