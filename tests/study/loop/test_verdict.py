"""One rule judges trials and baselines alike, and says so in three lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Spread
from autosplit.study.loop.verdict import Contender, judge

CORES = [f"cores:{number}" for number in range(4)]


def spread(median, half=0.1):
    return Spread(median, median - half, median + half)


def whole(*devices, runtime="onnxruntime"):
    return Deployment.of_split([(0, 1)], devices, [runtime], [len(devices)])


def contender(deployment, time, *reasons):
    period = time if isinstance(time, Spread) else spread(time)
    return Contender(deployment, period, reasons, trial=3, baseline="openvino, throughput hint")


LEAVE, REPLICATE = whole("cores:0-1"), whole(*CORES[:2])
SPLIT = Deployment.of_split([(0,), (1,)], CORES[:2], ["tvm", "tvm"])
REPLICATED = Deployment.of_split([(0,), (1,)], CORES[:3], ["tvm", "tvm"], [2, 1])
MIXED = Deployment.of_split([(0,), (1,)], CORES[:2], ["tvm", "onnxruntime"])


def text(*contenders, **options):
    return judge(contenders, **options).text.splitlines()


def test_three_lines_say_what_to_do_the_figures_and_how_sure():
    lines = text(contender(REPLICATE, 9.8), contender(SPLIT, 9.9), contender(LEAVE, 12.25))
    assert lines == [
        "Replicate the whole model: 2 x onnxruntime, 1 thread each.",
        "9.8 ms (9.7 to 9.9) an item; the whole model 12.2 ms (1.25 times as long); "
        "the best split 9.9 ms (a tie).",
        "Sure: measured interleaved, on a calm machine.",
    ]


@pytest.mark.parametrize(
    ("deployment", "advice"),
    [
        (LEAVE, "Leave the model whole: onnxruntime, 2 threads."),
        (whole("cuda:0"), "Leave the model whole: onnxruntime on cuda:0."),
        (whole("cores:1", "cuda:0"), "Replicate the whole model: 2 x onnxruntime on cores:1 and "),
        (SPLIT, "Split into 2 stages (trial 3): each tvm, 1 thread."),
        (MIXED, "Split into 2 stages (trial 3): tvm, 1 thread; onnxruntime, 1 thread."),
        (REPLICATED, "Split into 2 stages (trial 3): 2 x tvm, 1 thread each; tvm, 1 thread."),
    ],
)
def test_the_first_line_says_how_to_run_it(deployment, advice):
    lines = text(contender(deployment, 5.0))
    assert lines[0].startswith(advice)
    assert lines[1] == "5 ms (4.9 to 5.1) an item; no other shape was measured."


def test_what_cannot_be_exported_is_named_where_it_is_faster_and_never_advised():
    faster, slower = (text(contender(SPLIT, 10.0), contender(None, t)) for t in (8.0, 12.0))
    assert faster[0].startswith("Split")
    hint = "openvino, throughput hint, which this study does not export, 8 ms (0.80 times as long)"
    assert hint in faster[1]
    assert "hint" not in slower[1]


def test_a_disturbed_comparison_or_none_is_less_sure():
    unsure = "No reliable answer; run again when the machine is idle: other processes."
    assert text(contender(SPLIT, 9.0, "other processes"), contender(LEAVE, 12.0))[2] == unsure
    assert text(contender(SPLIT, 9.0), contender(LEAVE, 12.0, "other processes"))[2] == unsure
    assert "with --force when" in text(contender(SPLIT, 9.0, "noise"), objective="latency")[2]
    one_by_one = text(contender(SPLIT, 9.0), objective="latency")
    assert "ms (8.9 to 9.1) latency" in one_by_one[1]
    assert one_by_one[2] == "Less sure: measured one after another, on a calm machine."


SPREADS = st.lists(st.integers(0, 30), min_size=3, max_size=3).map(
    lambda times: Spread(sorted(times)[1], min(times), max(times))
)
DEPLOYMENTS = st.sampled_from([LEAVE, REPLICATE, SPLIT, MIXED])


@given(st.lists(st.builds(contender, DEPLOYMENTS, SPREADS), min_size=1, max_size=6))
def test_the_winner_ties_with_the_fastest_and_nothing_simpler_does(field):
    winner = judge(field).winner
    fastest = min(field, key=lambda c: c.time.median)
    ties = [c for c in field if c.time.low <= fastest.time.high]
    order = ["leave", "replicate", "split"]
    keys = [(order.index(c.choice), len(set(c.deployment.runtimes))) for c in ties if c.deployment]
    assert winner in ties
    assert keys[ties.index(winner)] == min(keys)
