from types import SimpleNamespace

import pytest

from autosplit.study.acquisition import WORTH
from autosplit.study.config.study_file import Search
from autosplit.study.loop.stopping import stop_reason
from tests.study.conftest import frozen

COMPLETE, FAIL, RUNNING, WAITING = "COMPLETE", "FAIL", "RUNNING", "WAITING"


def trials(*rows):
    """Trials from (state, value, record); one without the last two that failed has a reason."""
    reasons = {FAIL: (None, {"error": "no room"})}
    return [frozen(n, s, *(more or reasons.get(s, ()))) for n, (s, *more) in enumerate(rows)]


def reason(rows, elapsed=0.0, **search):
    limits = Search(**{"sampler": "random", "trials": 100, **search})
    return stop_reason(limits, promises(), trials(*rows)[::-1], elapsed)  # in any order


def promises(exhausted=False, converged=False):
    """What is expected of further trials."""
    gains = {} if exhausted else {(): 0.1}
    known = {"gains": gains, "nearest": lambda: None if exhausted else (), "converged": converged}
    view = SimpleNamespace(**known, margin=0.5)
    return lambda: view


@pytest.mark.parametrize(
    ("finished", "search", "elapsed", "expected"),
    [
        ([(COMPLETE, 1.0)] * 2, {"trials": 3}, 0, None),
        ([(COMPLETE, 1.0)] * 3, {"trials": 3}, 0, "stopped: 3 trials (limit)"),
        ([(COMPLETE, 1.0), (FAIL,), (COMPLETE, 2.0)], {"trials": 3}, 0, "3 trials (limit)"),
        ([(COMPLETE, 1.0), (FAIL, None, {"lost": True}), (COMPLETE, 2.0)], {"trials": 3}, 0, None),
        ([(COMPLETE, 1.0), (RUNNING,), (RUNNING,)], {"trials": 3}, 0,
         "other workers measure the last 2"),
        ([(COMPLETE, 1.0), (RUNNING,)], {"trials": 3}, 0, None),
        ([], {"timeout": 2.0}, 1.99, None),
        ([], {"timeout": 2.5}, 2.5, "stopped: 2.5 s (limit)"),
        ([], {}, 1e9, None),
        ([(COMPLETE, 1.0), (COMPLETE, 1.0)], {"stagnation": 2}, 0, None),
        ([(COMPLETE, 1.0), (COMPLETE, 1.0), (FAIL,)], {"stagnation": 2}, 0,
         "no improvement in 2 trials"),
        ([(COMPLETE, 1.0), (FAIL,), (COMPLETE, 0.9)], {"stagnation": 2}, 0, None),
        ([(FAIL,), (FAIL,)], {"stagnation": 2}, 0, "no improvement in 2 trials"),
        ([(FAIL,), (FAIL,), (WAITING,)], {"stagnation": 2}, 0, None),
    ],
)  # fmt: skip
def test_each_limit_stops_when_it_is_met(finished, search, elapsed, expected):
    stopped = reason(finished, elapsed, **search)
    assert stopped is None if expected is None else stopped is not None and expected in stopped


@pytest.mark.parametrize(
    ("complete", "failed", "stops"),
    [(0, 4, False), (0, 5, True), (2, 3, True), (3, 3, False), (3, 4, True), (3, 2, False)],
)
def test_more_than_half_of_at_least_five_failed_is_too_many(complete, failed, stops):
    another = (FAIL, None, {"error": "another"})
    stopped = reason([*[(COMPLETE, 1.0)] * complete, *[(FAIL,)] * (failed - 1), another])
    line = f"stopped: {failed} of {complete + failed} trials failed, most often: no room"
    assert stopped == (line if stops else None)


def test_a_study_stops_where_nothing_is_promised():
    finished, search = trials((COMPLETE, 1.0)), Search(trials=9)
    assert stop_reason(search, promises(), finished, 0.0) is None
    assert "exhausted" in str(stop_reason(search, promises(exhausted=True), finished, 0.0))
    # The gain that it names is the one that it stops at.
    converged = stop_reason(search, promises(converged=True), finished, 0.0)
    assert f"by {WORTH / 2:.2%} or more" in str(converged)
    endless = Search(trials=9, converge=False)
    assert stop_reason(endless, promises(converged=True), finished, 0.0) is None
