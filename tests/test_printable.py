import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [("conv 1/ünï 日🌲", "conv 1/ünï 日🌲"), ("\x1b[2Jgone", r"\x1b[2Jgone"),
     ("\x1b]0;title\x07", r"\x1b]0;title\x07"), ("\x9b31m", r"\x9b31m"),
     ("a\u202eb\u2066c", r"a\u202eb\u2066c"), ("a\nb\rc\td\u2028e", r"a\nb\rc\td\u2028e"),
     ("a\ud800b", r"a\ud800b"), ("\u200b\ufeff\x7f\0", r"\u200b\ufeff\x7f\x00")],
)  # fmt: skip
def test_what_a_terminal_would_obey_is_escaped(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_any_text_becomes_one_line_that_can_be_encoded(text):
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()
    assert printable(shown) == shown
