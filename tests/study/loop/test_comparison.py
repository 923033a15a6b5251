"""Which splits compete in the final comparison, and whether it has to be held."""

import contextlib
from dataclasses import replace

from autosplit.deployment import Option, Row, Stage
from autosplit.hardware.measurement import baselines
from autosplit.planner import Question, evaluate
from autosplit.planner.batch import BatchEvaluator
from autosplit.study.acquisition import Goal
from autosplit.study.loop.comparison import FINALISTS, finalists
from autosplit.study.loop.run import run_study
from autosplit.study.record import COMPARISON, record_of, study_record
from autosplit.study.results import best_of_study
from autosplit.study.surrogate.correction import Measured, correct
from studies.simulation.bench import SimulatedBench
from tests.planner.graphs import chain


def two(end, ops=8):
    option = (Option(Row()),)
    return Stage(tuple(range(end)), option), Stage(tuple(range(end, ops)), option)


def chosen_of(times, slow=-1):
    """The finalists among all splits of a chain into two, and all splits, best first, by number.

    The best split has the highest number. The one at ``slow`` was measured in next to no time.
    """
    costs = chain(*times)
    evaluator = BatchEvaluator(costs, Question.of_split(2))
    plans = sorted((evaluate(costs, two(end)) for end in range(1, 8)), key=lambda p: p.period)
    numbers = list(range(len(plans)))[::-1]
    measured = [
        Measured(n, plan.stages, plan.loads, 0.5 if n == slow else plan.period)
        for n, plan in zip(numbers, plans, strict=True)
    ]
    corrected = correct(evaluator, measured)
    return [m.number for m in finalists(Goal(), corrected, measured)], numbers


def test_of_many_that_may_be_the_best_the_likeliest_few_compete():
    finalist_numbers, numbers = chosen_of((10.0, *(0.0001,) * 7))
    assert finalist_numbers == sorted(finalist_numbers)
    assert len(finalist_numbers) == FINALISTS < len(numbers)


def test_a_split_that_is_clearly_worse_does_not_compete():
    finalist_numbers, numbers = chosen_of((1.0,) * 8)
    assert numbers[0] in finalist_numbers
    assert numbers[-1] not in finalist_numbers


def test_the_one_measured_fastest_always_competes():
    for times in ((1.0,) * 8, (10.0, *(0.0001,) * 7)):
        finalist_numbers, _ = chosen_of(times, slow=0)
        assert 0 in finalist_numbers
        assert finalist_numbers == sorted(finalist_numbers)
        assert len(finalist_numbers) <= FINALISTS


def compared_calls(bench, factor=1.0):
    """How many candidates each comparison measures; all take ``factor`` times as long in them."""
    calls = []
    compare = bench.compare_interleaved

    def slowed(candidates, names):
        calls.append(len(candidates))
        measured, baselines = compare(candidates, names)
        slower = [replace(m, period_ms=m.period_ms.scaled(factor)) for m in measured]
        return slower, baselines

    bench.compare_interleaved = slowed
    return calls


def test_of_two_workers_that_end_together_one_compares(chain_bench, new_study):
    first, second = (new_study(chain_bench(ops=40), trials=4) for _ in range(2))
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


def test_no_more_candidates_are_measured_again_than_was_announced(chain_bench, new_study):
    notes = []
    bench = chain_bench(ops=40, noise=0.2)
    opened = new_study(bench, trials=12, sampler="random", notify=notes.append)
    calls = compared_calls(opened.bench, factor=1.5)
    run_study(opened)
    announced = [note for note in notes if note.startswith("final comparison: ")]
    assert [note.split()[2] for note in announced] == list(map(str, calls))
    best = best_of_study(opened.study)
    assert best.number in study_record(opened.study.user_attrs).final_comparison.figures


def test_a_final_comparison_leaves_the_figures_of_the_search(chain_bench, new_study):
    opened = new_study(chain_bench(ops=40, noise=0.2), trials=3)
    compared_calls(opened.bench, factor=1.5)
    run_study(opened)
    for trial in opened.study.trials:
        period = record_of(trial).period_ms
        assert period.median == trial.value


def test_a_repeated_comparison_measures_the_same_baselines(chain_bench, ran, monkeypatch):
    monkeypatch.setattr(baselines, "COMPARED", 1)
    asked = []

    def slowed(bench, candidates, names):
        asked.append(list(names))
        measured, known = compare(bench, candidates, names)
        slow = {n: replace(b, period_ms=b.period_ms.scaled(9)) for n, b in known.items()}
        return measured, slow

    compare = SimulatedBench.compare_interleaved
    monkeypatch.setattr(SimulatedBench, "compare_interleaved", slowed)
    for trials in (3, 4):
        ran(chain_bench(ops=40), trials=trials)
    assert len(asked) == 2
    assert asked[0] == asked[1]
