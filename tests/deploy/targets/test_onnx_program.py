import json
import select
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autosplit
from autosplit.deploy import manifest_file
from autosplit.deploy.targets import onnx_program
from tests import nets
from tests.deploy import exports
from tests.deploy.exports import add_program, sample_items

ITEMS = 6


def with_onnx(document):
    for stage in document["stages"]:
        file = f"stage{stage['index']}.onnx"
        stage["onnx"] = {"file": file, "sha256": "0" * 64}
    return manifest_file.parse(json.dumps(document).encode(), "split.json")


@pytest.fixture(params=["branches", "number", "amplifier"])
def folder(request, export, save, tmp_path):
    if request.param == "branches":
        add_program(export.folder, "onnx")
        return export.folder
    if request.param == "number":
        body = "m = Mul(v, x)  s = Softmax(m)  y = Softmax(s)"
        proto = nets.net(f"g (float x, float[4] v) => (float[4] y) {{ {body} }}")
        split = autosplit.load_model(save(proto)).split([["m"]])
    else:
        split = nets.amplifier(tmp_path, "tvm", layers=2).split([["layer0.sum"]])
    split.export(tmp_path / "out", format="onnx")
    return tmp_path / "out"


@pytest.mark.integration
def test_the_python_program_computes_what_load_does(folder):
    document = manifest_file.read(folder)
    items = sample_items(document, ITEMS, seed=3)
    with autosplit.load(folder) as pipeline:
        results = pipeline.run(items)
    expected = np.concatenate([array.ravel() for result in results for array in result.values()])
    data = b"".join(item[port.name].tobytes() for item in items for port in document.model.inputs)
    command = [sys.executable, folder / "run.py"]
    done = subprocess.run(command, input=data, capture_output=True, timeout=300, check=True)
    # The stages of the export itself are TVM's.
    outputs = np.frombuffer(done.stdout, "float32")
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def test_the_wiring_names_all_and_the_python_program_says_that_it_runs_one_replica(tmp_path):
    document = exports.sound()
    document["stages"][1]["replicas"] = [{"device": "cores:0,1"}] * 3
    for name, content in onnx_program.files(with_onnx(document), tmp_path).items():
        (tmp_path / name).write_bytes(content)
    assert json.loads((tmp_path / "pipeline.json").read_text())["pipeline"][1]["stage1"] == {
        "filename": "stage1.onnx", "inputs": ["a", "x"], "outputs": ["c"], "replicas": 3,
        "session_options": {"intra_op_num_threads": 2},
    }  # fmt: skip
    command = [sys.executable, tmp_path / "run.py"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60)
    assert b"run.py runs one of 3 replicas of stage1" in done.stderr


def test_the_python_program_answers_an_item_before_the_next_one_comes(tmp_path):
    port = {"name": "x", "dtype": "uint8", "shape": [1]}
    wiring = {"pipeline": [], "inputs": [port], "outputs": [{"name": "x", "tensor": "x"}]}
    (tmp_path / "pipeline.json").write_text(json.dumps(wiring))
    program = shutil.copy(Path(onnx_program.__file__).parent / "onnx" / "run.py", tmp_path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0, "env": {}}
    with subprocess.Popen([sys.executable, program], **pipes) as running:
        running.stdin.write(b"a")
        assert select.select([running.stdout], [], [], 20)[0]
        assert running.stdout.read(1) == b"a"


@pytest.mark.integration
@pytest.mark.parametrize("knows_range", [True, False])
def test_the_python_program_ends_at_an_index_out_of_its_tensor(save, tmp_path, knows_range):
    text = "g (int64[2] i) => (float[2,4] y) { y = Gather(w, i) }"
    model = autosplit.load_model(save(nets.net(text, {"w": (9, 4)})))
    model.split([]).export(tmp_path, format="onnx")
    wiring = tmp_path / "pipeline.json"
    if not knows_range:
        wiring.write_text(wiring.read_text().replace('"range"', '"unknown"'))
    command, data = [sys.executable, tmp_path / "run.py"], np.array([1, 2, 0, 5000]).tobytes()
    done = subprocess.run(command, input=data, capture_output=True, timeout=60)
    reason = b"input 'i' holds 5000; its values are -9 to 8" if knows_range else b"idx=5000"
    assert (done.returncode, reason in done.stderr) == (1, True)
    assert len(done.stdout) == 2 * 4 * 4 or not knows_range  # of the item before
    done = subprocess.run(command, input=data[:24], capture_output=True, timeout=60)
    assert (done.returncode, len(done.stdout)) == (1, 2 * 4 * 4)
