from statistics import median

import pytest

from autosplit.planner import CostModel
from autosplit.study.storage import silence_optuna_logs
from studies.benchmarks import result, search
from studies.benchmarks import search_methods as methods
from studies.benchmarks.search_methods import Case
from studies.simulation.bench import chain_of, costs_of
from tests.study.conftest import branchy


@pytest.fixture(autouse=True)
def _quiet():
    silence_optuna_logs()


def costs(ops: int = 24) -> CostModel:
    return chain_of(ops, 0)[1]


def test_the_search_is_judged_by_what_it_would_end_with():
    case = Case(costs(), 3, 0)
    trials = methods.planner(case, 12)
    result_of_search = methods.judge(case, trials)
    assert (
        result_of_search.trials
        <= result_of_search.settled
        <= result_of_search.measured
        == len(trials)
    )
    assert result_of_search.loss == case.loss(case.choose(trials))


@pytest.mark.parametrize("way", [methods.tpe, methods.randomly])
def test_other_samplers_measure_legal_splits(way):
    result_of_search = way(Case(costs(), 3, 1), 8)
    assert 0 < len(result_of_search) <= 8
    assert all(
        sorted(i for stage in m.stages for i in stage.ops) == list(range(24))
        for m in result_of_search
    )


@pytest.mark.slow
@pytest.mark.parametrize("stages", search.BARS)
def test_few_trials_find_the_best_split(stages):
    graph, times = branchy(8, 3)
    models = [costs(60), costs_of(graph, times), search.zoo_costs("squeezenet")]
    for model in models:
        result_of_search = [
            methods.judge(c, methods.planner(c, 20))
            for c in (Case(model, stages, seed) for seed in range(10))
        ]
        middle, high = search.BARS[stages]
        assert median(f.trials for f in result_of_search) <= middle
        assert result.percentile([f.trials for f in result_of_search]) <= high


@pytest.mark.slow
def test_the_benchmark_writes_its_result(tmp_path, bench):
    file = tmp_path / "search.json"
    assert bench(search, "--graphs", "squeezenet", "--seeds", "4", "-o", file) == 0
    assert [row[:3] for row in result.read(file).rows] == [
        ("squeezenet", "41", "4"),
        ("squeezenet", "41", "8"),
    ]
