"""Which splits compete in the final comparison, and whether it has to be held."""

import contextlib
import math
from dataclasses import replace
from unittest.mock import Mock, patch

import numpy as np
import pytest

from autosplit.deployment import Option, Row, Stage
from autosplit.errors import StageError
from autosplit.hardware.measurement import baselines
from autosplit.hardware.measurement.results import spread
from autosplit.planner import Question, evaluate
from autosplit.planner.batch import BatchEvaluator
from autosplit.report.documents.record import read
from autosplit.study.acquisition import Goal
from autosplit.study.loop.comparison import FINALISTS, finalists
from autosplit.study.loop.comparison import verdict as renewed
from autosplit.study.loop.run import run_study
from autosplit.study.record import COMPARISON
from autosplit.study.surrogate.correction import Measured, correct
from tests.planner.graphs import chain
from tests.study.conftest import chain_bench, verdict


def chosen_of(times, slow=-1, limit=math.inf, cores=()):
    """The finalists among all splits of a chain into two, and all splits, best first, by number.

    The best split has the highest number, that at 1 the least latency. That at ``slow`` is quick.
    With ``cores`` the splits are predicted to take so many, and few are wanted.
    """
    costs = chain(*times)
    evaluator = BatchEvaluator(costs, Question.of_split(2))
    option = (Option(Row()),)
    splits = [(Stage((*range(n),), option), Stage((*range(n, 8),), option)) for n in range(1, 8)]
    plans = sorted((evaluate(costs, split) for split in splits), key=lambda plan: plan.period)
    numbers = list(range(len(plans)))[::-1]
    measured = [
        Measured(n, plan.stages, plan.loads, 0.5 if n == slow else plan.period, 8.0 + (n != 1))
        for n, plan in zip(numbers, plans, strict=True)
    ]
    corrected = correct(evaluator, measured)
    goal = Mock(objective="cores", latency_ms=limit, values=lambda *_: np.array(cores))
    chosen = finalists(goal if cores else Goal(latency_ms=limit), corrected, measured)
    return [m.number for m in chosen], numbers


def test_a_split_that_is_clearly_worse_does_not_compete_and_the_one_measured_fastest_does():
    finalist_numbers, numbers = chosen_of((1.0,) * 8)
    assert [n in finalist_numbers for n in (numbers[0], numbers[-1])] == [True, False]
    for times in ((1.0,) * 8, (10.0, *(0.0001,) * 7)):
        finalist_numbers, numbers = chosen_of(times, slow=0)
        assert 0 in finalist_numbers
        assert finalist_numbers == sorted(finalist_numbers)
        assert len(finalist_numbers) <= FINALISTS < len(numbers)
    # The usual latency would exceed the limit, but the measured one does not.
    assert 1 in chosen_of((1.0,) * 8, limit=8.5)[0]


def test_for_the_fewest_cores_the_fastest_with_each_number_of_cores_competes():
    assert chosen_of((1.0,) * 8, cores=(4.0, 3.0, *(2.0,) * 5))[0] == [4, 5, 6]


def compared_calls(bench, factor=1.0):
    """The candidates and baselines of each comparison, where these take so many times as long."""
    calls, compare = [], bench.compare_interleaved

    def slowed(candidates, names):
        calls.append((candidates, names))
        measured, known = compare(candidates, names)
        times = {n: spread([factor * b.period_ms.median]) for n, b in known.items()}
        slower = {n: replace(b, period_ms=times[n]) for n, b in known.items()}
        return measured, slower

    bench.compare_interleaved = slowed
    return calls


def test_of_two_workers_that_end_together_one_compares(new_study):
    first, second = (new_study(chain_bench(ops=12), trials=n, converge=False) for n in (4, 5))
    calls = compared_calls(first.bench), compared_calls(second.bench)
    compared = []

    @contextlib.contextmanager
    def taken():
        """The lock of the devices, which the second worker has until it has ended."""
        if not compared and [t.state.name for t in first.study.trials] == ["COMPLETE"] * 4:
            compared.append({})
            run_study(second)
            compared[0] = second.study.user_attrs[COMPARISON]
        yield

    first.__dict__["device_lock"] = taken
    run_study(first)
    assert (len(calls[0]), len(calls[1])) == (0, 1)
    assert first.study.user_attrs[COMPARISON] == compared[0]


def test_a_repeated_comparison_measures_the_same_baselines(new_study, monkeypatch):
    monkeypatch.setattr(baselines, "COMPARED", 1)
    calls = []
    for trials in (3, 4):
        opened = new_study(chain_bench(ops=12), trials=trials)
        calls.append(compared_calls(opened.bench, factor=9.0))
        run_study(opened)
    ((_, first),), ((_, second),) = calls
    assert list(first) == list(second)


def test_what_was_slow_at_the_end_alone_is_said_to_be(ran):
    limit = {"limits": {"latency_ms": 99.0}}
    opened = ran(chain_bench(ops=12), trials=3, converge=False, asked=limit)
    stored = opened.study.user_attrs[COMPARISON]
    for compared in (*stored["entries"], *stored["baselines"]):
        compared["latency_ms"] = {"median": 100.0, "low": 100.0, "high": 100.0}
    opened.study.set_user_attr(COMPARISON, stored)
    assert "\nNone of those compared at the end computes a lone" in renewed(opened)["text"]


def test_a_verdict_stays_until_there_is_another(new_study):
    opened = new_study(chain_bench(ops=12), trials=3, converge=False)
    run_study(opened)
    before = verdict(opened)
    interrupted = patch("autosplit.study.loop.comparison.compare", side_effect=KeyboardInterrupt)
    with interrupted, pytest.raises(KeyboardInterrupt):
        run_study(opened)
    assert verdict(opened) == before


def test_what_fails_in_the_final_comparison_is_left_out_with_its_reason(new_study):
    opened, calls = new_study(chain_bench(ops=12, noise=0.2), trials=5, converge=False), []
    compare = opened.bench.compare_interleaved

    def crashing(candidates, names):
        calls.append(candidates)
        if calls[0][0] in candidates or "replicas" in names or len([*candidates, *names]) > 2:
            raise StageError("crash SIGSEGV in stage 0")
        return compare(candidates, names)

    opened.bench.compare_interleaved = crashing
    run_study(opened)
    final = opened.record.final_comparison
    failed, others = next(iter(final.errors)), list(final.figures)
    assert len(others) == 2
    assert {failed, "replicas", "one device"} <= final.errors.keys()
    assert verdict(opened)["choice"] == "split"
    assert read(opened.study).trials[int(failed)].error == "crash SIGSEGV in stage 0"
    assert read(opened.study).best().number in others
    count = len(calls)
    run_study(opened)
    assert len(calls) == count
