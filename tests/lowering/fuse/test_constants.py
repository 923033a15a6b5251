import numpy as np
import pytest

from autosplit.extras import relax, tvm
from autosplit.lowering.fuse.constants import fold_others, fold_weights
from autosplit.lowering.fuse.tensors import flops_of
from tests.frontend.relax.test_saved_module import KERNEL, KERNEL_CALL
from tests.frontend.relax.test_saved_module import module as with_parts

A = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
B = np.array([[2.0], [4.0]], np.float32)


def module(body):
    """A module that adds ``body``, computed of two weights, to its input."""
    builder = relax.BlockBuilder()
    with builder.function("main"):
        with builder.dataflow():
            weight = builder.emit(body(relax.const(A), relax.const(B)), "weight")
            x = relax.Var("x", weight.ty)
            result = builder.emit_output(relax.op.add(x, weight))
        builder.emit_func_output(result, [x])
    return builder.get()


def weight(body):
    """What the weight of such a module is folded to, None where a call is left."""
    (block,) = fold_weights(module(body))["main"].body.blocks
    if len(block.bindings) > 1:
        return None
    (constant,) = (a for a in block.bindings[0].value.args if isinstance(a, tvm.ir.GenericConst))
    return np.asarray(constant.value.numpy())


def filled_with(number):
    return lambda a, b: relax.op.full((2, 3), relax.const(np.float32(number)), "float32")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda a, b: relax.op.add(a, b), A + B),
        (lambda a, b: relax.op.subtract(a, b), A - B),
        (lambda a, b: relax.op.multiply(b, a), A * B),
        (lambda a, b: relax.op.divide(a, b), A / B),
        (lambda a, b: relax.op.sqrt(a), np.sqrt(A)),
        (lambda a, b: relax.op.permute_dims(a), A.T),
        (lambda a, b: relax.op.permute_dims(a, [1, 0]), A.T),
        (lambda a, b: relax.op.permute_dims(relax.const(A[None]), [1, 2, 0]), A[..., None]),
        (lambda a, b: relax.op.reshape(a, (3, 2)), A.reshape(3, 2)),
        (lambda a, b: relax.op.expand_dims(a, 1), A[:, None]),
        (lambda a, b: relax.op.squeeze(b, 1), B[:, 0]),
        (lambda a, b: relax.op.broadcast_to(b, (2, 5)), np.broadcast_to(B, (2, 5))),
        (lambda a, b: relax.op.strided_slice(a, [1], [0], [-1]), A[:, :-1]),
        (lambda a, b: relax.op.strided_slice(a, [1, 0], [2, 0], [-4, 1], [-1, 1]), A[:1, ::-1]),
        (lambda a, b: relax.op.shape_to_tensor(relax.op.shape_of(a)), np.array(A.shape)),
        *((filled_with(n), np.full((2, 3), n, np.float32)) for n in (np.inf, -np.inf, np.nan)),
    ],
)
def test_a_weight_is_what_numpy_makes_of_it(body, expected):
    folded = weight(body)
    assert folded is not None
    assert folded.dtype == expected.dtype
    np.testing.assert_array_equal(folded, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [(lambda a, b: relax.op.exp(a), np.exp(A)),
     (lambda a, b: relax.op.concat([a, b], 1), np.concatenate([A, B], 1))],
)  # fmt: skip
def test_what_is_not_in_the_table_is_folded_by_the_compiler(body, expected):
    (block,) = fold_others(module(body))["main"].body.blocks
    constant = block.bindings[-1].value.args[1]
    assert isinstance(constant, tvm.ir.GenericConst)
    np.testing.assert_allclose(constant.value.numpy(), expected, rtol=1e-6)


def test_arithmetic_is_estimated_and_nothing_where_it_cannot_be():
    kernel = with_parts(kernel=KERNEL, call=KERNEL_CALL)["kernel"]
    assert flops_of(kernel) == 4  # an addition for each element
    assert flops_of(None) == 0
