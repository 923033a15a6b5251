"""Source names both ways, and stages as ONNX submodels, on the nets of the zoo."""

from collections import Counter

import pytest

from autosplit import api, cuts
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.onnx import submodels
from autosplit.report.documents import inspection
from autosplit.zoo import catalog
from tests import nets
from tests.nets import onnxruntime_outputs

MARKS = dict.fromkeys(("branches", "transformer"), ())
MARKS |= dict.fromkeys(("shufflenet", "squeezenet"), pytest.mark.integration)
EVERY = [pytest.param(n, marks=MARKS.get(n, pytest.mark.slow)) for n in catalog.NAMES]
# Legal cuts of each net, fused ops. A Dropout whose mask nobody reads is no op: its input passes
# through under its name.
CUTS = {
    "branches": (67, 19), "bvlc_alexnet": (22, 21), "densenet121": (243, 242),
    "inception_v1": (506, 91), "inception_v2": (636, 97), "resnet50": (69, 60),
    "shufflenet": (91, 78), "squeezenet": (50, 41), "transformer": (184, 61),
    "vgg19": (29, 28), "zfnet512": (22, 21),
}  # fmt: skip


@pytest.fixture(scope="module", params=EVERY)
def model(request, zoo_model):
    return zoo_model(request.param)


@pytest.mark.integration
def test_legal_cuts_and_fused_ops_of_a_net(model):
    count = cuts.count(model.graph)
    total, ops = CUTS[model.path.stem]
    assert (count.total, count.complete, len(model.graph.ops)) == (total, True, ops)


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
