"""The quality of the search on simulated hardware: costs known to 35 %, noise 2 %, seeded."""

from statistics import median

import optuna
import pytest

from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.run import run_study
from autosplit.study.results import best_of_study
from autosplit.study.storage import silence_optuna_logs
from studies.simulation.bench import SimulatedBench
from tests.study.conftest import space_of

SEEDS = range(6)


def shortfall(bench: SimulatedBench, name: str, trials: int, seed: int) -> float:
    """How far the true period of the study's best candidate is above the true optimum."""
    silence_optuna_logs()
    space = space_of(bench)
    search = {"trials": trials, "sampler": name, "seed": seed}
    config = StudyConfig.model_validate(
        {"name": "q", "model": "net.onnx", "stages": space.question.stages, "search": search}
    )
    study = optuna.create_study()
    opened = OpenStudy(study, "memory://", config, bench, space)
    run_study(opened)
    best = best_of_study(study)
    assert best is not None
    chosen = bench.truth(space.candidate(best.record.key)).period
    return chosen / bench.optimum().period - 1


@pytest.fixture(params=["chain", "branches"])
def benches(request, chain_bench, branchy_bench):
    if request.param == "chain":
        return [chain_bench(ops=60, stages=4, seed=seed) for seed in SEEDS]
    return [branchy_bench(blocks=5, branches=3, stages=4, seed=seed) for seed in SEEDS]


@pytest.mark.integration
def test_the_planner_is_near_the_optimum_after_four_trials(benches):
    shortfalls = [shortfall(bench, "planner", 4, seed) for seed, bench in enumerate(benches)]
    assert median(shortfalls) < 0.01
    assert max(shortfalls) < 0.04


@pytest.mark.integration
def test_a_random_search_is_not(benches):
    assert median(shortfall(bench, "random", 8, seed) for seed, bench in enumerate(benches)) > 0.02
