import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import StageError
from tests.hardware.fakes import fake_pipeline, graph, in_time, items, sequential

CHAIN = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b", "y"])], ["x", "y"], ["c", "a"])
STAGES = [[0], [1, 2]]


def two_inputs(count):
    pairs = zip(items(count), items(2 * count)[count:], strict=True)
    return [{"x": x["x"], "y": y["x"]} for x, y in pairs]


def require_single_results(results, submitted, outputs=("c", "a")):
    for result, item in zip(results, submitted, strict=True):
        expected = sequential(CHAIN, item, outputs)
        assert result.keys() == expected.keys()
        for name in outputs:
            np.testing.assert_array_equal(result[name], expected[name])


@given(
    batch=st.integers(1, 5),
    count=st.integers(0, 23),
    depth=st.integers(1, 3),
    replicas=st.sampled_from([(1, 1), (2, 1), (1, 3)]),
)
def test_items_of_batches_have_the_results_of_single_ones(batch, count, depth, replicas):
    pipeline, _ = fake_pipeline(
        CHAIN, STAGES, ["c", "a"], depth=depth, replicas=replicas, batch=batch
    )
    submitted = two_inputs(count)
    with pipeline:
        require_single_results(in_time(lambda: pipeline.run(submitted)), submitted)


def test_stages_run_once_a_batch_and_once_for_what_is_left():
    pipeline, stages = fake_pipeline(CHAIN, STAGES, ["c", "a"], batch=4)
    with pipeline:
        in_time(lambda: pipeline.run(two_inputs(10)))
    assert [len(stage.seen) for stage in stages] == [3, 3]


def test_an_incomplete_batch_is_computed_once_a_result_is_waited_for():
    pipeline, stages = fake_pipeline(CHAIN, STAGES, ["c", "a"], batch=4)
    submitted = two_inputs(6)
    with pipeline:
        for item in submitted:
            pipeline.submit(item)
        require_single_results(in_time(lambda: list(islice(pipeline.results(), 6))), submitted)
        assert len(stages[0].seen) == 2
        pipeline.submit(submitted[0])
        require_single_results([in_time(lambda: next(pipeline.results()))], submitted[:1])


def test_threads_that_share_batches_get_the_results_of_their_own_items():
    pipeline, _ = fake_pipeline(CHAIN, STAGES, ["c", "a"], batch=3)
    every, results = two_inputs(40), {}
    parts = [every[n::4] for n in range(4)]

    def run(n):
        results[n] = pipeline.run(parts[n])

    with pipeline:
        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        in_time(lambda: [t.start() for t in threads] + [t.join() for t in threads])
    for n in range(4):
        require_single_results(results[n], parts[n])


def test_an_input_that_is_an_output_too_belongs_to_its_item():
    net = graph([("a", ["x"])], ["x"], ["a", "x"])
    pipeline, _ = fake_pipeline(net, [[0]], ["a", "x"], batch=2)
    submitted = items(3)
    with pipeline:
        results = in_time(lambda: pipeline.run(submitted))
    assert [r["x"].tolist() for r in results] == [i["x"].tolist() for i in submitted]


def test_a_stage_that_fails_closes_the_pipeline_for_all_items_of_a_batch():
    def fail(_):
        raise ValueError("broken")

    pipeline, _ = fake_pipeline(CHAIN, STAGES, ["c", "a"], before={1: fail}, batch=4)
    with pipeline, pytest.raises(StageError, match="broken"):
        in_time(lambda: pipeline.run(two_inputs(6)))
