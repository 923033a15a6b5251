from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts import cuts_of
from autosplit.errors import ConfigError, SplitError
from autosplit.hardware.bench.simulated import SimulatedBench, chain_of
from autosplit.planner import CostModel
from autosplit.study.space.search_space import Space

Make = Callable[..., SimulatedBench]
SHARES = st.floats(0, 1)


@given(st.lists(SHARES, min_size=2, max_size=2), SHARES)
def test_any_parameters_decode_to_a_legal_split(shares: list[float], branch: float) -> None:
    bench = SimulatedBench(*chain_of(9, 0), ["cores:0"] * 3)
    space = Space(bench.costs, 3)
    stages = space.decode({"cut_1": shares[0], "cut_2": shares[1], "branch": branch})
    assert len(cuts_of(bench.graph, stages)) == 2


def test_every_split_is_its_key_and_a_chain_its_parameters(chain_bench: Make) -> None:
    space = Space(chain_bench(ops=8, stages=3).costs, 3)
    for stages in space.listed:
        assert space.split(space.key(stages)) == stages
        assert space.decode(space.parameters(stages)) == stages


def test_listing_finds_as_many_splits_as_counting(branchy_bench: Make) -> None:
    space = Space(branchy_bench(blocks=2, branches=2).costs, 3)
    assert len({space.key(stages) for stages in space.listed}) == len(space.listed) == space.size


def test_moving_one_op_reaches_every_split(branchy_bench: Make) -> None:
    space = Space(branchy_bench(blocks=2, branches=2).costs, 2)
    visited = {space.key(space.listed[0])}
    queue = [space.listed[0]]
    for stages in queue:
        fresh = [n for n in space.neighbours(stages) if space.key(n) not in visited]
        visited |= {space.key(n) for n in fresh}
        queue += fresh
    assert len(visited) == space.size


def test_random_splits_are_legal_and_differ(branchy_bench: Make) -> None:
    bench = branchy_bench()
    space, rng = Space(bench.costs, 3), np.random.default_rng(0)
    splits = [space.random(rng) for _ in range(30)]
    assert all(stages is not None and cuts_of(bench.graph, stages) for stages in splits)
    assert len(set(splits)) > 20


def test_ops_kept_together_stay_so(chain_bench: Make) -> None:
    space = Space(chain_bench(ops=6).costs.with_groups([(1, 2), (3, 4)]), 2)
    assert space.size == len(space.listed) == 3
    assert {len(n[0]) for n in space.neighbours(space.listed[0])} <= {1, 3, 5}
    with pytest.raises(SplitError, match="must stay on one stage"):
        space.split("2:3")


def test_what_a_device_cannot_hold_is_no_candidate(chain_bench: Make) -> None:
    costs = replace(
        chain_bench(ops=4).costs, sizes=(6.0, 6.0, 6.0, 6.0), memory=(13.0,), activations=False
    )
    space = Space(costs, 2)
    assert space.listed == (((0, 1), (2, 3)),)
    assert space.random(np.random.default_rng(0)) == ((0, 1), (2, 3))
    assert list(space.neighbours(((0,), (1, 2, 3)))) == [((0, 1), (2, 3))]


@pytest.mark.parametrize(
    "key", ["", "2", "2:", "2:zz", "3:1.3", "2:-1", "2:f", "2:2", "2:1.3", "2:fff"]
)
def test_a_text_that_is_no_key_is_refused(chain_bench: Make, key: str) -> None:
    with pytest.raises(SplitError):
        Space(chain_bench(ops=4).costs, 2).split(key)


def test_more_stages_than_ops_are_refused(chain_bench: Make) -> None:
    with pytest.raises(ConfigError, match="use fewer stages"):
        Space(chain_bench(ops=4).costs, 5)


def test_a_single_stage_is_a_space_of_one(chain_bench: Make) -> None:
    space = Space(chain_bench(ops=4).costs, 1)
    whole = ((0, 1, 2, 3),)
    assert space.listed == (whole,)
    assert space.parameters(whole) == {}
    assert space.split(space.key(whole)) == whole == space.decode({})


def test_exhaustive_listing_says_when_there_are_too_many(chain_bench: Make) -> None:
    with pytest.raises(ConfigError, match="use sampler 'planner'"):
        _ = Space(chain_bench(ops=60).costs, 6).listed


def test_costs_without_time_still_have_shares() -> None:
    space = Space(CostModel("free", ("a", "b"), (0, 1), ((0.0, 0.0),)), 2)
    assert space.decode(space.parameters(((0,), (1,)))) == ((0,), (1,))
