"""Programs that torch exported, compared with torch; files are read without unpickling."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ModelError
from tests.frontend.torch.conftest import exported
from tests.nets import judge

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """Convolution, batch norm, an in-place op, a split read out of order, a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)
        self.register_buffer("scale", torch.arange(1.0, 6.0).reshape(1, 5))
        with torch.no_grad():
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x, mask):
        y = torch.relu_(self.norm(self.conv(x)))
        y.add_(0.5)
        left, right = torch.split(y, 4, 1)
        pooled = torch.cat([right, left], 1).mean((2, 3))
        return self.head(pooled) * self.scale, torch.where(mask, pooled, -pooled)


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    arguments = torch.randn(2, 3, 8, 8), torch.rand(2, 8) > 0.5
    return torch.export.export(Net().eval(), arguments)


@pytest.fixture
def saved(program, tmp_path):
    torch.export.save(program, tmp_path / "net.pt2")
    return tmp_path / "net.pt2"


def test_a_program_is_split_by_its_nodes_and_torch_is_the_judge(program, saved, tmp_path):
    model = autosplit.load_model(saved)
    named = {name for op in model.graph.ops for name in op.sources}
    named.update(node.name for node in model.graph.folded)
    expected = "conv2d batch_norm relu_ add_ split cat mean linear mul neg where"
    assert named == set(expected.split())
    assert [i.name for i in model.lowered.inputs] == ["x", "mask"]
    assert autosplit.load_model(program).graph.ops == model.graph.ops
    (item,) = model.items(1)
    results = program.module()(*map(torch.from_numpy, item.values()))
    for mine, theirs in zip(model.expected([item])[0].values(), results, strict=True):
        np.testing.assert_allclose(mine, theirs.detach(), rtol=1e-5, atol=1e-5)
    split = model.split([["conv2d"], ["cat"]])
    assert len(split.stages) == 3
    split.export(tmp_path / "out")
    result = verify(tmp_path / "out")
    assert result.accuracy.equal
    assert result.reference.startswith("torch on")


def test_inputs_may_come_in_containers():
    class Nested(torch.nn.Module):
        def forward(self, pair, *, scale):
            return {"sum": (pair[0] + pair[1]) * scale, "same": pair[0]}

    a, b, c = (torch.randn(3) for _ in range(3))
    model = autosplit.load_model(torch.export.export(Nested(), ((a, b),), {"scale": c}))
    names = [i.name for i in model.lowered.inputs]
    (expected,) = model.expected([dict(zip(names, (a.numpy(), b.numpy(), c.numpy()), strict=True))])
    np.testing.assert_allclose(next(iter(expected.values())), ((a + b) * c).numpy(), rtol=1e-6)
    judge(model, model.split([]))


def test_a_choice_is_one_op_that_onnxruntime_computes():
    def choice(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    model = autosplit.load_model(exported(choice, torch.randn(3)), runtime="onnxruntime")
    assert [op.sources for op in model.graph.ops if op.opaque] == [("cond",)]
    judge(model, model.split([]))
    submodel = model.runtime.submodel(model.stage_source.whole_stage)
    assert b"stack_trace" not in submodel.SerializeToString()


class Bomb:
    """Unpickling it is seen: it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def rewritten(path, change):
    """The archive with some members changed: ``change(name, data)`` gives the new data."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    path.write_bytes(buffer.getvalue())
    return path


def test_pickled_samples_are_not_unpickled(saved, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "went off"))
    rewritten(saved, lambda name, data: bomb if name.endswith(".pt") else data)
    autosplit.load_model(saved)
    assert not (tmp_path / "went off").exists()


def reaching(graph, target, arguments, outputs=()):
    """Put a call of ``target`` in front of a graph in an archive's JSON."""
    call = {**graph["nodes"][0], "name": "reaching", "target": target, "outputs": list(outputs)}
    call["inputs"] = [{"name": n, "arg": a, "kind": 1} for n, a in arguments.items()]
    graph["nodes"].insert(0, call)


def require_refused(path, tmp_path, change, reason):
    """A program whose JSON is changed is refused; ``change`` gets the document and a file name."""
    marker = tmp_path / "marker"

    def changed(name, data):
        if not name.endswith("models/model.json"):
            return data
        change(document := json.loads(data), {"filename": {"as_string": str(marker)}})
        return json.dumps(document).encode()

    with pytest.raises(ModelError, match=reason):
        autosplit.load_model(rewritten(path, changed))
    assert not marker.exists()


MAPPED = {"shared": {"as_bool": True}, "size": {"as_int": 4}}


@pytest.mark.parametrize(
    ("target", "more"),
    [("torch.ops.aten.save.default", {"item": {"as_string": "x"}}),
     ("torch.ops.aten.from_file.default", MAPPED),
     ("torch.ops.higher_order.aoti_call_delegate", {})],
)  # fmt: skip
def test_an_op_that_reaches_out_of_the_program_is_refused(saved, tmp_path, target, more):
    def change(document, file_name):
        reaching(document["graph_module"]["graph"], target, file_name | more)

    require_refused(saved, tmp_path, change, r"side effects|not read|cannot be read")


def test_an_op_that_reaches_out_of_the_body_of_a_wrapping_call_is_refused(tmp_path):
    def wrapped(x):
        with torch.autocast("cpu", enabled=False):
            return x.float().cos()

    def change(document, file_name):
        nodes = document["graph_module"]["graph"]["nodes"]
        (wrapper,) = (node for node in nodes if "wrap_with_autocast" in node["target"])
        (body,) = (i["arg"]["as_graph"] for i in wrapper["inputs"] if "as_graph" in i["arg"])
        values = body["graph"]["tensor_values"]
        values["reaching"] = next(iter(values.values()))
        output = {"as_tensor": {"name": "reaching"}}
        target = "torch.ops.aten.from_file.default"
        reaching(body["graph"], target, file_name | MAPPED, [output])

    torch.export.save(exported(wrapped, torch.ones(3)), tmp_path / "net.pt2")
    require_refused(tmp_path / "net.pt2", tmp_path, change, "side effects")
