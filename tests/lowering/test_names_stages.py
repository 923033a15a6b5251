"""Names that `export` and `split` write beside each stage."""

import json

import numpy as np
import pytest

import autosplit
from autosplit.errors import MachineError
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.onnx import model_file, submodels
from tests import nets
from tests.nets import onnxruntime_outputs


def chained(folder, items):
    """onnxruntime over the submodels of an exported folder, wired by its manifest alone."""
    manifest = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    results = []
    for item in items:
        values = dict(item)
        for stage in manifest["stages"]:
            stage_inputs = {p["name"]: values[p["name"]] for p in stage["inputs"]}
            values |= onnxruntime_outputs(folder / stage["onnx"]["file"], [stage_inputs])[0]
        named = {
            t["output"]: c["tensor"]
            for c in manifest["connections"]
            for t in c["to"]
            if "output" in t
        }
        results.append({name: values[tensor] for name, tensor in named.items()})
    return results


# The shape that is asked of an earlier stage is a constant.
SHAPED = nets.net(
    """g (float[2,3,4] x) => (float[2,12] y) {
        a = Exp(x)  b = Softmax<axis=2>(a)
        s = Shape(a)  n = Gather(s, zero)  u = Unsqueeze(n, zeros)  t = Concat<axis=0>(u, rest)
        r = Reshape(b, t)  y = MatMul(r, w)
    }""",
    {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1]), "w": (12, 12)},
)


@pytest.mark.parametrize(
    ("proto", "after"),
    [
        (SHAPED, [["b"]]),
        (nets.preactivation(), [["add0"]]),
        (nets.residual(), [["relu1a"]]),
        (nets.parallel(), [["b0", "d1"]]),
        (nets.tuples(), [["k"], ["j"]]),
        (nets.boundaries(), [["skip"], ["early", "both"], ["far"]]),
    ],
)
def test_the_written_submodels_chain_to_the_original(save, tmp_path, proto, after):
    model = autosplit.load_model(save(proto))
    model.split(after).export(tmp_path / "out")
    items = model.items(2)
    assert compare(chained(tmp_path / "out", items), model.expected(items)).equal


def test_a_stage_without_its_boundary_in_the_graph_says_why(save, tmp_path):
    model = autosplit.load_model(save(nets.inside_a_node()))
    inner = next(op.name for op in model.graph.ops if not op.sources)
    file = model.split([[inner]]).export(tmp_path / "out")
    for stage in json.loads(file.read_text(encoding="utf-8"))["stages"]:
        assert stage["onnx"] is None
        assert "is not in the ONNX graph" in stage["onnx_absent"]


def test_a_full_disk_is_one_line(save, tmp_path):
    model = autosplit.load_model(save(nets.residual(1)))
    original = submodels.read_original(model.stage_source)
    (tmp_path / "taken").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        model_file.write(original.proto, tmp_path / "taken" / "stage0.onnx")
