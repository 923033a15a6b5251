import numpy as np
import pytest

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


def _result(build, arrays):
    import tvm
    from tvm import relax
    from tvm.relax import backend
    from tvm.relax import transform as t

    inputs = [
        relax.Var(f"x{place}", relax.TensorType(array.shape, str(array.dtype)))
        for place, array in enumerate(arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(*inputs)))
        builder.emit_func_output(result)
    with tvm.target.Target("llvm"):
        # The sums before a random draw are another op.
        module = backend.DispatchSortScan()(bound_lookups(builder.get()))
        module = t.LegalizeOps()(module)
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    return machine["main"](*tensors).numpy()


def test_every_lookup_is_tried():
    assert {f"relax.{name}" for name in _lookups()} == LOOKUPS


@pytest.mark.parametrize("name", [name.removeprefix("relax.") for name in sorted(LOOKUPS)])
def test_an_index_out_of_bounds_stays_in_the_tensor(name):
    build, arrays = _lookups()[name]
    result = _result(build, arrays)
    values = {*DATA.ravel().tolist(), *(-DATA).ravel().tolist(), *THREE.tolist(), *range(4)}
    assert set(result.ravel().tolist()) <= values


@pytest.mark.parametrize("axis", [0, 1])
def test_an_index_in_bounds_takes_its_element(axis):
    from tvm.relax import op

    indices = np.array([2, 0, 1])
    result = _result(lambda a, i: op.take(a, i, axis=axis), [DATA, indices])
    assert np.array_equal(result, np.take(DATA, indices, axis))
