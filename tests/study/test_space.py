import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import Option, Row, Stage
from autosplit.errors import SplitError
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.planner.costs import CostModel, Kind, RowCosts, Transfer
from autosplit.planner.problem import Question
from autosplit.planner.workload import Workload
from autosplit.study.acquisition import Goal, acquisition
from autosplit.study.history import History, measured_baselines
from autosplit.study.space import Space, useful_threads
from autosplit.study.surrogate.correction import correct

CORES = Question.of_cores({"big": 3, "little": 2})


def diamonds(ops=7, memory=math.inf):
    """A chain of diamonds: of each three ops the second and the third read the first."""
    before = [0 if not i else (1 << i - 1 if i % 3 != 2 else 1 << i - 2) for i in range(ops)]
    before = [b | (1 << i - 2 if i % 3 == 0 and i else 0) for i, b in enumerate(before)]
    rows = []
    for kind, runtime in (("big", "a"), ("big", "b"), ("little", "a")):
        for threads in (1, 2):
            times = tuple((1.0 + i % 4) / threads for i in range(ops))
            rows.append(RowCosts(Row(kind, runtime, threads), times, 0.1))
    kinds = tuple(Kind(name, memory=memory) for name in ("big", "little"))
    names = tuple(f"op{i}" for i in range(ops))
    return CostModel("net", names, tuple(before), tuple(rows), kinds, sizes=(1.0,) * ops)


def space(question, memory=math.inf):
    costs = diamonds(memory=memory)
    if not question.cores:
        rows = tuple(row for row in costs.rows if row.row.threads == 1)
        costs = CostModel(costs.name, costs.names, costs.predecessors, rows, costs.kinds)
    return Space(costs, question)


@pytest.mark.parametrize(
    "question",
    [CORES, Question.of_split(3, "big"), Question({"big": 2, "little": 1}, replicas=True),
     Question.along(("big", "little", "big"), empty=True)],
)  # fmt: skip
@given(seed=st.integers(0, 2**31))
def test_a_candidate_is_known_again_by_its_key(question, seed):
    of_question = space(question)
    candidate = of_question.moves.useful(of_question.moves.random(np.random.default_rng(seed)))
    assert of_question.candidate(of_question.key(candidate)) == candidate


def whole(ops="7f", replicas=3):
    """The key of all seven ops on one stage."""
    return f'[["{ops}",["big","a",1,1,{replicas}]]]'


# Of more ops or devices than there are, or no key at all.
WRONG = [whole(ops="3ff"), whole(replicas=4), "", "3:1.2", "[]", "[[]]", "[" * 9000, '[["7f",[1]]]']
WRONG += ['[["-1",["big","a",1,1,1]],["7f",["big","a",1,1,1]]]']  # endless, if it were read


@pytest.mark.parametrize("key", WRONG)
def test_what_is_no_key_is_refused_with_one_line(key):
    with pytest.raises(SplitError, match="is not the key of a candidate") as refused:
        space(CORES).candidate(key)
    assert "\n" not in str(refused.value)
    assert space(CORES).candidate(whole())[0].replicas == 3


def test_what_exceeds_the_memory_of_a_replica_does_not_fit():
    of_question = space(CORES, memory=6.0)
    assert not of_question.fits((Stage(tuple(range(7)), (Option(Row("big", "a", 1)),)),))
    near = of_question.batch(of_question.moves.neighbours(of_question.plan.stages)).deployments
    assert near
    assert all(len(stage.ops) <= 6 for candidate in near for stage in candidate)


def test_no_cut_is_predicted_to_take_more_cores_than_there_are():
    of_question = space(Question.of_cores({"big": 1, "little": 1}))
    assert min(of_question.cut_periods().values()) == pytest.approx(of_question.plan.period)


def test_threads_that_hardly_save_time_are_left_out():
    times = (1, 4.0), (2, 2.0), (4, 1.95), (8, 1.0)
    # Runtime b cannot run the second op.
    others = ("a", 0.0), ("b", math.inf)
    rows = [RowCosts(Row("k", name, w), (t, other)) for name, other in others for w, t in times]
    costs = CostModel("net", ("op", "another"), (0, 0), tuple(rows), (Kind("k"),))
    assert [row.row.threads for row in useful_threads(costs).rows] == [1, 2, 8] * 2


def test_a_baseline_of_a_batch_is_measured_as_one_of_that_batch():
    rows = tuple(RowCosts(Row("big", "a", 1, batch), (2.0 / batch,)) for batch in (1, 4, 16))
    inputs, kinds = (Transfer("x", None, (0,), 2.0),), (Kind("big", memory=8.0),)
    costs = CostModel("net", ("op",), (0,), rows, kinds, inputs, activations=True)
    of_question = Space(costs, Question.of_cores({"big": 1}), cores={"big": (0,)})
    times = Spread(0.5, 0.5, 0.5), Spread(2.0, 2.0, 2.0)
    baseline = Baseline("a, batch 4", *times, 1, "a", ("cores:0",), batch=4)
    (measured,) = measured_baselines(of_question, [baseline])
    assert measured.stages[0].options[0].row.batch == 4
    assert correct(of_question.evaluator, [measured]).latency_ratio == 1
    assert [of_question.holds(replace(baseline, batch=batch)) for batch in (4, 16)] == [True, False]
    # Of a batch that the study does not plan for, and on a server, which has no cores here.
    small = replace(costs, rows=rows[1:], kinds=(Kind("big", memory=1.0),))
    for place in ("cores:0", "tracker:h:1/a"):
        of_server = Space(small, of_question.question, devices=(("big", place),))
        assert not of_server.holds(replace(baseline, batch=1, devices=(place,)))


def test_a_baseline_of_uneven_streams_has_the_time_of_a_step_in_one_replica():
    rows = (RowCosts(Row("big", "a", 1), (2.0,)),)
    costs = CostModel("net", ("op",), (0,), rows, (Kind("big"),), states=(("h", 1),), streams=3)
    of_question = Space(costs, Question.of_cores({"big": 2}), cores={"big": (0, 1)})
    # One of the two replicas computes two steps of three, one after the other.
    times = Spread(4 / 3, 4 / 3, 4 / 3), Spread(2.0, 2.0, 2.0)
    baseline = Baseline("a, 2 replicas", *times, 2, "a", ("cores:0", "cores:1"))
    (measured,) = measured_baselines(of_question, [baseline])
    assert measured.stage_ms == pytest.approx([2.0])


def test_a_candidate_with_an_op_that_its_row_cannot_run_does_not_fit():
    times = {"a": 1.0, "b": math.inf}
    rows = [RowCosts(Row("big", runtime, 1), (time,)) for runtime, time in times.items()]
    costs = CostModel("net", ("op",), (0,), tuple(rows), (Kind("big"),))
    of_question = Space(costs, Question.of_cores({"big": 1}))
    can, cannot = ((Stage((0,), (Option(each.row),)),) for each in rows)
    assert of_question.fits(can)
    assert not of_question.fits(cannot)
    assert of_question.batch([cannot, can]).deployments == (can,)


@pytest.mark.parametrize(
    ("goal", "batch"),
    [(Goal("goodput", workload=Workload(limit_ms=60.0)), 4),
     (Goal("goodput", workload=Workload(limit_ms=400.0)), 16), (Goal(latency_ms=30.0), 4),
     (Goal(), 16), (Goal("latency"), 1)],
)  # fmt: skip
def test_the_best_batch_within_a_limit_is_tried_first(goal, batch):
    # An item takes less time the larger the batch is; a batch of 4 takes 16 ms, one of 16 takes 58.
    per_item = {1: 5.0, 4: 2.0, 16: 1.8}
    rows = tuple(RowCosts(Row("core", "tvm", 1, n), (ms, ms)) for n, ms in per_item.items())
    costs = CostModel("net", ("a", "b"), (0, 1), rows, (Kind("core"),))
    of_question = Space(costs, Question.of_cores({"core": 2}), cores={"core": (0, 1)})
    view = acquisition(of_question, goal, History())
    assert view.best[0].options[0].row.batch == batch
