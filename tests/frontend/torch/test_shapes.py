import pytest

import autosplit
from autosplit.errors import ConfigError, ModelError
from tests.nets import judge

torch = pytest.importorskip("torch")
LONGER = {"longer": (8, 6)}


@pytest.fixture(scope="module")
def program():
    """An input of n rows, and one of n + 1."""

    class Net(torch.nn.Module):
        def forward(self, x, longer):
            total = x + longer[1:]
            return total.reshape(-1) * x.shape[0], torch.cat([total, longer])[-1]

    rows = torch.export.Dim("rows", min=3, max=16)
    dynamic_shapes = {"x": {0: rows}, "longer": {0: rows + 1}}
    return torch.export.export(
        Net(), (torch.ones(4, 6), torch.ones(5, 6)), dynamic_shapes=dynamic_shapes
    )


def test_a_size_that_follows_from_another_need_not_be_given(program):
    model, same = (autosplit.load_model(program, {"x": (7, 6), **m}) for m in ({}, LONGER))
    assert [i.shape for i in model.lowered.inputs] == [(7, 6), (8, 6)]
    assert same.graph == model.graph
    judge(model, model.split([]))


@pytest.mark.parametrize(
    ("shapes", "error", "part"),
    [({"x": (7, 6), "longer": (7, 6)}, ConfigError, "give 8"),
     ({"x": (7, 5)}, ConfigError, "axis 1"), (LONGER, ModelError, "--shape x="),
     ({"y": (8, 6)}, ConfigError, "'y'")],
)  # fmt: skip
def test_a_shape_that_does_not_fit_names_the_remedy(program, shapes, error, part):
    with pytest.raises(error, match=part):
        autosplit.load_model(program, shapes)
