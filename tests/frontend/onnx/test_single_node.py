import re

import numpy as np
import pytest

from autosplit import api
from tests.nets import judge, net


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "lines",
    ["s = Shape(x)  t = Slice(s, a, b)  k = Concat<axis=0>(t, m)",
     "s = Shape(x)  g = Gather(s, a)  k = Concat<axis=0>(g, m)",
     "s = Shape(x)  t = Mul(s, h)  k = Div(t, h)",
     "s = Shape(x)  f = Cast<to=1>(s)  k = Cast<to=7>(f)", "n = Size(x)  k = Unsqueeze(n, a)",
     "k = Constant<value_ints=[6, 4]>()", "s = Shape(x)  k = Identity(s)"],
)  # fmt: skip
def test_a_computed_shape_is_a_constant(save, lines):
    text = f"g (float[2,3,4] x) => (float[n] y) {{ {lines}  y = Reshape(x, k) }}"
    weights = {"a": ints(0), "b": ints(1), "m": ints(-1), "h": ints(2, 3, 4)}
    model = api.load_model(save(net(text, weights)))
    assert [op.sources for op in model.graph.ops] == [("y",)]
    assert {f.name for f in model.graph.folded} == set(re.findall(r"(\w+) =", lines))
    judge(model, model.split([]), items=1)


def test_the_standard_domain_has_two_names(save):
    text = "g (float[2,1] x) => (float[n] y) { s = Shape(x) k = Slice(s, a, b) y = Reshape(x, k) }"
    proto = net(text, {"a": ints(0), "b": ints(1)})
    proto.opset_import[0].domain = proto.graph.node[1].domain = "ai.onnx"
    assert [op.sources for op in api.load_model(save(proto)).graph.ops] == [("y",)]
