"""Simulated cores: deployments of all shapes, memory, contention, and the true optimum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autosplit.deployment import Deployment
from autosplit.hardware.bench.simulated import chain_of
from autosplit.hardware.bench.simulated_cores import CoreSimulation, SimulatedCores

OPS, WHOLE = 6, (tuple(range(6)),)
HALVES = (0, 1, 2), (3, 4, 5)


def bench(
    cores: int = 4, memory: float = math.inf, streams: int = 0, **simulation: Any
) -> SimulatedCores:
    graph, costs = chain_of(OPS, 0)
    if streams:
        costs = replace(costs, states=(("h", 1),), streams=streams)
    costs = replace(costs, sizes=(1.0,) * OPS, memory=(memory,), activations=False)
    setting = CoreSimulation(**{"error": 0.0, "noise": 0.0, **simulation})
    return SimulatedCores(graph, costs, [range(cores)], (1, 2, 4), setting)


def on(stages: Any, replicas: Any, threads: Any) -> Deployment:
    return Deployment.of_shape(stages, replicas, threads, ["simulated"] * len(stages), [range(8)])


def test_replicas_divide_the_period_and_threads_the_latency() -> None:
    cores = bench(thread_share=0.5)
    one = cores.measure(on(WHOLE, [1], [1]))
    replicas, threads = cores.measure(on(WHOLE, [4], [1])), cores.measure(on(WHOLE, [1], [4]))
    assert replicas.period_ms.median == pytest.approx(one.period_ms.median / 4)
    assert replicas.latency_ms.median == pytest.approx(one.latency_ms.median)
    assert threads.latency_ms.median == pytest.approx(one.latency_ms.median / 2.5)


def test_every_busy_core_slows_all_others_down() -> None:
    slow, quick = bench(contention=0.1), bench()
    halves = on(HALVES, [2, 1], [1, 1])
    ratio = slow.measure(halves).stage_ms[0] / quick.measure(halves).stage_ms[0]
    assert ratio == pytest.approx(1.2)


def test_a_measurement_depends_on_seed_and_deployment_alone() -> None:
    halves, others = on(HALVES, [2, 1], [1, 1]), on(HALVES, [1, 2], [1, 1])
    first, second = bench(noise=0.1, error=0.3), bench(noise=0.1, error=0.3)
    second.measure(others)
    assert first.measure(halves) == second.measure(halves)
    assert first.measure(halves).stage_ms != first.measure(others).stage_ms


def test_baselines_are_whole_models() -> None:
    names = [(b.name, b.copies) for b in bench().baselines()]
    assert names == [
        ("simulated, 1 thread", 1),
        ("simulated, 4 threads", 1),
        ("simulated, 4 replicas", 4),
    ]


def test_replicas_of_a_stage_with_states_hold_whole_streams() -> None:
    three, one = bench(streams=3), bench(streams=1)
    whole, halves = on(WHOLE, [2], [1]), on(HALVES, [1, 3], [1, 1])
    load = one.measure(whole).period_ms.median
    assert three.measure(whole).period_ms.median == pytest.approx(load * 2 / 3)
    # The second half has no state.
    first, second = one.measure(halves).stage_ms
    assert one.measure(halves).period_ms.median == pytest.approx(max(first, second / 3))
    assert [b.copies for b in three.baselines()] == [1, 1, 3]
    assert [b.copies for b in one.baselines()] == [1, 1]
    assert bench(streams=4).optimum().replicas == (4,)
    assert one.optimum().replicas[0] == 1


def test_the_optimum_is_no_worse_than_any_corner_and_keeps_the_memory() -> None:
    cores = bench(error=0.4, contention=0.05)
    corners = [on(WHOLE, [4], [1]), on(WHOLE, [1], [4]), on(HALVES, [2, 2], [1, 1])]
    assert cores.optimum().period <= min(cores.true_plan(d).period for d in corners)
    assert max(bench(memory=4.0).optimum().memory) <= 4.0
    assert bench(cores=64).optimum().cores == 64


def test_half_of_the_error_is_the_same_for_all_numbers_of_threads() -> None:
    graph, costs = chain_of(2000, 0)
    cores = SimulatedCores(graph, costs, [range(4)], (1, 2, 4), CoreSimulation(error=0.4))
    errors = np.log(np.array(cores.true.times) / np.array(cores.costs.times))
    assert errors.std(axis=1) == pytest.approx([0.4] * 3, rel=0.1)
    assert np.corrcoef(errors)[0, 1] == pytest.approx(0.5, abs=0.1)
