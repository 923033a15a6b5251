import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit import cuts
from autosplit.errors import SplitError
from autosplit.graph import build
from tests.cuts.graphs import diamond


def test_stages_lie_between_the_cuts():
    assert cuts.stages(diamond(), [0b1, 0b11]) == ((0,), (1,), (2, 3))
    assert cuts.stages(diamond(), []) == ((0, 1, 2, 3),)


@given(st.sampled_from([(0b1,), (0b11,), (0b1, 0b101), (0b1, 0b11, 0b111), ()]))
def test_cuts_of_is_the_inverse_of_stages(nested):
    assert cuts.cuts_of(diamond(), cuts.stages(diamond(), nested)) == nested


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        ([0b10], "'B' but not its producer 'A'"),
        ([0b11, 0b101], "'B' lies before cut 1 but after cut 2"),
        ([0b1, 0b1], "stage 1 is empty"),
        ([0], "stage 0 is empty"),
        ([0b1111], "stage 1 is empty"),
        ([1 << 9], "op 9"),
        ([-1], "cut 1"),
    ],
)
def test_an_illegal_chain_of_cuts_names_the_op(nested, message):
    with pytest.raises(SplitError, match=message):
        cuts.stages(diamond(), nested)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([(0, 1), (2,)], "'D' is in no stage"),
        ([(0, 1), (1, 2, 3)], "'B' appears again in stage 1"),
        ([(0, 3), (1, 2)], "'D' but not its producer 'B'"),
        ([(0, 1, 2, 3), ()], "stage 1 is empty"),
        ([(0, 1, 2, 7)], "names op 7"),
    ],
)
def test_illegal_stages_name_the_op(stages, message):
    with pytest.raises(SplitError, match=message):
        cuts.cuts_of(diamond(), stages)


def test_a_graph_without_ops_has_nothing_to_split():
    graph = build("copy", (), {"x": ((4,), "float32", 16)}, ("x",), ("x",))
    with pytest.raises(SplitError, match="model 'copy' has no op: its outputs are its inputs"):
        cuts.stages(graph, [])


def test_live_tensors_are_made_before_and_read_after():
    assert cuts.live(diamond(), 0) == ()
    assert cuts.live(diamond(), 0b1) == ("a",)
    assert cuts.live(diamond(), 0b11) == ("a", "b")
    assert cuts.live(diamond(), 0b111) == ("b", "c")
    assert cuts.live(diamond(), 0b1111) == ()


def test_a_model_output_is_live_only_while_an_op_reads_it():
    assert cuts.live(diamond(outputs=("d", "a")), 0b1) == ("a",)
    assert cuts.live(diamond(outputs=("d", "a")), 0b111) == ("b", "c")
