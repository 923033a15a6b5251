from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import optuna
import pytest
from optuna.trial import TrialState

from autosplit.lowering.states import match_states
from autosplit.report.documents.record import Study, read
from autosplit.report.documents.study import state_table, trial_table, way_table, written
from autosplit.report.html.page import page
from autosplit.study.record import update
from tests.hardware.fakes import graph
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


@pytest.mark.parametrize(
    "comparison", [7, [], "x", {"measured": True}, {"measured": 2, "entries": 5, "baselines": {}}]
)
@pytest.mark.parametrize(
    "entry", [None, {"number": "1"}, {"number": 1, "period_ms": spread("fast")}]
)
def test_a_comparison_that_makes_no_sense_is_left_out(comparison, entry):
    if isinstance(comparison, dict):
        comparison = {**comparison, "entries": [entry]}
    best = read(study_of([5.0, 4.0], final_comparison=comparison)).best()
    assert (best.number, best.figures.period_ms.median) == (1, 4.0)


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


def test_an_op_has_the_time_of_the_runtime_and_the_device_of_its_stage():
    rows = [("tvm", (1.0, 2.0)), ("tvm", (3.0, 4.0)), ("openvino", (5.0, 6.0))]
    profile = [{"runtime": name, "op_ms": times} for name, times in rows]
    study = read(study_of([], devices=["cores:0,1", "cores:0"], profile=profile))

    def split(*runtimes, devices=(("cores:0,1",), ("cores:0",))):
        return trial(0, stages=((0,), (1,)), devices=devices, runtimes=runtimes)

    assert study.profile_of(split("openvino", "tvm")) == (5.0, 4.0)
    assert study.stage_names(split("openvino", "tvm")) == ["cores:0,1, openvino", "cores:0, tvm"]
    # As many cores as a profiled device has.
    alike = split("tvm", "tvm", devices=(("cores:7",), ("cores:4,5", "cores:2,3")))
    assert study.profile_of(alike) == (3.0, 2.0)
    for unknown in (split("gone", "tvm"), split("tvm", "tvm", devices=())):
        assert study.profile_of(unknown) == ()


def test_legal_cuts_are_read_in_their_order_and_others_left_out():
    study = make_study("sqlite://", graphs.chain(3), trials=1)
    for stored, cuts in (
        ([["3", 2.0], ["1", 4.5]], ((1, 4.5), (3, 2.0))),
        ([["2", 1.0], ["fff", 1.0]], ()),
    ):
        store(study, cut_periods=stored)
        assert read(study).cut_periods == cuts


def test_report_and_show_name_the_stage_of_each_state():
    names = [f"t{i}" for i in range(6)]
    net = graph([(name, [read]) for read, name in pairwise(["x", *names])], ["x"], ["t5"])
    pairs = [(name, name) for name in names]
    net = replace(net, states=match_states(net, pairs, {"x": "t1"}))
    stored = make_study("sqlite://", net, trials=0)
    add_trial(stored, net, 3)
    study = read(stored)
    best = study.best()
    assert study.graph.states == net.states
    states = state_table(study, best)
    assert states.rows == (("x", "t1", [2], 0),)
    document = written(study, "sqlite://")
    expected = {"input": "x", "output": "t1", "shape": [2], "stage": 0}
    assert document["best"]["states"] == [expected]
