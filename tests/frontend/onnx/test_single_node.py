import re

import numpy as np
import pytest

from autosplit import api
from autosplit.frontend.onnx.single_node import computed
from tests.build import node, onnx_model
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


@pytest.mark.parametrize(
    ("kind", "arrays", "attributes"),
    [("ConstantOfShape", [ints(10**12)], {}),
     ("Add", [np.zeros(1025, np.float32), np.zeros(1, np.float32)], {}),
     ("ConstantOfShape", [ints(1025)], {}),
     ("Einsum", [np.ones(200, np.float32)] * 4, {"equation": "a,b,c,d->"}),
     ("Reshape", [np.arange(6), ints(4, 2)], {}),
     ("Dropout", [np.float32([1]), np.float32(0.5), np.array(True)], {}),
     ("Bernoulli", [np.float32([0.5])], {}), ("Fancy", [ints(1)], {})],
)  # fmt: skip
def test_nothing_large_random_or_unknown_is_computed(kind, arrays, attributes):
    names = "abcd"[: len(arrays)]
    proto = node(kind, " ".join(names), "y", **attributes)
    weights = {n: np.asarray(a) for n, a in zip(names, arrays, strict=True)}
    assert computed(onnx_model([proto]), proto, weights) is None
