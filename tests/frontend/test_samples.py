import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ModelError
from autosplit.frontend.samples import random_items

DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]
SHAPES = st.lists(st.integers(0, 4), max_size=3)
ENTRIES = st.tuples(st.text(max_size=4), SHAPES, st.sampled_from(DTYPES))
signatures = st.lists(ENTRIES, max_size=3, unique_by=lambda entry: entry[0])


@given(signatures, st.integers(0, 3), st.integers(0, 2**40))
def test_items_have_the_names_shapes_and_dtypes_of_the_signature(signature, count, seed):
    items = random_items(signature, count, seed)
    assert len(items) == count
    expected = {name: (tuple(shape), np.dtype(dtype)) for name, shape, dtype in signature}
    assert all({n: (a.shape, a.dtype) for n, a in item.items()} == expected for item in items)


@given(signatures, st.integers(0, 2**40))
def test_an_item_depends_on_seed_and_number_only(signature, seed):
    few, many = random_items(signature, 2, seed), random_items(list(reversed(signature)), 3, seed)
    for left, right in zip(few, many, strict=False):
        np.testing.assert_equal(left, right)


def test_floats_are_standard_normal_and_integers_fit_into_a_table_of_two_rows():
    kinds = ["float32", "int8", "uint16", "int32", "int64"]
    item, other = random_items([(kind, (10_000,), kind) for kind in kinds], 2, seed=0)
    assert abs(item["float32"].mean()) < 0.05
    assert abs(item["float32"].std() - 1) < 0.05
    assert [len(set(item[kind].tolist())) for kind in kinds[1:]] == [8, 8, 2, 2]
    assert (other["int8"].min(), other["int8"].max(), other["int64"].max()) == (-128, 127, 1)


def test_some_item_has_rows_of_one_truth_value():
    rows = [row for item in random_items([("m", (9, 64), "bool")], 8, 0) for row in item["m"]]
    assert {True, False} <= {row.any() for row in rows if row.any() == row.all()}


@pytest.mark.parametrize("dtype", ["strange", "object", "complex64", "str"])
def test_a_dtype_without_random_values_is_named(dtype):
    with pytest.raises(ModelError, match=f"input 'x': no random values for dtype '{dtype}'"):
        random_items([("x", (1,), dtype)], 1, seed=0)
