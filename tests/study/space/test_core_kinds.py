"""The space of deployments on two large cores and three small ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import cores_of
from autosplit.errors import SplitError
from autosplit.hardware.bench.simulated import chain_of
from autosplit.planner import plan_cores
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.study.space.deployment_space import DeploymentSpace

SIZES, COUNTS = (2, 3), (1, 2, 1, 2, 3)
_, ONE = chain_of(8, 0)
ROWS = tuple(tuple(time / speed for time in ONE.times[0]) for speed in (1, 1.7, 0.5, 0.9, 1.2))
COSTS = replace(ONE, times=ROWS, sizes=(1.0,) * 8, memory=(5.0,), activations=False)
SPACE = DeploymentSpace(COSTS, ((0, 1), (4, 5, 6)), COUNTS, "simulated")


def check(deployment: DeployedSplit) -> None:
    """The deployment is one of the space, and its devices are as many cores of its kinds."""
    assert SPACE.split(SPACE.key(deployment)) == deployment
    stages = SPACE.deployment(deployment).stages
    cores = [core for stage in stages for device in stage.devices for core in cores_of(device)]
    assert len(set(cores)) == len(cores) == deployment.cores
    for stage, kind in zip(stages, deployment.kinds, strict=True):
        assert all(set(cores_of(device)) <= set(SPACE.cores[kind]) for device in stage.devices)


@given(st.lists(st.floats(0, 1), min_size=len(SPACE.names), max_size=len(SPACE.names)))
def test_any_parameters_decode_to_a_deployment(values: list[float]) -> None:
    deployment = SPACE.decode(dict(zip(SPACE.names, values, strict=True)))
    check(deployment)
    assert SPACE.decode(SPACE.parameters(deployment)) == deployment


def test_random_deployments_and_their_neighbours_fit() -> None:
    rng = np.random.default_rng(0)
    drawn = [SPACE.random(rng) for _ in range(5)]
    for deployment in filter(None, drawn):
        neighbours = SPACE.neighbours(deployment)
        for other in (deployment, *neighbours):
            assert SPACE.fits(other)
            check(other)
        # A stage can move to cores of another kind, or two stages change places.
        assert any(n.kinds != deployment.kinds for n in neighbours if n.stages == deployment.stages)


def test_the_plan_is_the_planners_and_no_candidate_is_better() -> None:
    planned = plan_cores(COSTS, SIZES, COUNTS)
    assert SPACE.best_plan.lower_bound == planned.period == SPACE.evaluate(SPACE.plan()).period
    best = SPACE.best(COSTS, 50)
    check(best[0])
    assert SPACE.evaluate(best[0]).period == planned.period


def test_cuts_have_the_period_of_the_best_deployment_there() -> None:
    rng = np.random.default_rng(1)
    periods = SPACE.cut_periods()
    for deployment in filter(None, (SPACE.random(rng) for _ in range(40))):
        if len(deployment.stages) == 2:
            (cut,) = (sum(1 << op for op in deployment.stages[0]),)
            assert periods[cut] <= SPACE.evaluate(deployment).period * (1 + 1e-9)


@pytest.mark.parametrize("key", ["1:@3x1x0", "1:@1x1x2", "1:@1x1", "2:f@1x1x0.1x3x0", "1:@1x1x0x0"])
def test_keys_of_other_cores_are_refused(key: str) -> None:
    with pytest.raises(SplitError):
        SPACE.split(key)
