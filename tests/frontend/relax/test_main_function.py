"""Changes of ``main`` free what they know once they are done."""

import gc
import weakref

import pytest

from autosplit.frontend.relax.main_function import with_bindings, with_calls
from tests.relax_nets import parsed


class Weights:
    """Stands for what a change holds: TVM's own objects take no weak references."""

    def unchanged(self, *arguments):
        """Leave a call as it is."""
        return arguments[-1]

    def is_changed(self, *arguments):
        """Leave a binding as it is."""
        return False


@pytest.mark.parametrize(
    ("rewrite", "change"), [(with_bindings, Weights.is_changed), (with_calls, Weights.unchanged)]
)
def test_memory_stays_flat_over_changes(rewrite, change):
    module = parsed(
        "@I.ir_module\nclass M:\n    @R.function\n"
        "    def main(x: R.Tensor((2, 3), 'float32')):\n        y = R.exp(x)\n        return y\n"
    )
    remaining = []
    for _ in range(3):
        weights = Weights()
        remaining.append(weakref.ref(weights))
        rewrite(module, lambda *arguments, weights=weights: change(weights, *arguments))
        del weights
    gc.collect()
    assert [weights() for weights in remaining] == [None] * 3
