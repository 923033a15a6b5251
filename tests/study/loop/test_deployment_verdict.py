"""The verdict on a deployment names it, its rivals and the other shape."""

from __future__ import annotations

from typing import Any

import pytest

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.study.loop.verdict import described, judge_deployment


def spread(median: float, half: float = 0.1) -> Spread:
    return Spread(median, median - half, median + half)


def baseline(name: str, period: float, copies: int = 1) -> Baseline:
    return Baseline(name, spread(period), spread(period), copies)


def shape(replicas: Any, threads: Any, cores: Any = range(8), runtime: str = "openvino") -> Any:
    stages = [(n,) for n in range(len(replicas))]
    return Deployment.of_shape(stages, replicas, threads, [runtime] * len(stages), [cores])


@pytest.mark.parametrize(
    ("deployment", "text"),
    [
        (shape([1], [1]), "the whole model on core 0, openvino"),
        (shape([2], [1]), "2 replicas of the whole model on cores 0 and 1, openvino"),
        (shape([2], [2]), "2 replicas of the whole model, 2 threads a replica on cores 0 to 3, "),
        (shape([1], [3], (0, 2, 5)), "the whole model, 3 threads a replica on cores 0, 2 and 5, "),
        (shape([1, 1], [1, 1]), "2 stages on cores 0 and 1, openvino"),
        (shape([2, 2], [1, 1]), "2 stages with 2 replicas on cores 0 to 3, "),
        (shape([3, 1], [1, 2]), "2 stages with 3 and 1 replicas, 1 and 2 threads a replica on "),
    ],
)
def test_a_deployment_is_described_by_its_shape(deployment: Any, text: str) -> None:
    assert described(deployment).startswith(text)


COPIES, PIPELINE = shape([2], [1]), shape([1, 1], [1, 1])
BASELINES = [
    baseline("onnxruntime, 2 threads", 2.94),
    baseline("openvino, 2 replicas", 2.2),
    baseline("onnxruntime, 1 thread", 5.0),
]


def test_the_whole_model_is_compared_with_other_baselines_and_the_best_split() -> None:
    others = {COPIES: spread(2.7), PIPELINE: spread(2.74), shape([2, 1], [1, 1]): spread(9)}
    verdict = judge_deployment(COPIES, spread(2.7), BASELINES, others)
    assert verdict.choice == "replicate"
    assert verdict.text == (
        "2 replicas of the whole model on cores 0 and 1, openvino: 2.7 ms (2.6 to 2.8) an item, "
        "1.09 times the throughput of onnxruntime, 2 threads (2.94 ms); "
        "the best split, 2.74 ms, is a tie."
    )


@pytest.mark.parametrize(
    ("whole", "relation", "choice"),
    [(2.9, "slower", "split"), (2.3, "a tie", "replicate"), (1.9, "faster", "replicate")],
)
def test_a_split_is_compared_with_the_whole_model(whole: float, relation: str, choice: str) -> None:
    verdict = judge_deployment(PIPELINE, spread(2.2), [], {COPIES: spread(whole)})
    assert verdict.choice == choice
    assert f"; the whole model, {whole} ms, is {relation}." in verdict.text
    assert ("Rather take 2 replicas of the whole model" in verdict.text) == (choice != "split")


@pytest.mark.parametrize(("period", "choice"), [(1.9, "split"), (2.2, "leave"), (3.0, "leave")])
def test_a_split_that_ties_with_a_baseline_or_loses_is_not_advised(
    period: float, choice: str
) -> None:
    rivals = [baseline("openvino, 2 threads", 2.2)]
    assert judge_deployment(PIPELINE, spread(period), rivals, {}).choice == choice


@pytest.mark.parametrize(
    ("period", "relation"),
    [
        (3.0, ", a tie with onnxruntime, 2 threads (2.94 ms)."),
        (3.5, ", which is faster."),
        (2.0, " ms)."),
    ],
)
def test_a_rival_that_is_no_slower_is_named_so(period: float, relation: str) -> None:
    verdict = judge_deployment(shape([1], [4]), spread(period), BASELINES[:1], {})
    assert verdict.choice == "leave"
    assert verdict.text.endswith(relation)


@pytest.mark.parametrize(("kinds", "is_rival"), [(1, False), (2, True)])
def test_of_several_kinds_of_cores_a_baseline_had_other_ones(kinds: int, is_rival: bool) -> None:
    same = baseline("openvino, 4 threads", 2.0)
    verdict = judge_deployment(shape([1], [4]), spread(3.0), [same], {}, kinds)
    assert ("openvino, 4 threads" in verdict.text) == is_rival
