from autosplit.hardware.results import Baseline, Spread
from autosplit.study.verdict import judge


def spread(median: float, half: float = 0.1) -> Spread:
    return Spread(median, median - half, median + half)


def baseline(name: str, period: float, copies: int = 1) -> Baseline:
    return Baseline(name, spread(period), spread(period), copies)


ONE, ALL, COPIES = baseline("one core", 20), baseline("all cores", 12), baseline("replicas", 11, copies=2)


def test_a_split_that_wins_is_advised_with_its_gain() -> None:
    verdict = judge(2, spread(8), [ONE, ALL])
    assert verdict.choice == "split"
    assert verdict.text == (
        "Split: the best split into 2 stages takes 8 ms (7.9 to 8.1) an item, "
        "1.50 times the throughput of the whole model on all cores at 12 ms (11.9 to 12.1)."
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
    assert "of 2 replicas at 11 ms" in verdict.text


def test_overlapping_intervals_are_a_tie_and_no_win() -> None:
    verdict = judge(2, spread(11.9), [ONE, ALL])
    assert verdict.choice == "leave"
    assert "a tie" in verdict.text


def test_of_baselines_that_tie_the_one_of_fewest_copies_counts() -> None:
    assert judge(2, spread(15), [baseline("all cores", 11.1), COPIES]).choice == "leave"


def test_without_baselines_nothing_is_claimed_against_them() -> None:
    verdict = judge(2, spread(8), [])
    assert verdict.choice == "split"
    assert "nothing was measured to compare it with" in verdict.text
