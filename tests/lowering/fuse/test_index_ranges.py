"""Random integers are as wide as the net can take them; indices out of their tensor are refused."""

import re
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

import autosplit
from autosplit import api, files
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError
from autosplit.extras import relax, tvm
from autosplit.frontend import importing
from autosplit.frontend.source import SourceState
from autosplit.hardware.devices.device import along
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget
from autosplit.lowering.fuse.indices import LOOKUPS, bound_lookups, index_ranges, most_steps
from tests.deploy.exports import Export
from tests.nets import judge, net, onnxruntime_outputs
from tests.relax_nets import function, module

TABLE = {"w": (9, 4)}
LOOK_UP = "(int64[6] i) => (float[6,4] y)"


# A net, its weights, the indices that it takes, and the numbers below which they are drawn.
NETS = [
    (f"{LOOK_UP} {{ y = Gather(w, i) }}", TABLE, (-9, 8), 9),
    (f"{LOOK_UP} {{ y = Gather(t, i) }}", {"t": (2, 4)}, (-2, 1), None),
    (f"{LOOK_UP} {{ a = Gather(w, i) b = Gather(v, i) y = Add(a, b) }}",
     TABLE | {"v": (8, 4)}, (-8, 7), 8),
    (f"{LOOK_UP} {{ y = Gather(w, i) unread = Gather(v, i) }}",
     TABLE | {"v": (3, 4)}, (-9, 8), 3),
    ("(int32[6] i) => (float[6,4] y) { c = Cast<to=7>(i) d = Reshape(c, s) y = Gather(w, d) }",
     TABLE | {"s": np.array([6])}, (-9, 8), 9),
    (f"{LOOK_UP} {{ j = Gather(t, i) y = Gather(w, j) }}",
     TABLE | {"t": np.array([3, 8, 0, 1, 2])}, (-5, 4), 5),
    ("(int64[2] i) => (float[4,2] y) { y = Gather<axis=1>(v, i) }", {"v": (4, 7)}, (-7, 6), 7),
    ("(int64[2,6] i) => (float[2,6] y) { y = GatherElements<axis=0>(w, i) }",
     {"w": (3, 6)}, (-3, 2), 3),
    ("(int64[2,1] i) => (float[2,6] y) { y = GatherND(w, i) }", {"w": (7, 6)}, (-7, 6), 7),
    ("(int64[2,1] i, float[2,4] u) => (float[9,4] y) { y = ScatterND(w, i, u) }",
     TABLE, (-9, 8), 9),
    ("(int64[1,4] i, float[1,4] u) => (float[9,4] y) { y = ScatterElements<axis=0>(w, i, u) }",
     TABLE, (-9, 8), 9),
    ("(int64[1] i) => (float[3,4] y) { j = Add(k, i) y = Gather(w, j) }",
     TABLE | {"k": np.array([2, 0, 1])}, (-9, 6), 7),
    ("(int64[1] i) => (float[4] y) { j = Gather(i, k) y = Gather(w, j) }",
     TABLE | {"k": np.array(0)}, (-9, 8), 9),
    (f"{LOOK_UP} {{ n = Equal(i, k) c = Cast<to=7>(n) a = Gather(w, c) b = Gather(w, i) "
     f"y = Add(a, b) }}", TABLE | {"k": np.array(2)}, (-9, 8), 9),
    (f"{LOOK_UP} {{ j = Add(i, k) a = Gather(w, j) b = Gather(w, i) y = Add(a, b) }}",
     TABLE | {"k": np.array(2)}, (-9, 8), None),
    (f"{LOOK_UP} {{ y = Gather(t, i) }}", {"t": (1, 4)}, (-1, 0), 1),
    ("(uint8[6] i) => (float[6,4] y) { c = Cast<to=7>(i) y = Gather(w, c) }",
     {"w": (3, 4)}, (-3, 2), 3),
    # The range is not sure: some value beyond the axis, or some element, is not looked up.
    (f"{LOOK_UP} {{ j = Add(i, k) y = Gather(w, j) }}", TABLE | {"k": np.array(2)}, None, None),
    (f"{LOOK_UP} {{ j = Clip(i, a, b) y = Gather(w, j) }}",
     TABLE | {"a": np.array(0), "b": np.array(8)}, None, None),
    (f"{LOOK_UP} {{ j = Mod(i, k) y = Gather(w, j) }}", TABLE | {"k": np.array(9)}, None, None),
    (f"{LOOK_UP} {{ j = Cast<to=3>(i) k = Cast<to=7>(j) y = Gather(w, k) }}",
     {"w": (200, 4)}, None, None),
    (f"{LOOK_UP} {{ c = Cast<to=6>(i) d = Reshape(c, s) y = Gather(w, d) }}",
     TABLE | {"s": np.array([6])}, None, 9),
    ("(int64[6] i) => (float[3,4] y) { j = Slice(i, a, b) y = Gather(w, j) }",
     TABLE | {"a": np.array([0]), "b": np.array([3])}, None, None),
    (f"{LOOK_UP} {{ n = Less(i, z) a = Add(i, k) j = Where(n, a, i) y = Gather(w, j) }}",
     TABLE | {"z": np.array(0), "k": np.array(18)}, None, None),
    (f"{LOOK_UP} {{ c = CumSum(i, z) j = Mul(c, i) y = Gather(w, j) }}",
     TABLE | {"z": np.array(0)}, None, None),
    ("(int64[2,2] i) => (float[2] y) { y = GatherND(w, i) }", {"w": (7, 6)}, None, 6),
    ("(int32[2,6] i) => (int32[2,6] y) { a = Mul(i, i) y = Sub(a, i) }", {}, None, None),
    ("(int64[2,6] i) => (float[2,6] y) { f = Cast<to=1>(i) y = Softmax(f) }", {}, None, None),
    ("(float[1,50] x, int64[1] i) => (float[1,50] y) { m = Less(r, i) y = Where(m, x, z) }",
     {"r": np.arange(50), "z": np.array(0, np.float32)}, None, 51),
]  # fmt: skip


def together(nets_and_weights):
    """One net of many: to every name of a tensor the number of its net is added."""
    parts, weights = [], {}
    for number, (text, arrays) in enumerate(nets_and_weights):
        new = re.sub(r"\b(?!int64|int32|uint8|float|to\b|axis\b)[a-z]\w*", rf"\g<0>_{number}", text)
        parts.append(re.fullmatch(r"\((.*)\) => \((.*)\) \{(.*)\}", new).groups())
        weights |= {f"{name}_{number}": array for name, array in arrays.items()}
    ports, outputs, bodies = zip(*parts, strict=True)
    text = f"g ({', '.join(ports)}) => ({', '.join(outputs)}) {{ {' '.join(bodies)} }}"
    return net(text, weights)


@pytest.mark.integration
def test_an_input_has_the_range_of_what_it_looks_into_and_is_drawn_from_it(save):
    model = api.load_model(save(together(row[:2] for row in NETS)))
    items = model.items(40)
    for number, (text, _, legal, below) in enumerate(NETS):
        name = f"i_{number}"
        assert model.lowered.index_ranges.get(name) == legal, text
        assert model.lowered.integers_below.get(name) == below, text
        top = max(int(item[name].max()) for item in items)
        assert 0.9 * ((below or 2) - 1) <= top < (below or 2), text
    judge(model, model.split([]))


def test_an_index_out_of_its_table_is_refused_here_and_where_it_is_loaded(save, tmp_path):
    file = save(net(f"g {LOOK_UP} {{ y = Gather(w, i) }}", TABLE))
    split = api.load_model(file).split([])
    split.export(tmp_path / "out")
    legal = {"i": np.array([-9, 8, -1, 0, 3, -5])}
    (expected,) = onnxruntime_outputs(file, [legal])
    for pipeline in (split.pipeline(), autosplit.load(tmp_path / "out")):
        with pipeline:
            for index in (-10, 9, 5000, -(2**63)):
                with pytest.raises(ConfigError, match=f"input 'i' holds {index}; .* -9 to 8"):
                    pipeline.run([{"i": np.array([0, 0, index, 0, 0, 0])}])
            assert (pipeline.run([legal])[0]["y"] == expected["y"]).all()


def test_an_opaque_op_of_numbers_takes_any_of_them(save):
    shift = 'g (uint8[9] x, uint8[9] n) => (uint8[9] y) { y = BitShift<direction="LEFT">(x, n) }'
    model = api.load_model(save(net(shift)), runtime="onnxruntime")
    assert max(int(item[name].max()) for item in model.items(8) for name in "xn") > 200
    judge(model, model.split([]), items=8)


def test_indices_that_cannot_be_0_are_clamped_because_random_ones_begin_there():
    body = "with R.dataflow():\n    j = R.add(i, R.const([-2], 'int64'))\n    y = R.take(x, j)\n"
    params = "x: R.Tensor((9,), 'float32'), i: R.Tensor((1,), 'int64')"
    text = function("main", f"{body}    R.output(y)\nreturn y", params)
    model = api.load_model(module(text), runtime="tvm")
    with model.unsplit(along(1)[0]) as pipeline:
        assert model.require_equal(pipeline, ["tvm"]).equal


def test_verify_draws_as_wide_and_sees_a_row_that_0_and_1_do_not_reach(save, tmp_path):
    text = f"g {LOOK_UP} {{ y = Gather(w, i) }}"
    table = np.arange(36, dtype=np.float32).reshape(9, 4)
    api.load_model(save(net(text, {"w": table}))).split([]).export(tmp_path)
    assert verify(tmp_path).accuracy.equal
    changed = save(net(text, {"w": np.where(table < 8, table, -table)}), "changed.onnx")
    Export(tmp_path).edit(lambda d: d["model"].update(sha256=files.sha256(changed)))
    assert not verify(tmp_path, changed).accuracy.equal


CACHE = """g (int64[1] n, float[1,4] x, float[9,4] c)
=> (float[9,4] y, float[9,4] c_out, int64[1] n_out) {
i = Reshape(n, s) c_out = ScatterND(c, i, x) n_out = Add(n, k) y = Mul(c_out, t) }"""


@pytest.mark.parametrize(("tokens", "steps"), [(1, 9), (2, 5), (-1, None)])
def test_a_step_beyond_the_length_of_a_cache_is_refused(save, tmp_path, tokens, steps):
    weights = {"s": np.array([1, 1]), "k": np.array([tokens]), "t": np.array(2, np.float32)}
    model = api.load_model(save(net(CACHE, weights)), states="auto")
    assert model.lowered.steps == steps
    if steps != 9:
        return
    items = model.items(10)
    model.split([]).export(tmp_path / "out")
    assert verify(tmp_path / "out").accuracy.equal
    with autosplit.load(tmp_path / "out", trace=True) as pipeline:
        results = pipeline.run(items[:9])
        with pytest.raises(ConfigError, match="stream 0 has had 9 items"):
            pipeline.run(items[9:])
        assert np.array_equal(pipeline.state()["c"] * 2, results[-1]["y"])
        # A measurement takes as many steps as it likes.
        budget = Budget(seconds=0.01, items=20, latency_items=12)
        assert measure.latency(pipeline, items, budget).median > 0
        assert measure.period_and_busy(pipeline, items, budget, streams=2)[0].median > 0


def test_a_counter_of_one_axis_may_have_begun_beside_a_state_that_is_infinite(save):
    weights = {"s": np.array([1, 1]), "k": np.array([2]), "t": np.array(2, np.float32)}
    source = importing.read(save(net(CACHE, weights)), {})
    initial = {"n": np.array([5]), "c": np.array(np.inf)}
    states = tuple(SourceState(name, name, f"{name}_out", a) for name, a in initial.items())
    pairs = {state.input: state.output for state in states}
    assert most_steps(replace(source, states=states), pairs, index_ranges(source)) == (2, 2)


# lookups of TVM that are bound to their tensors


DATA = np.arange(12, dtype="float32").reshape(3, 4)
FAR = 10**12
PAIRS = np.array([[1, FAR], [-FAR, 3], [0, 0]])
COLUMNS = np.array([1, FAR, 3])
THREE = np.array([-1.0, -2.0, -3.0], "float32")


def _lookups():
    """By op a call of it, and what it is called with: some indices are far outside."""
    op = relax.op
    uniform = np.array([[0.5], [0.1], [0.9]], "float32")
    rows = np.array([[0], [FAR], [2]])
    return {
        "gather_elements": (lambda a, i: op.gather_elements(a, i, axis=1), [DATA, PAIRS]),
        "gather_nd": (op.gather_nd, [DATA, PAIRS]),
        "index_put": (lambda a, i, j, u: op.index_put(a, (i, j), u), [DATA, *PAIRS.T[:2], THREE]),
        "index_tensor": (lambda a, i: op.index_tensor(a, (i,)), [DATA, COLUMNS]),
        "multinomial_from_uniform": (op.multinomial_from_uniform, [DATA, uniform, rows]),
        "nn.nll_loss": (lambda a, i: op.nn.nll_loss(a, i, reduction="none"), [DATA, COLUMNS]),
        "reverse_sequence": (lambda a, i: op.reverse_sequence(a, i, 1, 0), [DATA, COLUMNS]),
        "scatter_elements": (
            lambda a, i, u: op.scatter_elements(a, i, u, axis=1),
            [DATA, PAIRS, DATA[:, :2]],
        ),
        "scatter_nd": (op.scatter_nd, [DATA, PAIRS, THREE]),
        "take": (lambda a, i: op.take(a, i, axis=1), [DATA, COLUMNS]),
    }


def _results(calls):
    """By name what each call comes to, all in one function."""
    builder, inputs, values = relax.BlockBuilder(), [], []
    for number, (_, arrays) in enumerate(calls.values()):
        kinds = [relax.TensorType(array.shape, str(array.dtype)) for array in arrays]
        inputs.append([relax.Var(f"x{number}_{i}", kind) for i, kind in enumerate(kinds)])
        values += [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    with builder.function("main", [*chain(*inputs)]):
        with builder.dataflow():
            pairs = zip(calls.values(), inputs, strict=True)
            emitted = [builder.normalize(build(*reads)) for (build, _), reads in pairs]
            outputs = [builder.emit_output(value) for value in emitted]
        builder.emit_func_output(relax.Tuple(outputs))
    with tvm.target.Target("llvm"):
        # The sums before a random draw are another op.
        module = relax.backend.DispatchSortScan()(bound_lookups(builder.get()))
        module = relax.transform.LegalizeOps()(module)
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    return dict(zip(calls, (r.numpy() for r in machine["main"](*values)), strict=True))


def test_an_index_out_of_bounds_stays_in_the_tensor():
    assert {f"relax.{name}" for name in _lookups()} == LOOKUPS
    inside = {*DATA.ravel().tolist(), *(-DATA).ravel().tolist(), *THREE.tolist(), *range(4)}
    for name, result in _results(_lookups()).items():
        assert set(result.ravel().tolist()) <= inside, name
