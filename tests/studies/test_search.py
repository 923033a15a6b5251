import pytest

from studies.benchmarks import search
from studies.simulation.bench import chain_of


@pytest.mark.parametrize("sampler", ["planner", "tpe"])
def test_every_sampler_is_judged_by_its_true_periods(sampler):
    outcome = search.split_search(chain_of(6, 0)[1], 3, sampler, 1)  # of 10 splits
    assert 0 < outcome.measured <= 10
    assert min(outcome.loss, outcome.first_loss) >= -1e-9
    assert (outcome.first_loss <= search.NEAR) == (outcome.trials == 1)
