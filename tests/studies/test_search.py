import pytest

from studies.benchmarks import result, search
from studies.simulation.bench import chain_of


@pytest.mark.parametrize("sampler", ["planner", "tpe"])
def test_every_sampler_is_judged_by_its_true_periods(sampler):
    outcome = search.split_search(chain_of(6, 0)[1], 3, sampler, 1)  # of 10 splits
    assert 0 < outcome.measured <= 10
    assert min(outcome.loss, outcome.first_loss) >= -1e-9
    assert (outcome.first_loss <= search.NEAR) == (outcome.trials == 1)


@pytest.mark.slow
def test_the_benchmark_writes_its_result(tmp_path, bench):
    file = tmp_path / "search.json"
    assert bench(search, "--graphs", "squeezenet", "--seeds", "4", "-o", file) == 0
    rows = [row[:3] for row in result.read(file).rows]
    assert rows == [("squeezenet", "41", "4"), ("squeezenet", "41", "8")]
