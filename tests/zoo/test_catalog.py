import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import onnx
import onnxruntime
import pytest

from autosplit.frontend.samples import random_items
from autosplit.zoo import catalog
from autosplit.zoo import weights as zoo_weights

FAST = ["branches", "shufflenet", "squeezenet", "transformer"]
LARGE = [name for name in catalog.NAMES if name not in FAST]
# A large net has hundreds of weight tensors of the same few kinds; so many of them are changed.
MOVED_OF_LARGE = 12
EVERY = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]


class Bench:
    """A net in onnxruntime whose weights can be replaced from call to call."""

    def __init__(self, name):
        model = catalog.make(name)
        ports = [tuple(port.values()) for port in catalog.describe(name).inputs]
        self.items = random_items(ports, 4, seed=5)
        self.weights = {
            tensor.name: onnx.numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims
        }
        for weight, value in self.weights.items():  # one that is a graph input can be fed
            declared = onnx.helper.make_tensor_value_info(weight, 1, value.shape)
            model.graph.input.append(declared)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, item, **weights):
        return self._session.run(None, {**item, **weights})


@pytest.fixture(scope="module", params=EVERY)
def bench(request):
    return Bench(request.param)


def movement(old, new):
    """For each output its largest change, relative to its largest value."""
    return [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(old, new, strict=True)]


def test_outputs_are_finite_and_differ_by_place_item_and_input(bench):
    outputs = [bench.run(item) for item in bench.items]
    for output in outputs[0]:
        assert np.isfinite(output).all()
        assert output.std() > 0.1 * np.abs(output).mean()
        assert np.abs(output).max() < 0.9 * np.abs(output).sum()
    for first, second in pairwise(outputs):
        assert min(movement(first, second)) > 1e-3
    item, other = bench.items[:2]
    for name in item:
        assert max(movement(outputs[0], bench.run(item | {name: other[name]}))) > 1e-3


@pytest.mark.integration
def test_each_weight_moves_an_output(bench):
    old, generator = bench.run(bench.items[0]), np.random.default_rng(3)
    names = sorted(bench.weights)
    if len(names) > 300 or max(value.size for value in bench.weights.values()) > 2**21:
        names = list(generator.permutation(names)[:MOVED_OF_LARGE])
    for name in names:
        value = bench.weights[name]
        noise = generator.uniform(0.5, 1.5, value.shape).astype("float32")
        new = bench.run(bench.items[0], **{name: value * noise})
        assert max(movement(old, new)) > 1e-3, name


@pytest.mark.parametrize("name", EVERY)
def test_the_model_is_valid_and_described_as_it_is(name):
    model, net = catalog.make(name), catalog.describe(name)
    onnx.checker.check_model(model)
    graph, constants = model.graph, {tensor.name: tensor for tensor in model.graph.initializer}
    floats = [t for t in constants.values() if t.data_type == onnx.TensorProto.FLOAT and t.dims]
    assert net.weight_bytes == sum(len(tensor.raw_data) for tensor in floats)
    assert net.nodes == len(graph.node)
    assert [port["name"] for port in net.inputs] == [value.name for value in graph.input]
    assert not constants.keys() & {value.name for value in graph.input}
    assert constants.keys() <= {name for node in graph.node for name in node.input}
    assert all(d.dim_value > 0 for value in graph.input for d in value.type.tensor_type.shape.dim)
    assert all(node.name and node.op_type != "ConstantOfShape" for node in graph.node)


def test_the_bytes_depend_on_the_seed_and_not_on_the_process(tmp_path):
    code = "import sys; from autosplit.zoo import catalog; catalog.write('branches', sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / "net.onnx")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "2"})
    seeds = [catalog.make("branches", s).SerializeToString(deterministic=True) for s in (0, 1)]
    assert (tmp_path / "net.onnx").read_bytes() == seeds[0] != seeds[1]


def test_the_weights_are_the_same_on_every_machine():
    assert zoo_weights.uniform(3, -1.0, 1.0, 0, "layer.weight").hex() == "92b503bf425e39bfbc47c03e"
