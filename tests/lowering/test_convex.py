"""Convex sets of ops, against paths listed one by one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import SplitError
from autosplit.graph import Op, build
from autosplit.lowering.convex import between, require_convex


def graph(reads):
    """Op i reads the tensors of the ops ``reads[i]``; those that read none read the input."""
    ops = [
        Op(f"o{i}", "k", (), tuple(f"t{p}" for p in sorted(read_ops)) or ("x",), (f"t{i}",))
        for i, read_ops in enumerate(reads)
    ]
    shapes = dict.fromkeys(["x", *(f"t{i}" for i in range(len(reads)))], ((1,), "float32", 4))
    return build("g", ops, shapes, ("x",), (f"t{len(reads) - 1}",))


@st.composite
def questions(draw):
    n = draw(st.integers(1, 7))
    reads = [draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set() for i in range(n)]
    some = st.sets(st.integers(0, n - 1), min_size=1, max_size=3)
    return reads, draw(some), draw(some)


def paths(reads, start):
    """All paths from an op along the data."""
    ahead = [(start,)]
    for path in ahead:
        ahead += [(*path, i) for i, read_ops in enumerate(reads) if path[-1] in read_ops]
    return ahead


@given(questions())
def test_between_are_the_ops_on_a_path_and_an_end_on_none_is_named(question):
    reads, first, last = question
    on = {i for s in first for path in paths(reads, s) if path[-1] in last for i in path}
    if first | last <= on:
        assert between(graph(reads), first, last) == tuple(sorted(on))
        assert require_convex(graph(reads), on) == tuple(sorted(on))
        return
    lone = min(first - on) if first - on else min(last - on)
    with pytest.raises(SplitError, match=f"'o{lone}'"):
        between(graph(reads), first, last)


@given(questions())
def test_a_set_is_convex_if_no_path_leaves_it_and_returns(question):
    reads, ops, _ = question
    outside = {i for s in ops for path in paths(reads, s) if path[-1] in ops for i in path} - ops
    if not outside:
        assert require_convex(graph(reads), [*ops, *ops]) == tuple(sorted(ops))
        return
    with pytest.raises(SplitError) as error:
        require_convex(graph(reads), ops)
    path = [
        int(o[1:]) for o in str(error.value).split("the path ")[1].split(" leaves")[0].split(" -> ")
    ]
    assert all(a in reads[b] for a, b in pairwise(path))
    assert {path[0], path[-1]} <= ops
    assert not ops & set(path[1:-1])
    assert str(error.value).endswith("add " + ", ".join(f"'o{i}'" for i in sorted(outside)))


def test_no_op_at_all_is_no_set():
    with pytest.raises(SplitError, match="no op is named"):
        require_convex(graph([set(), {0}]), [])


@pytest.mark.parametrize(
    ("last", "message"), [([0], "to op 'o0'"), ([0, 1], "to any of 'o0', 'o1'")]
)
def test_ends_that_no_path_joins_are_told(last, message):
    with pytest.raises(SplitError, match=f"no path leads from op 'o2' {message}; swap them"):
        between(graph([set(), {0}, {1}]), [2], last)
