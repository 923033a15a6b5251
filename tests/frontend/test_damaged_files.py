"""A damaged model file is loaded, or refused in one line; nothing else comes of it.

``AUTOSPLIT_FUZZ`` is the number of files that are tried of each format. The same number of a file
gives the same damage.
"""

import os

import numpy as np
import pytest

import autosplit
from autosplit.errors import AutosplitError
from tests.frontend.mutations import CHANGES, damaged
from tests.nets import net
from tests.relax_nets import function, module

COUNT = int(os.environ.get("AUTOSPLIT_FUZZ", "20"))
PARAMS = "x: R.Tensor((2, 4), 'float32'), w: R.Tensor((4, 3), 'float32')"
BODY = """with R.dataflow():
    twice = R.add(x, x)
    parts = R.split(twice, 2, axis=1)
    left = parts[0]
    joined = R.concat((parts[1], left), axis=1)
    shifted = R.add(joined, R.const(2.0, "float32"))
    product = R.matmul(shifted, w)
    R.output(product, left)
return (product, left)"""


def sound_onnx(_):
    text = """g (float[1,4] x) => (float[1,2] y) {
        h = Gemm(x, w, b)  r = Relu(h)  a, c = Split<axis=1>(r)  d = Reshape(a, s)  y = Add(d, c)
    }"""
    return net(text, {"w": (4, 4), "b": (4,), "s": np.array([1, 2])}).SerializeToString()


def sound_json(_):
    import tvm

    return tvm.ir.save_json(module(function("main", BODY, PARAMS))).encode()


def sound_program(folder):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)
            self.register_buffer("scale", torch.arange(3.0))

        def forward(self, x, y):
            left, right = torch.split(torch.relu(self.linear(x)) * self.scale, [1, 2], 1)
            return torch.cat([right, left], 1) + y, torch.nn.functional.pad(left, (0, 1))

    dynamic = {"x": {0: torch.export.Dim("n")}, "y": {0: torch.export.Dim("n")}}
    arguments = torch.ones(2, 4), torch.ones(2, 3)
    path = folder / "sound.pt2"
    torch.export.save(torch.export.export(Net(), arguments, dynamic_shapes=dynamic), path)
    return path.read_bytes()


SOUND = {".onnx": sound_onnx, ".json": sound_json, ".pt2": sound_program}
SLOW = (".onnx", ".pt2")  # what is loaded is compiled; torch takes a second a file


@pytest.mark.parametrize(
    "suffix", [pytest.param(s, marks=pytest.mark.integration) if s in SLOW else s for s in CHANGES]
)
def test_a_damaged_file_is_loaded_or_refused(suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    path.write_bytes(content := SOUND[suffix](tmp_path))
    shapes = {"x": (2, 4), "y": (2, 3)} if suffix == ".pt2" else {}
    assert autosplit.load_model(path, shapes).graph.outputs
    for number in range(COUNT):
        path.write_bytes(damaged(suffix, content, number))
        try:
            message = ""
            assert autosplit.load_model(path, shapes).graph.outputs
        except AutosplitError as error:
            message = str(error)
        except Exception as error:
            raise AssertionError(f"{suffix} file {number}: {error!r}") from error
        assert "\n" not in message
