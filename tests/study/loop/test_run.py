import contextlib
from dataclasses import replace
from itertools import chain, repeat
from unittest.mock import DEFAULT, Mock

import pytest

from autosplit.deployment import Stage
from autosplit.errors import ConfigError, Infeasible, MachineError, StageError
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.report.documents import record
from autosplit.report.documents.record import read
from autosplit.report.documents.study import written
from autosplit.study.loop.open import device_lock
from autosplit.study.loop.run import run_study
from autosplit.study.record import COMPARISON, RECORD, record_of
from autosplit.study.workers import this_worker
from autosplit.units import milliseconds
from tests.study.conftest import branchy_bench, chain_bench, keys, states, stopped, verdict


def breaking(bench, error, number):
    """The bench, raising ``error`` in the measurement of this number."""
    outcomes = chain(repeat(DEFAULT, number), [error], repeat(DEFAULT))
    bench.measure = Mock(wraps=bench.measure, side_effect=outcomes)
    return bench


def best(opened):
    result = read(opened.study).best()
    return result.record.key, result.figures.period_ms


def test_a_study_ends_at_its_limit_with_a_verdict_and_holds_what_the_reports_read(ran):
    opened = ran(chain_bench(ops=40, stages=4), trials=3)
    assert states(opened) == ["COMPLETE"] * 3
    assert stopped(opened) == "stopped: 3 trials (limit)"
    assert verdict(opened)["choice"] in ("split", "replicate", "leave")
    stored = {"graph", "profile", "bound_ms", "baselines", "identity", "config", "devices"}
    assert stored <= opened.study.user_attrs[RECORD].keys()
    trial = opened.study.trials[0]
    assert list(trial.user_attrs) == [RECORD]
    stored = record_of(trial)
    assert stored.cuts == tuple((f"op{ops[-1]}",) for ops in stored.stages[:-1])
    assert stored.live == tuple(((f"t{ops[-1] + 1}", 4),) for ops in stored.stages[:-1])
    assert stored.period_ms.median == max(stored.stage_ms) == trial.value
    assert stored.worker == this_worker()
    assert stored.predicted_ms == pytest.approx(opened.study.user_attrs[RECORD]["bound_ms"])


def test_a_run_that_ends_before_any_trial_says_what_ended_it(ran):
    with pytest.raises(Infeasible, match=r"^no trial has ended: 1e-09 s \(limit\); run again$"):
        ran(chain_bench(), timeout=1e-9)


def test_stages_that_share_a_core_add_up_in_the_bound(new_study):
    bench = chain_bench(ops=12, stages=3)
    cores = ("cores:0", "cores:1", "cores:0")
    bench.description = replace(bench.description, devices=cores)
    opened = new_study(bench, trials=1)
    least = sum(bench.costs.rows[0].times) / 2
    assert opened.study.user_attrs[RECORD]["bound_ms"] >= least * (1 - 1e-9)
    run_study(opened)
    (trial,) = opened.study.trials
    first, middle, last = record_of(trial).stage_ms
    assert trial.value == pytest.approx(max(first + last, middle), rel=0.1)


@pytest.mark.parametrize(("sampler", "killed"), [("planner", 2), ("tpe", 1), ("random", 0)])
def test_interrupted_and_resumed_is_uninterrupted(new_study, ran, sampler, killed):
    search = {"trials": 4, "sampler": sampler, "seed": 3}
    whole = ran(branchy_bench(noise=0.1), name="whole", **search)
    bench = breaking(branchy_bench(noise=0.1), KeyboardInterrupt(), killed)
    parted = new_study(bench, name="parted", **search)
    with pytest.raises(KeyboardInterrupt):
        run_study(parted)
    assert states(parted) == ["COMPLETE"] * killed + ["FAIL"]
    assert record_of(parted.study.trials[-1]).error == "interrupted"
    parted = ran(branchy_bench(noise=0.1), name="parted", **search)
    assert keys(parted) == keys(whole)
    assert best(parted) == best(whole)


def test_a_failed_candidate_is_a_failed_trial_with_its_reason(ran):
    error = StageError("stage 1 said no")
    error.log = "its last words"
    notes = []
    bench = breaking(chain_bench(), error, 1)
    opened = ran(bench, trials=3, notify=notes.append)
    assert states(opened) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert record_of(opened.study.trials[1]).error == "stage 1 said no"
    assert any(note.startswith("trial 1: failed: stage 1 said no; 2 of 3") for note in notes)
    assert record_of(opened.study.trials[1]).log == "its last words"


@pytest.mark.parametrize(
    ("timeout", "left"), [(None, [9, 6, 3, 0]), (99.0, [9, 6, 3, 0]), (10.0, [7, 4, 1, 0])]
)
def test_the_time_left_is_that_of_the_trials_left(new_study, timeout, left):
    """Each trial takes 3 s by a clock that only measuring turns."""
    bench, now, notes = chain_bench(ops=12), [0.0], list[str]()
    search = {"trials": 4, "sampler": "random", "timeout": timeout}
    limit = {"limits": {"latency_ms": 15.06}}  # which the second trial and the last exceed
    opened, measure = new_study(bench, notify=notes.append, asked=limit, **search), bench.measure

    def slow(deployment):
        now[0] += 3.0
        return measure(deployment)

    bench.measure = slow
    run_study(opened, clock=lambda: now[0])
    lines = [note for note in notes if note.startswith("trial ")]
    assert [float(line.split("about ")[1].split()[0]) for line in lines] == left
    values = [trial.value for trial in opened.study.trials]
    for number, line in enumerate(lines):
        assert f", best {milliseconds(min(values[: number + 1]))}, predicted bound " in line


def test_a_broken_machine_stops_the_run_and_the_split_stays_free(new_study, ran):
    opened = new_study(breaking(chain_bench(), MachineError("disk full"), 1), trials=3)
    with pytest.raises(MachineError, match="disk full"):
        run_study(opened)
    assert states(opened) == ["COMPLETE", "FAIL"]
    opened = ran(chain_bench(), trials=3)
    assert states(opened).count("COMPLETE") == 3


def narrow(bench):
    """The bench, each of its devices with room for two ops."""
    kinds = tuple(replace(kind, memory=13.0) for kind in bench.costs.kinds)
    sizes = (6.0,) * len(bench.costs.names)
    bench.costs = replace(bench.costs, sizes=sizes, kinds=kinds, activations=False)
    return bench


def test_a_split_that_does_not_fit_is_not_measured_and_a_study_ends_when_all_others_are(new_study):
    opened = new_study(narrow(chain_bench(ops=4, stages=2)), trials=9, sampler="random")
    fitting = opened.space.plan.stages
    ends = zip(((0,), (1, 2, 3)), fitting, strict=True)
    key = opened.space.key(tuple(Stage(ops, stage.options) for ops, stage in ends))
    opened.study.enqueue_trial({}, user_attrs={RECORD: {"key": key}})
    run_study(opened)
    assert states(opened) == ["FAIL", "COMPLETE"]
    assert "does not fit the devices" in record_of(opened.study.trials[0]).error
    assert stopped(opened) == "exhausted: no unmeasured candidate that fits the devices is left"


# Without transfers many splits are equal.
@pytest.mark.parametrize("size", [{"ops": 20, "stages": 3, "noise": 0.2}, {"ops": 20, "stages": 4}])
def test_a_study_goes_on_after_its_comparison_as_without(new_study, ran, size):
    search = {"converge": False}
    ran(chain_bench(**size), trials=3, **search)
    resumed = new_study(chain_bench(**size), trials=5, **search)
    assert COMPARISON in resumed.study.user_attrs
    run_study(resumed)
    assert keys(resumed) == keys(ran(chain_bench(**size), trials=5, name="at-once", **search))


def test_baselines_measured_beside_the_best_decide_the_verdict(ran):
    bench = chain_bench(ops=40, stages=3)
    slow = Baseline("slow", Spread(1e3, 1e3, 1e3), Spread(1e3, 1e3, 1e3))
    compare = bench.compare_interleaved
    bench.compare_interleaved = lambda candidates, names: (
        compare(candidates, names)[0],
        {name: replace(slow, name=name) for name in names},
    )
    opened = ran(bench, trials=2)
    assert verdict(opened)["choice"] == "split"
    baselines = written(record.read(opened.study), opened.url)["baselines"]
    assert baselines[0]["period_ms"]["median"] == 1e3


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [({}, {"runtime": "openvino"}, "runtime was .*, is 'openvino'; --force"),
     ({}, {"tolerance": 0.1}, "tolerance was not set, is '0.1'"),
     ({"memory": 1e6}, {"memory": 1e6 + 1}, "memory was '1.*, is '1"),
     (*({"objective": "latency", "limits": {"latency_ms": limit}} for limit in (1.0, 2.0)),
      "latency limit was '1.0 ms', is '2.0 ms'")],
)  # fmt: skip
def test_another_question_under_the_same_name_is_refused(new_study, before, after, difference):
    new_study(chain_bench(ops=20), asked=before)
    for ops, asked, text in ((20, after, difference), (21, before, "model was '.*', is '")):
        with pytest.raises(ConfigError, match=f"study 's' in .*measures something else: {text}"):
            new_study(chain_bench(ops=ops), asked=asked)


def test_force_starts_anew_and_loses_nothing(new_study, ran):
    old = ran(chain_bench(ops=20), trials=2)
    new = ran(chain_bench(ops=21), force=True, trials=1)
    assert new.study.study_name == "s-2"
    assert len(old.study.trials) == 2
    assert new_study(chain_bench(ops=20), force=True).study.study_name == "s-3"


def test_profile_and_baselines_are_measured_once(ran):
    ran(chain_bench(), trials=1)
    bench = chain_bench()
    bench.profile = bench.baselines = lambda: 1 / 0
    bench.compare_interleaved = lambda candidates, names: (list(map(bench.measure, candidates)), {})
    opened = ran(bench, trials=2)
    assert len(opened.study.trials) == 2


def test_only_a_bench_that_measures_alone_locks_the_host(new_study):
    bench = chain_bench()
    opened = new_study(bench, trials=1)
    assert opened.device_lock is contextlib.nullcontext
    bench.description = replace(bench.description, measures_alone=True)
    assert device_lock(opened.config, bench, print) is not contextlib.nullcontext
