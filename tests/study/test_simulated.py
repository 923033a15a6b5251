"""Simulated hardware: its costs, its noise, and deployments of all shapes."""

import pytest

from autosplit.deployment import Deployment, Option, Row, Stage
from autosplit.planner import Question
from studies.simulation.bench import NAME, SimulatedBench, Simulation, chain_of, with_threads
from tests.study.conftest import space_of


def plan_of(bench):
    space = space_of(bench)
    return space.deployment(space.plan.stages)


def test_a_measurement_depends_on_seed_and_split_alone(chain_bench):
    first, second = chain_bench(stages=2), chain_bench(stages=2)
    halves = plan_of(first)
    option = halves.stages[0].options
    second.measure(Deployment((Stage((0,), option), Stage(tuple(range(1, 20)), option))))
    assert first.measure(halves) == second.measure(halves)
    one, other = (chain_bench(seed=seed) for seed in (1, 2))
    assert (one.true, one.description.identity) != (other.true, other.description.identity)


def test_contention_slows_every_stage(chain_bench):
    bench = chain_bench(stages=3, error=0.0, noise=0.0, contention=0.1)
    expected = [1.2 * load for load in space_of(bench).plan.loads]
    assert bench.measure(plan_of(bench)).stage_ms == pytest.approx(expected)


def test_replicas_divide_the_period_and_threads_the_latency():
    graph, costs = chain_of(6, 0)
    costs, names = with_threads(costs, [4], 0.5), [f"cores:{n}" for n in range(4)]
    bench = SimulatedBench(
        graph, costs, Question.of_cores({"0": 4}), names, Simulation(error=0.0, noise=0.0)
    )

    def measured(replicas, threads):
        option = Option(Row("0", NAME, threads), replicas)
        return bench.measure(Deployment((Stage(tuple(range(6)), (option,)),)))

    one, replicas, threads = measured(1, 1), measured(4, 1), measured(1, 4)
    assert replicas.period_ms.median == pytest.approx(one.period_ms.median / 4)
    assert replicas.latency_ms.median == pytest.approx(one.latency_ms.median)
    assert threads.latency_ms.median == pytest.approx(one.latency_ms.median / 2.5)
