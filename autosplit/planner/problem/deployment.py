"""A deployment and what it costs: the reference arithmetic of stages, replicas and threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosplit.errors import SplitError
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan, evaluate


@dataclass(frozen=True)
class PlannedDeployment(Plan):
    """A split with ``replicas`` and ``threads`` for each stage.

    ``loads`` and ``memory`` are those of one replica. ``period`` is the largest load divided by
    ``sharing``; replicas do not shorten ``latency``.
    """

    replicas: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()

    @property
    def cores(self) -> int:
        """How many cores it uses."""
        return sum(r * w for r, w in zip(self.replicas, self.threads, strict=True))


def sharing(replicas: Any, streams: int, has_state: Any) -> Any:
    """How many items the replicas of a stage compute at once on average; of numbers or arrays.

    With states a replica holds whole streams. The one with the most, and all streams give as many
    items, computes the items of ceil(streams / replicas) of them one after the other.
    """
    return np.where(has_state, streams / np.ceil(streams / replicas), replicas)


def useful_replicas(replicas: int, streams: int) -> int:
    """The fewest replicas of a stage with states that share as much as so many."""
    return -(-streams // -(-streams // replicas))


def shares(
    costs: CostModel, stages: Iterable[Iterable[int]], replicas: Iterable[int]
) -> list[float]:
    """What the load of each stage is divided by, see ``sharing``."""
    has_state = list(map(costs.has_state, stages))
    divisors: list[float] = sharing(np.array(list(replicas)), costs.streams, has_state).tolist()
    return divisors


def evaluate_deployment(
    costs: CostModel,
    stages: Sequence[Iterable[int]],
    replicas: Sequence[int],
    threads: Sequence[int],
    thread_counts: Sequence[int] = (1,),
) -> PlannedDeployment:
    """The cost of given stages, ``replicas[s]`` of stage s with ``threads[s]`` threads each.

    Row i of a table of ``costs`` is for ``thread_counts[i]`` threads; one row serves all.

    Raises:
        SplitError: The stages are no legal split, or a number of replicas or threads is wrong.
    """
    if not len(stages) == len(replicas) == len(threads) or min(replicas, default=0) < 1:
        raise SplitError(
            f"replicas {tuple(replicas)} and threads {tuple(threads)} for {len(stages)} stages; "
            "give each stage a number from 1"
        )
    if unknown := set(threads) - set(thread_counts):
        raise SplitError(
            f"stages with {min(unknown)} threads, for which there are no costs; "
            f"give {', '.join(map(str, thread_counts))}"
        )
    rows = [list(thread_counts).index(count) for count in threads]
    split = evaluate(costs.on_devices(rows), stages)
    pairs = zip(split.loads, shares(costs, split.stages, replicas), strict=True)
    periods = [load / count for load, count in pairs]
    shape = {"period": max(periods), "replicas": tuple(replicas), "threads": tuple(threads)}
    return PlannedDeployment(**vars(split) | shape)
