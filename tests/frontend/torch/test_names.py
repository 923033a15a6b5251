"""Names of values after the nodes of a program, whatever the exporter calls them."""

from collections import OrderedDict

import pytest

import autosplit
from autosplit.errors import SplitError
from tests.nets import judge

torch = pytest.importorskip("torch")
functional = torch.nn.functional

X = torch.linspace(-2, 2, 24).reshape(4, 6)


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, *inputs):
        return self.function(self.linear, *inputs)


def program_of(function):
    torch.manual_seed(0)
    return torch.export.export(Function(function).eval(), (X,))


def test_weights_called_like_inputs_and_nodes():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            names = ("p_p_a", "a", "x", "mul", "val_0")
            for number, name in enumerate(names, 2):
                self.register_parameter(name, torch.nn.Parameter(torch.full((6,), float(number))))
            self.register_buffer("b_x", torch.full((6,), 11.0))

        def forward(self, x, val_1):
            scaled = (x * self.p_p_a + self.a) + self.b_x * val_1
            return scaled.softmax(-1) * self.mul + self.x, x + self.val_0

    model = autosplit.load_model(torch.export.export(Net(), (X, X)))
    judge(model, model.split([["softmax"]]))


@pytest.mark.parametrize("runtime", ["tvm", "onnxruntime"])
def test_every_node_has_its_name(runtime):
    def forward(linear, x):
        hidden = functional.dropout(linear(x), 0.5, False).clone()
        hidden.add_(1)
        left, right = linear(hidden).split(3, 1)
        return right.softmax(-1) - left, x

    program = program_of(forward)
    model = autosplit.load_model(program, runtime=runtime)
    sources = {name for op in model.graph.ops for name in op.sources}
    folded = {node.name for node in model.graph.folded}
    calls = {node.name for node in program.graph.nodes if node.op == "call_function"}
    assert sources | folded == {name for name in calls if not name.startswith("getitem")}
    assert {"dropout", "clone"} <= folded
    assert not any("dead" in node.reason for node in model.graph.folded)
    judge(model, model.split([["linear"], ["linear_1"]]))


def test_an_input_that_is_only_passed_on_keeps_its_name():
    model = autosplit.load_model(program_of(lambda linear, x: (x.to(torch.float32), linear(x))))
    assert [i.name for i in model.lowered.inputs] == ["inputs_0"]
    judge(model, model.split([]))


def test_the_body_of_a_wrapping_call_is_part_of_the_program():
    def forward(linear, x):
        hidden = linear(x).relu_()
        with torch.autocast("cpu", enabled=False):
            angle = hidden.float().cos()
        return linear(angle) * hidden

    program = program_of(forward)
    assert any("wrap_with_autocast" in str(node.target) for node in program.graph.nodes)
    model = autosplit.load_model(program)
    sources = {name for op in model.graph.ops for name in op.sources}
    assert {"linear", "relu_", "cos", "linear_1", "mul"} <= sources
    judge(model, model.split([["cos"]]))


def block():
    layers = {"tanh": torch.nn.Tanh(), "linear": torch.nn.Linear(8, 8)}
    return torch.nn.Sequential(OrderedDict(layers, softmax=torch.nn.Softmax(1)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = torch.nn.Sequential(*(block() for _ in range(3)))
        self.twice = block()

    def forward(self, x):
        return self.twice(self.twice(self.stages(x)))


@pytest.mark.parametrize("name", ["net.pt2", "net.onnx"])
def test_modules_stand_for_all_of_their_ops(tmp_path, name):
    path, arguments = tmp_path / name, (torch.zeros(2, 8),)
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(Net().eval(), arguments), path)
    else:
        torch.onnx.export(Net().eval(), arguments, dynamo=True).save(str(path))
    model = autosplit.load_model(path, runtime="tvm")
    for module in ("stages.1", "stages", "stages.0.linear"):
        first, second = model.split(after=[[module]]).stages
        inside = model.graph.modules[module]
        assert set(inside) <= set(first)
        assert first[-1] == inside[-1]
        assert second
    # One that is called twice is both calls.
    before = set(model.graph.modules["stages"])
    assert before | set(model.graph.modules["twice"]) == set(range(len(model.graph.ops)))
    with pytest.raises(SplitError, match=r"did you mean .*'stages\.1'"):
        model.split(after=[["stage.1"]])
