from dataclasses import replace
from datetime import UTC, datetime

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from autosplit.graph import build
from autosplit.lowering.states import match_states
from autosplit.report.documents.record import Study, read
from autosplit.report.documents.study import state_table, trial_table, way_table, written
from autosplit.report.html.page import page
from autosplit.study.record import update
from autosplit.study.results import best_of_study
from tests.report import graphs
from tests.report.studies import add_trial, changed, make_study, store, trial

optuna.logging.set_verbosity(optuna.logging.ERROR)


def spread(value):
    return {"median": value, "low": value, "high": value}


def study_of(periods, **attributes):
    """A study whose trials have these periods; None is a failed trial."""
    study = optuna.create_study()
    for period in periods:
        trial = study.ask()
        if period is None:
            update(trial, error="no room")
            study.tell(trial, state=TrialState.FAIL)
            continue
        update(trial, period_ms=spread(period))
        study.tell(trial, period)
    store(study, **attributes)
    return study


def test_an_interrupted_trial_is_none_that_failed():
    study = study_of([None])
    trial = study.ask()
    update(trial, error="interrupted", lost=True)
    study.tell(trial, state=TrialState.FAIL)
    record = read(study)
    assert [t.state for t in record.trials] == ["fail", "interrupted"]
    assert [t["state"] for t in written(read(study), "s")["trials"]] == ["FAIL", "INTERRUPTED"]
    text = page(record)
    assert "2, 1 failed" in text
    assert text.count('class="fail"') == 1


def best_of(study):
    best = study.best()
    period = best.figures.period_ms if best else None
    return (best.number, period.median) if best and period else None


@pytest.mark.parametrize(
    ("verdict", "marked"),
    [({}, [1]), ({"text": "Split.", "trial": 0}, [0]),
     ({"text": "Leave it.", "baseline": "one core"}, ["one core"]),
     ({"text": "Leave it.", "trial": 7}, [])],
)  # fmt: skip
def test_what_the_verdict_advises_is_marked(verdict, marked):
    baselines = [{"name": "one core", "period_ms": spread(9.0)}]
    study = read(study_of([5.0, 4.0], verdict=verdict, baselines=baselines))
    rows = [row for table in (trial_table(study), way_table(study)) for row in table.rows]
    rows = [row for row in rows if "*" in row]
    # The best trial stands beside the baselines too.
    assert [row[0] for row in rows if row[0] != "best configuration (trial 1)"] == marked


@pytest.mark.parametrize(
    ("stages", "replicas", "cores", "kind"),
    [(2, (1, 1), None, "split"), (2, (1, 1), 2, "split"), (1, (2,), 2, "configuration on 2 cores"),
     (2, (2, 1), "0-3", "configuration on cores 0-3"), (1, (1,), None, "configuration")],
)  # fmt: skip
def test_what_is_no_split_is_not_called_one(stages, replicas, cores, kind):
    one = trial(0, 4.0, stages=tuple((i,) for i in range(stages)), replicas=replicas)
    study = changed(Study("s", trials=(one,)), config={"cores": cores})
    assert study.kind_of(one) == kind


PERIODS = st.none() | st.sampled_from([1.0, 2.0, 3.0, 4.5])
ENTRIES = st.lists(st.integers(0, 6), max_size=4)


@given(st.lists(PERIODS, max_size=6), st.integers(0, 6), ENTRIES)
def test_report_and_show_name_the_same_best(periods, count, entries):
    comparison = {
        "measured": count,
        "entries": [{"number": n, "period_ms": spread(4.0)} for n in entries],
    }
    study = study_of(periods, final_comparison=comparison)
    best = best_of_study(study)
    period = best and best.record.measurement().period_ms.median
    assert best_of(read(study)) == ((best.number, period) if best else None)


@pytest.mark.parametrize(
    "comparison", [7, [], "x", {"measured": True}, {"measured": 2, "entries": 5, "baselines": {}}]
)
@pytest.mark.parametrize(
    "entry", [None, {"number": "1"}, {"number": 1, "period_ms": spread("fast")}]
)
def test_a_comparison_that_makes_no_sense_is_left_out(comparison, entry):
    if isinstance(comparison, dict):
        comparison = {**comparison, "entries": [entry]}
    assert best_of(read(study_of([5.0, 4.0], final_comparison=comparison))) == (1, 4.0)


def test_the_days_are_the_first_and_the_last():
    texts = []
    for days in ((), (None,), (5, 5, None), (7, 5), (5, 6, 7)):
        study = optuna.create_study()
        for day in days:
            trial = optuna.trial.create_trial(state=TrialState.WAITING)
            trial.datetime_start = datetime(2030, 1, day, tzinfo=UTC) if day else None
            study.add_trial(trial)
        texts.append(read(study).days)
    assert texts == ["", "", "2030-01-05", *["2030-01-05 to 2030-01-07"] * 2]


def test_each_stage_has_the_profile_of_its_device():
    times = [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]
    stored = study_of([], devices=["cores:0,1", "cores:0"], profile=[{"op_ms": t} for t in times])
    study = read(stored)
    devices = (("cores:0",), ("cores:0,1", "cores:2,3"))
    assert study.profile_of(trial(0, stages=((0, 1), (2,)), devices=devices)) == (4.0, 5.0, 3.0)
    # As many cores as a profiled device has.
    assert study.profile_of(trial(0, stages=((0, 1, 2),), devices=(("cores:7",),))) == times[1]
    assert study.profile_of(trial(0, stages=((0,), (1,)))) == ()


def test_an_op_has_the_time_of_the_runtime_and_the_device_of_its_stage():
    rows = [("tvm", (1.0, 2.0)), ("tvm", (3.0, 4.0)), ("openvino", (5.0, 6.0))]
    profile = [{"runtime": name, "op_ms": times} for name, times in rows]
    stored = study_of([], devices=["cores:0", "cores:1"], profile=profile)
    study = read(stored)
    ways = {"devices": (("cores:0",), ("cores:1",)), "runtimes": ("openvino", "tvm")}
    one = trial(0, stages=((0,), (1,)), **ways)
    assert study.profile_of(one) == (5.0, 4.0)
    assert study.stage_names(one) == ["cores:0, openvino", "cores:1, tvm"]
    gone = trial(0, stages=((0,), (1,)), **ways | {"runtimes": ("gone", "tvm")})
    assert study.profile_of(gone) == ()


def test_legal_cuts_are_read_in_their_order_and_others_left_out():
    study = make_study("sqlite://", graphs.chain(3), trials=1)
    for stored, cuts in (
        ([["3", 2.0], ["1", 4.5]], ((1, 4.5), (3, 2.0))),
        ([["2", 1.0], ["fff", 1.0]], ()),
    ):
        store(study, cut_periods=stored)
        assert read(study).cut_periods == cuts


def test_report_and_show_name_the_stage_of_each_state():
    outputs = [(f"conv{i}:0", f"conv{i}:0") for i in range(6)]
    # Of one op each: it reads the tensor of the op before it and makes one of the same shape.
    whole = graphs.chain()
    shapes = dict.fromkeys(whole.tensors, ((4,), "float32", 16))
    net = build("net", whole.ops, shapes, [*whole.inputs], ["conv5:0"])
    net = replace(net, states=match_states(net, outputs, {"x": "conv1:0"}))
    stored = make_study("sqlite://", net, trials=0)
    add_trial(stored, net, 3)
    study = read(stored)
    best = study.best()
    assert study.graph.states == net.states
    states = state_table(study, best)
    assert states.rows == (("x", "conv1:0", [4], 0),)
    document = written(study, "sqlite://")
    expected = {"input": "x", "output": "conv1:0", "shape": [4], "stage": 0}
    assert document["best"]["states"] == [expected]
