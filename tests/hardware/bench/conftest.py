"""The simulated benches that studies are tested with."""

from tests.study.conftest import branchy_bench, chain_bench

__all__ = ["branchy_bench", "chain_bench"]
