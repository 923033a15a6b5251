import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import autosplit
from autosplit.deploy import manifest_file
from autosplit.hardware.devices.device import available
from autosplit.zoo import catalog
from tests import nets
from tests.deploy.exports import Export, sample_items, split_on
from tests.deploy.targets.programs import (
    SANITIZED,
    build,
    checked,
    failed,
    require_tools,
    run,
    stacked,
    words_of,
)

pytestmark = pytest.mark.integration
FIRST, LAST = f"cores:{available()[0]}", f"cores:{available()[-1]}"
BOTH = f"cores:{','.join(map(str, sorted({available()[0], available()[-1]})))}"
STREAMS = 3
BUILT = shutil.ignore_patterns("build*")


@pytest.fixture(scope="module")
def branches_export(tmp_path_factory):
    """Replicas, threads, tensors that skip a stage, in two runtimes."""
    model = autosplit.load_model(catalog.cached("branches"), runtime="auto")
    folder = tmp_path_factory.mktemp("branches") / "out"
    where = ("tvm", (FIRST, LAST)), ("openvino", (LAST, FIRST)), ("tvm", (BOTH,))
    split_on(model, [["first"], ["hinted"]], *where).export(folder, format="cpp")
    return folder


@pytest.fixture(scope="module")
def amplifier_export(tmp_path_factory):
    """A state in each of three stages, in two runtimes, with replicas and threads."""
    folder = tmp_path_factory.mktemp("amplifier")
    model = nets.amplifier(folder)
    where = ("tvm", (FIRST, LAST)), ("openvino", (BOTH,)), ("tvm", (FIRST, LAST, FIRST))
    cuts = [["layer0.sum"], ["layer1.sum"]]
    split_on(model, cuts, *where).export(folder / "out", format="cpp")
    return folder / "out"


@pytest.fixture(scope="module")
def program(branches_export):
    return build(branches_export)


def items_of(folder, count):
    return sample_items(manifest_file.read(folder), count, seed=7)


def require_same_as_load(program, folder, count, *options):
    """Assert that the program gives what ``autosplit.load`` does, to the bit."""
    items = items_of(folder, count)
    with autosplit.load(folder) as pipeline:
        expected = stacked(pipeline.run(items))
    outputs = run(program, folder, stacked(items), list(expected), *options)
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)


def test_outputs_equal_those_of_load(branches_export, program):
    require_same_as_load(program, branches_export, 20, "--repeat", "3")


def test_batches_equal_those_of_load_and_the_last_may_be_incomplete(branches, tmp_path):
    where = ("tvm", (FIRST, LAST), 4), ("tvm", (LAST,), 4)
    split_on(branches, [["hinted"]], *where).export(tmp_path, format="cpp")
    require_same_as_load(build(tmp_path), tmp_path, 7, "--repeat", "3")


def test_stages_in_bfloat16_round_in_the_program_too(branches, tmp_path):
    stage = pytest.importorskip("autosplit.hardware.runtimes.openvino.stage")
    if not stage.supports("BF16"):
        pytest.skip("this processor has no bfloat16")
    runtime = "openvino-bfloat16"
    model = autosplit.load_model(branches.path, runtime=runtime)
    where = (runtime, (FIRST,)), (runtime, (LAST,))
    split_on(model, [["first"]], *where).export(tmp_path, format="cpp")
    require_same_as_load(build(tmp_path), tmp_path, 3)


def test_an_output_is_fed_to_an_input_of_its_shape_alone(branches_export, program):
    item = words_of(branches_export, stacked(items_of(branches_export, 1)))
    code, line = failed(program, branches_export, *item, "--feed", "image=early")
    assert code == 2
    assert "output 'early' has another type or shape than input 'image'" in line


def test_no_python_is_in_the_program(program):
    libraries = checked(["ldd", program])
    assert "libtvm_runtime" in libraries
    assert "python3" not in libraries.replace("/site-packages", "").replace("/lib/python3", "")


def test_a_file_that_is_no_stage_does_not_load(branches_export, program, tmp_path):
    changed = Path(shutil.copytree(branches_export, tmp_path / "changed", ignore=BUILT))
    stage = Export(changed).document["stages"][0]
    file = changed / stage["file"]
    file.write_bytes(bytes(file.stat().st_size))
    code, line = failed(program, changed, *words_of(changed, stacked(items_of(changed, 1))))
    assert code == 3
    assert line.startswith(f"branches: '{stage['file']}' does not load with this tvm: ")


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_streams_are_right_and_the_sanitizer_is_content(amplifier_export, sanitizer):
    items = items_of(amplifier_export, 20)
    with autosplit.load(amplifier_export) as pipeline:
        results = pipeline.run(items)
    expected = stacked([result for result in results for _ in range(STREAMS)])
    interleaved = stacked([item for item in items for _ in range(STREAMS)])
    program, words = build(amplifier_export, sanitizer), ["--streams", str(STREAMS)]
    names = list(expected)
    outputs = run(program, amplifier_export, interleaved, names, *words, **SANITIZED)
    np.testing.assert_array_equal(outputs["amplified"], expected["amplified"])


def test_onnxruntime_s_stages_run_where_its_headers_are(branches, tmp_path):
    require_tools("g++")
    if subprocess.run(
        ["g++", "-xc++", "-fsyntax-only", "-I/usr/include/onnxruntime", "-"],
        input="#include <onnxruntime_cxx_api.h>", text=True, capture_output=True, check=False,
    ).returncode:  # fmt: skip
        pytest.skip("onnxruntime's C++ headers are not installed; its wheel has none")
    model = autosplit.load_model(branches.path, runtime="auto")
    where = ("onnxruntime", (FIRST, LAST)), ("tvm", (BOTH,))
    split_on(model, [["first"]], *where).export(tmp_path, format="cpp")
    require_same_as_load(build(tmp_path), tmp_path, 10)


def test_a_decoder_generates_the_tokens_that_it_does_in_python(tmp_path):
    pytest.importorskip("transformers.exporters", reason="transformers is not installed")
    from studies.examples import generate

    prompts = [[5, 9, 2], [7, 7], [1, 8, 3, 3], [4]]
    file = generate.export_onnx(generate.small_llama(layers=2, length=12), 12, tmp_path)
    model = autosplit.load_model(file, states="auto", runtime="tvm")
    split = autosplit.plan(model, stages=2, devices=[FIRST, LAST])
    split.export(tmp_path / "out", format="cpp")
    with autosplit.load(tmp_path / "out") as pipeline:
        texts = generate.generate(pipeline, prompts, 8)
    shutil.copy(Path(__file__).with_name("generate.cpp"), tmp_path / "out" / "main.cpp")
    program = build(tmp_path / "out", "thread")
    words = [",".join(map(str, prompt)) for prompt in prompts]
    lines = checked([program, tmp_path / "out", "8", *words], env=SANITIZED).splitlines()
    expected = [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]
    assert [list(map(int, line.split())) for line in lines] == expected
    code, line = failed(program, tmp_path / "out", "12", *words, **SANITIZED)
    assert (code, "has had 12 items and its states are full" in line) == (2, True), line
