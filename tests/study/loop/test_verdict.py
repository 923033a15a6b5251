import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.study.loop.verdict import Contender, advised, judge


def spread(median: float, half: float = 0.1) -> Spread:
    return Spread(median, median - half, median + half)


def baseline(name: str, period: float, copies: int = 1) -> Baseline:
    return Baseline(name, spread(period), spread(period), copies)


ONE, ALL, COPIES = (
    baseline("one core", 20),
    baseline("all cores", 12),
    baseline("replicas", 11, copies=2),
)


def test_a_split_that_wins_is_advised_with_its_gain() -> None:
    verdict = judge(2, spread(8), [ONE, ALL])
    assert verdict.choice == "split"
    assert verdict.text == (
        "Split: the best split into 2 stages takes 8 ms (7.9 to 8.1) an item, "
        "1.50 times the throughput of the whole model (all cores) at 12 ms (11.9 to 12.1)."
    )


def test_a_split_that_loses_is_told_so() -> None:
    verdict = judge(2, spread(15), [ONE, ALL])
    assert verdict.choice == "leave"
    assert verdict.text.startswith("Do not split, leave the model whole: ")
    assert "0.80 times the throughput" in verdict.text
    assert verdict.text.endswith("so splitting loses.")


def test_replicas_that_win_are_advised() -> None:
    verdict = judge(2, spread(15), [ONE, ALL, COPIES])
    assert verdict.choice == "replicate"
    assert "(replicas) at 11 ms" in verdict.text


def test_overlapping_intervals_are_a_tie_and_no_win() -> None:
    verdict = judge(2, spread(11.9), [ONE, ALL])
    assert verdict.choice == "leave"
    assert "a tie" in verdict.text
    assert "times the throughput" not in verdict.text


def test_of_baselines_that_tie_the_one_of_fewest_copies_counts() -> None:
    assert judge(2, spread(15), [baseline("all cores", 11.1), COPIES]).choice == "leave"


def test_what_ties_with_the_best_ties_although_a_simpler_baseline_is_slower() -> None:
    whole = Baseline("whole", Spread(10.5, 10.35, 10.6), Spread(10.5, 10.35, 10.6))
    copies = Baseline("replicas", Spread(10.0, 9.6, 10.4), Spread(10.0, 9.6, 10.4), 2)
    verdict = judge(3, Spread(10.2, 10.15, 10.3), [whole, copies])
    assert verdict.choice == "leave"
    assert "a tie" in verdict.text
    assert "(replicas) at 10 ms" in verdict.text


SPREADS = st.tuples(*[st.integers(1, 30)] * 3).map(lambda t: Spread(*sorted(t)[1::-1], max(t)))
SHAPES = st.sampled_from(["leave", "replicate", "split"])


@given(st.lists(st.builds(Contender, SHAPES, SPREADS), min_size=1, max_size=6))
def test_advised_is_the_simplest_that_ties_with_the_fastest(contenders: list[Contender]) -> None:
    chosen = advised(contenders)
    fastest = min(contenders, key=lambda c: c.period.median)
    ties = [c for c in contenders if c.period.low <= fastest.period.high]
    rank = ["leave", "replicate", "split"].index
    assert chosen in ties
    assert all(rank(chosen.shape) <= rank(c.shape) for c in ties)


def test_without_baselines_nothing_is_claimed_against_them() -> None:
    verdict = judge(2, spread(8), [])
    assert verdict.choice == "split"
    assert "nothing was measured to compare it with" in verdict.text


@pytest.mark.parametrize(
    ("period", "choice", "says"),
    [
        (8, "leave", "Do not split, leave the model whole: as one stage it takes 8 ms"),
        (15, "leave", "which is faster."),
        (11.9, "leave", "a tie"),
    ],
)
def test_a_single_stage_is_never_called_a_split(period: float, choice: str, says: str) -> None:
    verdict = judge(1, spread(period), [ONE, ALL])
    assert verdict.choice == choice
    assert says in verdict.text
    assert "splitting" not in verdict.text


@pytest.mark.parametrize(
    ("period", "outcome"),
    [(11.8, "tie"), (11.75, "Split:"), (12.2, "tie"), (12.25, "splitting loses")],
)
def test_intervals_that_touch_are_a_tie(period: float, outcome: str) -> None:
    assert outcome in judge(2, Spread(period, period - 0.125, period + 0.125), [quarter]).text


quarter = Baseline("all cores", Spread(12, 11.925, 12.075), Spread(12, 12, 12))


@pytest.mark.parametrize(("low", "choice"), [(11.0, "leave"), (11.125, "replicate")])
def test_of_baselines_whose_intervals_touch_the_one_of_fewest_copies_counts(
    low: float, choice: str
) -> None:
    copies = Baseline("replicas", Spread(10.5, 10.0, 11.0), Spread(10.5, 10.0, 11.0), 2)
    whole = Baseline("all cores", Spread(11.5, low, 12.0), Spread(11.5, low, 12.0))
    assert judge(2, spread(20), [whole, copies]).choice == choice


def test_of_baselines_that_tie_with_as_many_copies_the_fastest_counts() -> None:
    slower, faster = baseline("one core", 12.1), baseline("all cores", 12.0)
    assert "(all cores)" in judge(2, spread(20), [slower, faster]).text


def test_the_split_is_called_what_it_is_and_a_period_of_nothing_does_not_divide() -> None:
    text = judge(3, Spread(0.0, 0.0, 0.0), [ONE], "fastest").text
    assert text.startswith("Split: the fastest split into 3 stages takes 0 ms")
    assert "inf times" in text
