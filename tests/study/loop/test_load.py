import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat

import pytest

from autosplit.errors import StageError
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.hardware.measurement.results import LoadPoint, LoadTest, Spread
from autosplit.report.documents import record
from autosplit.report.documents.study import written
from autosplit.study.config.sections import Workload as WorkloadSection
from autosplit.study.loop.comparison import compare
from autosplit.study.loop.run import run_study
from studies.simulation.bench import chain_of
from tests.study.conftest import bench_of, verdict


@pytest.fixture
def loaded(new_study):
    """What a bench is asked for under load, where it serves so much, and a study over it."""

    def make(goodput=90.0, devices=("cores:0", "cores:1"), outcomes=iter(())):  # noqa: B008
        bench, asked = bench_of(*chain_of(8, 0), devices), []

        def under_load(deployment, workload, period, least):
            if isinstance(disturbances := next(outcomes, ()), BaseException):
                raise disturbances
            asked.append((deployment, workload))
            times = {"p50": Spread(1.0, 1.0, 1.0), "p99": Spread(3.0, 2.0, 4.0)}
            rates = filter(None, (workload.rate, goodput))
            points = [LoadPoint(rate, 1_000, times, disturbances) for rate in rates]
            limit = workload.limit_ms
            served = (limit, goodput, 1.02 * goodput) if limit else ()
            lone_ms = 1.0 + len(deployment.stages)
            return LoadTest(tuple(points), lone_ms, 1e3 / period.median, 0.0, *served)

        bench.under_load = under_load
        return asked, new_study(bench, trials=3)

    return make


def with_workload(opened, objective, **section):
    update = {"workload": WorkloadSection(**section), "objective": objective}
    return replace(opened, config=opened.config.model_copy(update=update))


def test_the_winner_is_measured_at_the_rate_of_the_study_once(loaded):
    asked, opened = loaded()
    for rate in (1.0, 1.0, 2.0):
        opened = with_workload(opened, "throughput", rate=rate)
        run_study(opened)
    assert [w.rate for _, w in asked] == [1, 2]
    (load,) = written(record.read(opened.study), "")["loads"].values()
    assert load["points"][0]["rate"] == 2
    text = verdict(opened)["text"]
    assert text.endswith("At 2 items/s: latency p50 1 ms, p99 3 ms (2 to 4).")


@pytest.mark.parametrize(
    ("objective", "rate", "figure", "ends"),
    [
        ("goodput", None, "90 items/s within the limit", "items/s with all items waiting."),
        ("cores", 5.0, "1 core within the limit", "p99 3 ms (2 to 4)."),
    ],
)
def test_a_study_finds_what_serves_within_the_limit(loaded, objective, rate, figure, ends):
    asked, opened = loaded()
    opened = with_workload(opened, objective, p99_ms=1e4, **({"rate": rate} if rate else {}))
    run_study(opened)
    lines = verdict(opened)["text"].splitlines()
    assert figure in lines[1]
    assert lines[-1].endswith(ends)
    # All finalists compete, and what a limit costs is measured only where it is asked for.
    assert len(asked) > 1
    assert {load.limit_ms for _, load in asked} == {None if rate else 1e4}
    values = [t.value for t in opened.study.trials if t.state.name == "COMPLETE"]
    assert all(value and value < 1e4 for value in values)


def test_what_computes_less_than_the_best_serves_is_not_run_under_load(loaded):
    asked, opened = loaded(goodput=1e6)
    for _ in range(2):
        opened = with_workload(opened, "goodput", p99_ms=1e4)
        run_study(opened)
    assert len(asked) == 1


def test_where_nothing_keeps_a_limit_the_least_latency_wins(loaded):
    opened = with_workload(loaded(goodput=0.0)[1], "goodput", p99_ms=1e-3)
    run_study(opened)
    alone = "; an item that comes alone takes 2 ms at least."
    line = f"No measured deployment keeps p99 0.001 ms{alone}"
    lines = verdict(opened)["text"].splitlines()
    assert "2 ms latency" in lines[1]
    assert lines[3] == line
    assert {t.value for t in opened.study.trials} == {math.inf}


def test_a_run_continues_after_an_interrupt_and_repeats_disturbed_tests(loaded, monkeypatch):
    monkeypatch.setattr(Calm, "measured", lambda _, name, measure, reasons: measure())
    asked, opened = loaded(outcomes=iter([(), KeyboardInterrupt(), ("noise",)]))
    opened = with_workload(opened, "goodput", p99_ms=1e4)
    with pytest.raises(KeyboardInterrupt):
        run_study(opened)
    # Another worker goes on while this one waits for the devices.
    rival = replace(opened)
    vars(opened)["device_lock"] = lambda: (compare(rival), nullcontext())[1]
    run_study(opened)
    count = len({deployment for deployment, _ in asked})
    assert len(asked) == count > 1
    run_study(opened)
    assert len(asked) == 2 * count


def test_all_cores_of_the_devices_count(loaded):
    opened = loaded(devices=("cores:0-1", "cores:2-3"))[1]
    opened = with_workload(opened, "cores", p99_ms=1e4, rate=5.0)
    run_study(opened)
    line = verdict(opened)["text"].splitlines()[1]
    assert line.startswith("2 cores within the limit; ")
    assert "the best split 4 cores (2.00 times as many)" in line


@pytest.mark.parametrize(("failing", "said"), [(1, "90 items/s"), (9, "keeps p99 10000 ms.")])
def test_what_fails_under_load_is_left_out(loaded, failing, said):
    outcomes = repeat(StageError("it hangs"), failing)
    opened = with_workload(loaded(outcomes=outcomes)[1], "goodput", p99_ms=1e4)
    run_study(opened)
    assert said in verdict(opened)["text"]
