from functools import partial
from itertools import chain

import numpy as np

from autosplit.lowering.fuse.indices import LOOKUPS, bound_lookups

DATA = np.arange(12, dtype="float32").reshape(3, 4)
FAR = 10**12
PAIRS = np.array([[1, FAR], [-FAR, 3], [0, 0]])
COLUMNS = np.array([1, FAR, 3])
THREE = np.array([-1.0, -2.0, -3.0], "float32")


def _lookups():
    """By op a call of it, and what it is called with: some indices are far outside."""
    from tvm.relax import op

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
    import tvm
    from tvm import relax
    from tvm.relax import backend
    from tvm.relax import transform as t

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
        module = backend.DispatchSortScan()(bound_lookups(builder.get()))
        module = t.LegalizeOps()(module)
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    return dict(zip(calls, (r.numpy() for r in machine["main"](*values)), strict=True))


def test_an_index_out_of_bounds_stays_in_the_tensor():
    assert {f"relax.{name}" for name in _lookups()} == LOOKUPS
    inside = {*DATA.ravel().tolist(), *(-DATA).ravel().tolist(), *THREE.tolist(), *range(4)}
    for name, result in _results(_lookups()).items():
        assert set(result.ravel().tolist()) <= inside, name


def test_an_index_in_bounds_takes_its_element():
    from tvm.relax import op

    indices = np.array([2, 0, 1])
    calls = {axis: (partial(op.take, axis=axis), [DATA, indices]) for axis in (0, 1)}
    for axis, result in _results(calls).items():
        assert np.array_equal(result, np.take(DATA, indices, axis))
