"""Disturbed measurements are repeated, marked, and never called converged."""

from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import pytest

from autosplit.errors import MismatchError, StageError
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.disturbance import Calm
from autosplit.report.documents.record import read
from autosplit.study.loop.run import run_study
from autosplit.study.record import record_of
from tests.study.conftest import chain_bench, verdict

NOISE = ("other processes took 40% of the processor",)


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The limits of the waits, which take no time."""
    limits = []
    monkeypatch.setattr(disturbance, "wait_until_calm", lambda limit: limits.append(limit) or limit)
    return limits


def test_a_disturbed_measurement_is_repeated_once_and_patience_ends(pauses):
    results, notes = iter(["calm", "loud", "calm", *["loud"] * 20]), list[str]()
    measurer = Calm(5.0, notes.append)

    def measured():
        return measurer.measured("trial 0", lambda: next(results), lambda r: (r,) * (r == "loud"))

    assert [measured() for _ in range(6)] == ["calm", "calm", *["loud"] * 4]
    assert notes[0] == "trial 0 was disturbed: loud; measuring again when calm"
    assert pauses == [20.0, 20.0, 10.0]


def test_a_repetition_that_fails_loses_only_a_result_whose_outputs_differ():
    def measured(error):
        outcomes = Mock(side_effect=["loud", error])
        return Calm(5.0, notes.append).measured("trial 0", outcomes, lambda _: NOISE)

    notes = list[str]()
    assert measured(StageError("it hangs")) == "loud"
    assert notes[-1].endswith("measured again (it hangs), its figures are marked")
    with pytest.raises(MismatchError):
        measured(MismatchError("outputs differ"))


def disturbed(bench, calls):
    """The bench on a machine that is disturbed while ``calls["calm"]`` is 0."""
    measure, compare = bench.measure, bench.compare_interleaved

    def mark(measurement):
        return replace(measurement, disturbances=() if calls["calm"] else NOISE)

    def measure_it(deployment):
        return mark(measure(deployment))

    def compare_them(candidates, baselines):
        calls["compared"] += 1
        measurements, others = compare(candidates, baselines)
        return list(map(mark, measurements)), others

    bench.measure, bench.compare_interleaved = measure_it, compare_them
    return bench


def test_a_study_says_that_its_profile_was_disturbed(new_study, monkeypatch):
    bench = chain_bench(ops=12, stages=2)
    profiles = [replace(p, disturbances=NOISE, measured_at="noon") for p in bench.profile()]
    monkeypatch.setattr(bench, "profile", lambda: profiles)
    notes = []
    new_study(bench, notify=notes.append)
    assert any("was disturbed" in note and "noon" in note for note in notes)


def test_a_study_whose_best_is_disturbed_has_no_reliable_answer_until_it_is_measured_calmly(ran):
    calls, notes = Counter[str](), list[str]()
    bench = disturbed(chain_bench(ops=12, stages=2), calls)
    opened = ran(bench, trials=4, notify=notes.append)
    assert "No reliable answer" in verdict(opened)["text"]
    assert all(record_of(t).disturbed for t in opened.study.trials)
    assert any("disturbed again" in note for note in notes)
    calls["calm"], calls["compared"] = 1, 0
    run_study(opened)
    assert calls["compared"] == 1
    assert "No reliable answer" not in verdict(opened)["text"]
    assert not read(opened.study).best().figures.disturbed
