import pytest

import autosplit
from autosplit.cli import main
from autosplit.errors import SplitError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.softmax(self.linear(torch.tanh(x)), 1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = torch.nn.ModuleList(Block() for _ in range(3))
        self.twice = Block()

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.twice(self.twice(x))


@pytest.fixture(scope="module", params=["net.pt2", "net.onnx"])
def path(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("modules") / request.param
    arguments = (torch.zeros(2, 8),)
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(Net().eval(), arguments), path)
    else:
        torch.onnx.export(Net().eval(), arguments, dynamo=True).save(str(path))
    return path


def test_modules_stand_for_all_of_their_ops(path):
    model = autosplit.load_model(path, runtime="tvm")
    for name in ("stages.1", "stages", "stages.0.linear"):
        first, second = model.split(after=[[name]]).stages
        inside = model.graph.modules[name]
        assert set(inside) <= set(first)
        assert first[-1] == inside[-1]
        assert second
    # One that is called twice is both calls.
    before = set(model.graph.modules["stages"])
    assert before | set(model.graph.modules["twice"]) == set(range(len(model.graph.ops)))
    with pytest.raises(SplitError, match=r"did you mean .*'stages\.1'"):
        model.split(after=[["stage.1"]])


def test_the_command_line_takes_modules(path, tmp_path):
    folder = str(tmp_path / "split")
    assert main(["split", str(path), "--after", "stages.1", "--runtime", "tvm", "-o", folder]) == 0
