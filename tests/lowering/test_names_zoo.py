"""Source names both ways, and stages as ONNX submodels, on the nets of the zoo."""

from collections import Counter

import pytest

from autosplit import api
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.onnx import submodels
from autosplit.report.documents import inspection
from autosplit.zoo import catalog
from tests import nets
from tests.nets import onnxruntime_outputs

IN_CI = pytest.mark.integration
MARKS = {"branches": (), "transformer": (), "shufflenet": IN_CI, "squeezenet": IN_CI}
EVERY = [pytest.param(n, marks=MARKS.get(n, pytest.mark.slow)) for n in catalog.NAMES]


@pytest.fixture(scope="module", params=EVERY)
def model(request, zoo_model):
    return zoo_model(request.param)


def test_every_source_node_is_in_one_op_or_folded_with_a_reason_and_can_be_asked_for(model):
    original = submodels.read_original(model.stage_source)
    nodes = [node.name or node.output[0] for node in original.proto.graph.node]
    uses = Counter(name for op in model.graph.ops for name in op.sources)
    uses.update(f.name for f in model.graph.folded)
    assert uses == Counter(nodes)
    assert all(f.reason for f in model.graph.folded)
    assert all(op.sources or op.parts for op in model.graph.ops)

    for op in model.graph.ops:
        for name in op.sources:
            assert inspection.find(model.graph, name)["op"] == op.name


def test_every_op_whose_boundary_is_named_is_a_submodel(model):
    (item,) = model.items(1)
    known = dict(item) | nets.every_tensor(model, item)
    original = submodels.read_original(model.stage_source)
    tried = 0
    for i, op in enumerate(model.graph.ops):
        ports = api.Part(model, (i,)).wiring.stages[0]
        if all(p.name in known for p in (*ports.inputs, *ports.outputs)):
            submodel = original.submodel(ports, op.name).SerializeToString()
            (got,) = onnxruntime_outputs(submodel, [{p.name: known[p.name] for p in ports.inputs}])
            assert compare([got], [{p.name: known[p.name] for p in ports.outputs}]).equal, op.name
            tried += 1
    assert tried > 0.5 * len(model.graph.ops)
