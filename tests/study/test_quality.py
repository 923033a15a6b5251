"""The quality of the search on simulated hardware: costs known to 35 %, noise 2 %, seeded."""

from statistics import median

import pytest

from tests.study.conftest import loss

pytestmark = pytest.mark.integration


@pytest.fixture(params=["chain", "branches"])
def losses(request, chain_bench, branchy_bench, ran):
    """How far what a sampler ends with is above the optimum, for each of some seeds."""
    make, shape = chain_bench, {"ops": 60}
    if request.param == "branches":
        make, shape = branchy_bench, {"blocks": 5, "branches": 3}

    def of(sampler, trials):
        search = {"sampler": sampler, "trials": trials}
        benches = [make(**shape, stages=4, seed=seed) for seed in range(6)]
        return [loss(ran(b, name=f"q{n}", seed=n, **search)) for n, b in enumerate(benches)]

    return of


def test_the_planner_is_near_the_optimum_after_four_trials(losses):
    shortfalls = losses("planner", 4)
    assert median(shortfalls) < 0.01
    assert max(shortfalls) < 0.04


def test_a_random_search_is_not(losses):
    assert median(losses("random", 8)) > 0.02
