"""Strategies of hypothesis that several tests draw from."""

from hypothesis import strategies as st

TEXT = st.text(max_size=8)


def documents(numbers=st.integers() | st.floats()):  # noqa: B008
    """Anything that JSON can hold, in a few levels."""
    return st.recursive(
        st.none() | st.booleans() | numbers | TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=6,
    )
