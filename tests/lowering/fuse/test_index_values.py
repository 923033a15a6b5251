"""Random integers are as wide as the net can take them, and no wider."""

import json

import numpy as np
import pytest

from autosplit import api, files
from autosplit.deploy.verify import verify
from autosplit.errors import ModelError
from tests.nets import judge, net

pytest.importorskip("onnxruntime")
TABLE = {"w": (9, 4)}
LOOK_UP = "(int64[6] i) => (float[6,4] y)"


@pytest.mark.parametrize(
    ("text", "weights", "below"),
    [
        (f"{LOOK_UP} {{ y = Gather(w, i) }}", TABLE, 9),
        (f"{LOOK_UP} {{ a = Gather(w, i) b = Gather(v, i) y = Add(a, b) }}",
         TABLE | {"v": (8, 4)}, 8),
        (f"{LOOK_UP} {{ c = Cast<to=6>(i) d = Reshape(c, s) y = Gather(w, d) }}",
         TABLE | {"s": np.array([6])}, 9),
        (f"{LOOK_UP} {{ j = Add(i, k) y = Gather(w, j) }}", TABLE | {"k": np.array(2)}, None),
        (f"{LOOK_UP} {{ j = Add(i, k) a = Gather(w, j) b = Gather(w, i) y = Add(a, b) }}",
         TABLE | {"k": np.array(2)}, None),
        (f"{LOOK_UP} {{ n = Equal(i, k) c = Cast<to=7>(n) a = Gather(w, c) b = Gather(w, i) "
         f"y = Add(a, b) }}", TABLE | {"k": np.array(2)}, 9),
        (f"{LOOK_UP} {{ j = Gather(t, i) y = Gather(w, j) }}",
         TABLE | {"t": np.array([3, 8, 0, 1, 2])}, 5),
        (f"{LOOK_UP} {{ c = CumSum(i, z) j = Mul(c, i) y = Gather(w, j) }}",
         TABLE | {"z": np.array(0)}, None),
        (f"{LOOK_UP} {{ y = Gather(t, i) }}", {"t": (2, 4)}, None),
        ("(int64[2,6] i) => (float[2,6] y) { y = GatherElements<axis=0>(w, i) }", {"w": (3, 6)}, 3),
        ("(int64[2,2] i) => (float[2] y) { y = GatherND(w, i) }", {"w": (7, 6)}, 6),
        ("(int64[2,1] i, float[2,4] u) => (float[9,4] y) { y = ScatterND(w, i, u) }", TABLE, 9),
        ("(int32[2,6] i) => (int32[2,6] y) { a = Mul(i, i) y = Sub(a, i) }", {}, None),
        ("(int64[2,6] i) => (float[2,6] y) { f = Cast<to=1>(i) y = Softmax(f) }", {}, None),
        ("(int64[6] i) => (float[6] y) { c = Cast<to=3>(i) d = Cast<to=7>(c) y = Gather(w, d) }",
         {"w": (200,)}, None),
    ],
)  # fmt: skip
def test_an_input_is_drawn_from_what_its_use_can_take(save, text, weights, below):
    model = api.load_model(save(net(f"g {text}", weights)))
    assert model.lowered.integers_below.get("i") == below
    judge(model, model.split([]))
    top = max(int(item["i"].max()) for item in model.items(40))
    assert 0.9 * ((below or 2) - 1) <= top < (below or 2)


def test_an_index_into_what_has_no_fixed_size_is_refused_as_such(save):
    text = (
        "g (int64[2,6] i, float[6] x) => (int64[N] y) "
        "{ n = NonZero(x) r = Squeeze(n) y = Gather(r, i) }"
    )
    with pytest.raises(
        ModelError, match=r"node 'n' \(NonZero\) makes a tensor whose size depends on the data"
    ):
        api.load_model(save(net(text)))


def test_verify_draws_as_wide_and_sees_a_row_that_0_and_1_do_not_reach(save, tmp_path):
    text = f"g {LOOK_UP} {{ y = Gather(w, i) }}"
    table = np.arange(36, dtype=np.float32).reshape(9, 4)
    api.load_model(save(net(text, {"w": table}))).split([]).export(tmp_path)
    assert verify(tmp_path).accuracy.equal
    changed = save(net(text, {"w": np.where(table < 8, table, -table)}), "changed.onnx")
    file = tmp_path / "split.json"
    document = json.loads(file.read_text())
    file.write_text(
        json.dumps(document | {"model": document["model"] | {"sha256": files.sha256(changed)}})
    )
    assert not verify(tmp_path, changed).accuracy.equal
